// A run's slots and caches against float64, stage by stage: each stage is checked on what the stage before it left.
#pragma once


#include "mla/rig.hpp"

namespace monolayer::test {

template <class T, class C>
struct mla_checks {
  using rig_type = mla_rig<T, C>;
  using P = mla_program<C>;
  using A = typename P::attention_stage;
  static constexpr bool fp8 = rig_type::fp8;
  const rig_type& rig;
  const mla_setup& how;
  const typename rig_type::run_of& run;
  const int layer = int(how.kinds.size()) - 1;

  void all() const {
    for (std::size_t i = 0; i < how.rows.size(); ++i) {
      if (how.rows[i].id < 0) continue;
      INFO("row " << i << ", id " << how.rows[i].id << ", " << how.rows[i].tokens << " tokens");
      cache_row(int(i));
      absorbed(int(i));
      attended(int(i));
    }
    caches_elsewhere();
  }

  cache_strides strides() const {
    const u32 row = C::kv_cache::bytes + how.padding;
    return {u64(how.block_size) * row + how.padding, row, how.block_size};
  }
  static constexpr bool fp8_keys = C::index_cache::fp8;
  /// Bytes of a slot's key in the index cache: (offset, count) of each run of them.
  std::vector<std::pair<u64, u64>> key_runs(u32 slot) const {
    const u64 page = u64(slot / how.block_size) * rig_type::index_stride(how), place = slot % how.block_size;
    if (!fp8_keys) return {{page + place * 256, 256}};
    std::vector<std::pair<u64, u64>> runs;  // shuffled_16x16: 16 values of 16 keys lie together
    for (u64 d = 0; d < 128; d += 16) runs.emplace_back(page + place / 16 * 2048 + d / 16 * 256 + place % 16 * 16, 16);
    runs.emplace_back(page + how.block_size * 128 + place * 4, 4);
    return runs;
  }

  void cache_row(int row) const {
    const int id = how.rows[std::size_t(row)].id;
    const bytes& own = run.last.own.at(row);
    const u32 slot = u32(rig_type::own_slot(id));
    const float* angles = &rig.rope[std::size_t(rig_type::position(id)) * 64];
    REQUIRE(std::memcmp(own.data(), &run.last.kv_cache[strides().offset(slot)], C::kv_cache::bytes) == 0);
    const auto want = cache_row_of(rig.kv_of(id, layer, how.size).data(), rig.norm.data(), angles, 1e-6);
    for (int k = 0; k < 576; ++k) {
      const double got = row_value(own.data(), k, fp8), raw = want[std::size_t(k)];
      const double w = fp8 ? std::clamp(raw, -448.0, 448.0) : raw;
      if (!(std::abs(got - w) <= half_step(w, fp8, 1e-6 * std::abs(w) + 1e-7))) FAIL("cache row, " << k << ": " << got << " for " << w);
    }
    if (how.kinds.back() != P::full) return;
    bytes stored;
    for (const auto& [at, count] : key_runs(slot))
      stored.insert(stored.end(), &run.last.index_cache[at], &run.last.index_cache[at] + count);
    REQUIRE(std::memcmp(&own[C::kv_cache::bytes], stored.data(), stored.size()) == 0);
    float scale = 1;
    if (fp8_keys) std::memcpy(&scale, &stored[128], 4);
    const auto key = index_key_of(rig.ik_of(id, layer, how.size).data(), rig.key_weight.data(), rig.key_bias.data(), angles);
    for (int k = 0; k < 128; ++k) {
      const double got = row_value(stored.data(), k, fp8_keys) * double(scale), w = key[std::size_t(k)];
      if (!(std::abs(got - w) <= half_step(w / double(scale), fp8_keys, 3e-6) * double(scale) + 3e-6)) FAIL("index key, " << k << ": " << got << " for " << w);
    }
  }

  /// Nothing else of the caches was written.
  void caches_elsewhere() const {
    std::vector<bool> written(run.last.kv_cache.size()), key(run.last.index_cache.size());
    for (const auto& r : how.rows)
      if (r.id >= 0) {
        const u32 slot = u32(rig_type::own_slot(r.id));
        std::fill_n(written.begin() + std::ptrdiff_t(strides().offset(slot)), C::kv_cache::bytes, true);
        for (const auto& [at, count] : key_runs(slot)) std::fill_n(key.begin() + std::ptrdiff_t(at), count, true);
      }
    bytes before(run.last.kv_cache.size(), 0xff);
    for (u32 s = 0; s < u32(rig_type::token_count); ++s)
      std::memcpy(&before[strides().offset(s)], &rig.cached[std::size_t(s) * C::kv_cache::bytes], C::kv_cache::bytes);
    bool same = true;
    for (std::size_t i = 0; i < before.size(); ++i) same &= written[i] || before[i] == run.last.kv_cache[i];
    for (std::size_t i = 0; i < key.size(); ++i) same &= key[i] || run.last.index_cache[i] == 0;
    CHECK(same);
  }

  static double bf16_at(const bytes& v, std::size_t i) { return row_value(v.data(), int(i), false); }
  static double f32_at(const bytes& v, std::size_t i) {
    float x;
    std::memcpy(&x, &v[4 * i], 4);
    return double(x);
  }

  void absorbed(int row) const {
    const std::vector<u16> q = rig.q_of(how.rows[std::size_t(row)].id, layer);
    for (int h = 0; h < C::heads; ++h)
      for (int c = 0; c < 512; c += h == 0 ? 1 : 37) {
        double sum = 0, size = 0;
        for (int n = 0; n < C::nope; ++n) {
          const double t = of_bf16(q[std::size_t(h * (C::nope + 64) + n)]) *
                           rig.kv_b.at((rig_type::first_head + h) * (C::nope + C::v_dim) + n, c, false);
          sum += t, size += std::abs(t);
        }
        const double got = bf16_at(run.last.ql.at(row), std::size_t(h * 512 + c));
        if (!(std::abs(got - sum) <= half_step(sum, false, 1e-6 * size))) FAIL("ql " << h << ", " << c << ": " << got << " for " << sum);
      }
  }

  /// The tokens that a row's list names, as (row of the cache, or of slot own).
  std::vector<const u8*> tokens_of(int row) const {
    bool picked = false;
    for (u64 k : how.kinds) picked |= k == P::full;
    std::vector<const u8*> tokens;
    for (u32 slot : rig.list_of(how, row, picked)) {
      if (slot >= u32(rig_type::token_count)) continue;
      const u8* at = &rig.cached[std::size_t(slot) * C::kv_cache::bytes];
      for (const auto& [live, own] : run.last.own)
        if (rig_type::own_slot(how.rows[std::size_t(live)].id) == int(slot)) at = own.data();
      tokens.push_back(at);
    }
    return tokens;
  }

  void attended(int row) const {
    const auto tokens = tokens_of(row);
    const std::vector<u16> q = rig.q_of(how.rows[std::size_t(row)].id, layer);
    const bytes &ql = run.last.ql.at(row), &part = run.last.part.at(row), &o = run.last.o.at(row);
    std::vector<std::vector<double>> value;
    for (const u8* t : tokens) {
      value.emplace_back(576);
      for (int k = 0; k < 576; ++k) value.back()[std::size_t(k)] = row_value(t, k, fp8);
    }
    for (int h = 0; h < C::heads; ++h) {
      std::vector<double> score;
      double largest = -1e300, total = 0;
      for (const auto& v : value) {
        double s = 0;
        for (int k = 0; k < 512; ++k) s += v[std::size_t(k)] * bf16_at(ql, std::size_t(h * 512 + k));
        for (int k = 0; k < 64; ++k) s += v[std::size_t(512 + k)] * of_bf16(q[std::size_t(h * (C::nope + 64) + C::nope + k)]);
        score.push_back(s * 0.0625);
        largest = std::max(largest, score.back());
      }
      for (double& s : score) total += s = std::exp(s - largest);
      // The parts, merged in float64.
      const auto at = [&](int split) { return std::size_t((h / A::heads * A::splits + split) * A::tile_columns); };
      double max = -HUGE_VAL, sum = 0;
      for (int s = 0; s < A::splits; ++s) max = std::max(max, f32_at(part, at(s) + std::size_t(A::heads * 512 + h % A::heads)));
      std::vector<double> merged(512), ol(512), size(512);
      for (int s = 0; s < A::splits; ++s) {
        const double m = f32_at(part, at(s) + std::size_t(A::heads * 512 + h % A::heads)),
                     l = f32_at(part, at(s) + std::size_t(A::heads * 513 + h % A::heads));
        if (l == 0) {
          REQUIRE(m == -HUGE_VAL);
          continue;
        }
        sum += l * std::exp(m - max);
        for (int c = 0; c < 512; ++c)
          merged[std::size_t(c)] += std::exp(m - max) * f32_at(part, at(s) + std::size_t(h % A::heads * 512 + c));
      }
      if (!tokens.empty()) {
        REQUIRE(std::abs(max - largest) < 1e-4 * (1 + std::abs(largest)));
        REQUIRE(std::abs(sum * std::exp(max - largest) - total) < 5e-3 * total);
      } else {
        REQUIRE(sum == 0);
      }
      for (int c = 0; c < 512 && !tokens.empty(); ++c) {
        auto &w = ol[std::size_t(c)], &z = size[std::size_t(c)];
        for (std::size_t t = 0; t < tokens.size(); ++t) {
          w += score[t] / total * value[t][std::size_t(c)];
          z += score[t] / total * std::abs(value[t][std::size_t(c)]);
        }
        merged[std::size_t(c)] /= sum;
        // P has 8 bits, and its errors are as many as tokens and do not add up straight; f32 scores add 1e-4 at most.
        if (!(std::abs(merged[std::size_t(c)] - w) <= 0.006 * z + 1e-6))
          FAIL("head " << h << ", latent " << c << ": " << merged[std::size_t(c)] << " for " << w << " of size " << z);
      }
      for (int v = 0; v < C::v_dim; ++v) {
        double want = 0, all = 0;
        for (int c = 0; c < 512; ++c) {
          const double w = rig.kv_b.at((rig_type::first_head + h) * (C::nope + C::v_dim) + C::nope + v, c);
          want += w * (tokens.empty() ? 0.0 : merged[std::size_t(c)]);
          all += std::abs(w * (tokens.empty() ? 0.0 : merged[std::size_t(c)]));
        }
        const double got = bf16_at(o, std::size_t(h * C::v_dim + v));
        if (!(std::abs(got - want) <= half_step(want, false, 0.0021 * all))) FAIL("o " << h << ", " << v << ": " << got << " for " << want);
      }
    }
  }
};

/// Runs a setup and checks all of it.
template <class T, class C>
typename mla_rig<T, C>::run_of checked(const mla_rig<T, C>& rig, const mla_setup& how) {
  auto run = rig.run(how);
  MUST_RUN(run);
  mla_checks<T, C>{rig, how, run}.all();
  return run;
}

}  // namespace monolayer::test
