// One run of the attention program in the simulator. Rows carry ids: what a row is fed depends on its id alone, so the
// bits of a row can be compared between runs that place it elsewhere or among other rows.
#pragma once

#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <map>

#include "mla/model.hpp"
#include "mla/program.hpp"
#include "monolayer/host/launch_sim.hpp"
#include "monolayer/host/pack_heads.hpp"
#include "monolayer/host/plan.hpp"

namespace monolayer::test {

struct mla_row {
  int id;             // -1: a dead row
  int tokens;         // length of its list
  bool with_own = true;  // its own token is in the list, if that has any place
  int from_row = -1;  // the list also holds the token of this row of the launch
};

struct mla_setup {
  std::vector<mla_row> rows;
  std::vector<u64> kinds = {0};  // of the layers of the launch
  int blocks = 3, groups = 1;
  u64 seed = 1;
  u32 block_size = 16;
  u32 padding = 0;      // bytes after each row and each block of the cache
  u32 ring_limit = 0;
  double size = 1;      // of kv and ik
  std::vector<std::pair<int, int>> bad_entries = {};  // (row, place) of list entries outside the cache
};

/// What one layer of a run left behind; of live rows only.
struct mla_result {
  std::map<int, bytes> own, o, ql, part;  // by row of the launch
  bytes kv_cache, index_cache;
};

template <class T, class C>
struct mla_rig {
  using P = mla_program<C>;
  static_assert(plan<T, P>::lds_needed <= T::lds_bytes);
  using memory = slot_layout<P, T::arrivals>;
  using F = typename C::attention_weights;
  static constexpr bool fp8 = C::kv_cache::element_bytes == 1;
  static constexpr int token_count = 512;  // slots of the cache
  static constexpr auto kind = F::piece_bytes == 16 ? weight_matrix::bf16
                               : F::chunk_scale_bytes != 0 ? weight_matrix::channel
                                                           : weight_matrix::block;
  static constexpr int first_head = 1;  // of the model: an odd one begins inside a scale block

  weight_matrix kv_b{kind, (C::heads + first_head) * (C::nope + C::v_dim), 512, 5, kind == weight_matrix::bf16 ? 0.05 : 0.03};
  std::vector<u16> norm = std::vector<u16>(512);
  std::vector<float> key_weight = std::vector<float>(128), key_bias = std::vector<float>(128), rope;
  bytes cached;  // encoded rows of all slots, without strides
  bytes w_uk, w_uv;

  mla_rig() {
    generator g(11);
    for (u16& w : norm) w = to_bf16(1 + 0.2 * g.normal());
    for (float& w : key_weight) w = float(1 + 0.2 * g.normal());
    for (float& w : key_bias) w = float(0.1 * g.normal());
    for (int p = 0; p < 64; ++p)
      for (int i = 0; i < 64; ++i) {
        const double angle = p * std::pow(10000.0, -(i % 32) / 32.0);
        rope.push_back(float(i < 32 ? std::cos(angle) : std::sin(angle)));
      }
    for (int t = 0; t < token_count * 576; ++t) {
      if (fp8) {
        u8 code = u8(g.next() & 0xbf);  // below 2
        cached.push_back(code);
      } else {
        const u16 bits = to_bf16(g.normal());
        cached.push_back(u8(bits));
        cached.push_back(u8(bits >> 8));
      }
    }
    const kv_b_heads h{{kv_b.data.data(), kv_b.scales.data(), nullptr, kv_b.rows, kv_b.columns, 0, 0},
                       C::nope, C::v_dim, 512, first_head, C::heads};
    using uk = typename P::absorb_stage::weights;
    using uv = typename P::v_up_stage::weights;
    w_uk.resize(header_for_heads<T, uk>(512, C::heads, 1, 0).bytes);
    w_uv.resize(header_for_heads<T, uv>(C::v_dim, C::heads, 1, 0).bytes);
    REQUIRE(pack_w_uk<T, F, uk>(w_uk, h, "w_uk").text() == "ok");
    REQUIRE(pack_w_uv<T, uv>(w_uv, h, "w_uv").text() == "ok");
  }

  static u64 index_stride(const mla_setup& how) { return C::index_cache::page_bytes(how.block_size) + how.padding; }

  // ---- what a row is fed, by its id and the layer
  static int position(int id) { return 3 * id + 1; }
  static int own_slot(int id) { return 37 * id + 5; }
  std::vector<float> kv_of(int id, int layer, double size) const {
    generator g(reference::derive_seed(100 + u64(layer), u64(id)));
    std::vector<float> v(576);
    for (float& x : v) x = float(g.normal() * size);
    return v;
  }
  std::vector<float> ik_of(int id, int layer, double size) const {
    generator g(reference::derive_seed(200 + u64(layer), u64(id)));
    std::vector<float> v(128);
    for (float& x : v) x = float((0.5 + g.normal()) * size);
    return v;
  }
  std::vector<u16> q_of(int id, int layer) const {
    generator g(reference::derive_seed(300 + u64(layer), u64(id)));
    std::vector<u16> v(P::q_columns);
    for (u16& x : v) x = to_bf16(g.normal());
    return v;
  }
  /// The row's list: distinct slots, none of them another id's own. `picked` makes it another one than the caller's.
  std::vector<u32> list_of(const mla_setup& how, int row, bool picked) const {
    const mla_row& r = how.rows[std::size_t(row)];
    std::vector<u32> list;
    if (r.id < 0) return list;
    u32 slot = u32(r.id * 13 + (picked ? 7 : 0));
    while (int(list.size()) < r.tokens) {
      slot = (slot + (picked ? 5 : 3)) % token_count;
      bool own = false;
      for (int id = 0; id < C::max_rows; ++id) own |= int(slot) == own_slot(id);
      if (!own) list.push_back(slot);
    }
    if (r.tokens > 0 && r.with_own) list[list.size() / 2] = u32(own_slot(r.id));
    if (r.tokens > 1 && r.from_row >= 0) list[list.size() - 1] = u32(own_slot(how.rows[std::size_t(r.from_row)].id));
    for (const auto& [bad_row, place] : how.bad_entries)
      if (bad_row == row) list[std::size_t(place)] = place % 2 == 0 ? ~0u : u32(token_count);
    return list;
  }

  struct run_of {
    sim::report report;
    std::vector<mla_result> layers;  // only the last one's slots are kept: the others are empty but for `own`
    mla_result last;
    u32 bad_entries = 0;
  };

  run_of run(const mla_setup& how) const {
    sim::options options;
    options.seed = how.seed;
    options.groups = how.groups;
    options.stage_name = [](u32, u32 stage) { return std::string(P::info.kinds[0].stages[stage].name); };
    sim::machine m(options);
    const auto put = [&](const void* data, std::size_t size, const char* name, sim::memory use = sim::memory::plain) {
      u8* at = static_cast<u8*>(m.allocate(0, size, name, use, sim::fill::zero));
      if (data != nullptr) std::memcpy(at, data, size);
      return at;
    };
    rank_memory rm;
    rm.slots = put(nullptr, memory::payload_bytes, "slots", sim::memory::slot);
    rm.arrivals = put(nullptr, memory::arrival_bytes, "arrivals", sim::memory::control);
    rm.mailbox[0] = put(nullptr, memory::mailbox_bytes, "mailbox", sim::memory::mailbox);
    rm.state[0] = put(nullptr, sizeof(device_state), "state", sim::memory::control);
    annotate<T, P>(m, rm, 0);

    const u32 row_bytes = C::kv_cache::bytes, row_stride = row_bytes + how.padding;
    const u64 block_stride = u64(how.block_size) * row_stride + how.padding;
    const u32 block_count = token_count / how.block_size;
    const cache_strides strides{block_stride, row_stride, how.block_size};
    u8* index = put(nullptr, block_count * index_stride(how), "index cache", sim::memory::output);

    std::vector<long long> slots, positions;
    std::vector<int> starts = {0}, list;
    for (std::size_t i = 0; i < how.rows.size(); ++i) {
      const int id = how.rows[i].id;
      slots.push_back(id < 0 ? -1 : own_slot(id));
      positions.push_back(id < 0 ? -1 : position(id));
      for (u32 s : list_of(how, int(i), false)) list.push_back(int(s));
      starts.push_back(int(list.size()));
    }
    list.push_back(0);

    std::vector<layer_entry> layers;
    std::vector<u8*> caches;
    for (std::size_t l = 0; l < how.kinds.size(); ++l) {
      // NaN wherever nothing may be read: between rows, and at the slots of the rows' own tokens.
      u8* cache = put(nullptr, block_count * block_stride, "kv cache", sim::memory::output);
      std::memset(cache, 0xff, block_count * block_stride);
      for (int s = 0; s < token_count; ++s)
        std::memcpy(cache + strides.offset(u32(s)), &cached[std::size_t(s) * row_bytes], row_bytes);
      for (const long long s : slots)
        if (s >= 0) std::memset(cache + strides.offset(u32(s)), 0xff, row_bytes);
      caches.push_back(cache);
      const u32 pick_bytes = u32(C::index_topk + 4) * 4;
      bytes kv(C::max_rows * 576 * 4, 0xff), ik(C::max_rows * 128 * 4, 0xff), q(C::max_rows * P::q_columns * 2, 0xff),
          picks(std::size_t(C::max_rows) * pick_bytes, 0xff);
      for (std::size_t i = 0; i < how.rows.size(); ++i) {
        const int id = how.rows[i].id;
        if (id < 0) continue;
        const int layer = int(l);
        std::memcpy(&kv[i * 576 * 4], kv_of(id, layer, how.size).data(), 576 * 4);
        std::memcpy(&ik[i * 128 * 4], ik_of(id, layer, how.size).data(), 128 * 4);
        std::memcpy(&q[i * P::q_columns * 2], q_of(id, layer).data(), P::q_columns * 2);
        const std::vector<u32> picked = list_of(how, int(i), true);
        std::memcpy(&picks[i * pick_bytes], picked.data(), picked.size() * 4);
        const u32 count = u32(picked.size());
        std::memcpy(&picks[i * pick_bytes + C::index_topk * 4], &count, 4);
      }
      layer_entry e{};
      e.kind = how.kinds[l];
      const auto set = [&](int index, const auto& data, const char* name) {
        e.data[index] = put(data.data(), data.size() * sizeof(data[0]), name);
      };
      set(P::kv_data, kv, "kv"), set(P::ik_data, ik, "ik"), set(P::q_data, q, "q"), set(P::picks_data, picks, "picks");
      set(P::kv_norm, norm, "kv norm"), set(P::key_weight, key_weight, "key weight"), set(P::key_bias, key_bias, "key bias");
      set(P::w_uk, w_uk, "w_uk"), set(P::w_uv, w_uv, "w_uv");
      e.data[P::kv_cache] = cache;
      e.data[P::index_cache] = index;
      layers.push_back(e);
    }
    launch_params p{};
    p.state = static_cast<device_state*>(rm.state[0]);
    p.layers = reinterpret_cast<const layer_entry*>(put(layers.data(), layers.size() * sizeof(layer_entry), "layers"));
    p.row_slots = reinterpret_cast<const long long*>(put(slots.data(), slots.size() * 8, "row slots"));
    p.slots = static_cast<u8*>(rm.slots), p.arrivals = static_cast<u8*>(rm.arrivals);
    p.mailbox[0] = static_cast<u8*>(rm.mailbox[0]), p.peer_state[0] = p.state;
    p.batch.positions = reinterpret_cast<const long long*>(put(positions.data(), positions.size() * 8, "positions"));
    p.batch.list_starts = reinterpret_cast<const int*>(put(starts.data(), starts.size() * 4, "list starts"));
    p.batch.list = reinterpret_cast<const int*>(put(list.data(), list.size() * 4, "list"));
    p.batch.rope = reinterpret_cast<const float*>(put(rope.data(), rope.size() * 4, "rope"));
    p.batch.rope_positions = rope.size() / 64;
    p.batch.cache_slots = token_count;
    p.batch.kv_block_stride = block_stride, p.batch.kv_row_stride = row_stride, p.batch.index_block_stride = index_stride(how);
    p.batch.block_size = how.block_size;
    p.local_deadline_ns = p.peer_deadline_ns = 200'000'000'000;
    p.layer_count = int(layers.size());
    p.rows = int(how.rows.size());
    p.groups = how.groups;
    p.lds_bytes = T::lds_bytes;
    p.ring_limit = how.ring_limit;
    REQUIRE(launch<T, P>(m, p, how.blocks).text() == "ok");

    run_of r;
    r.report = m.run();
    r.bad_entries = p.state->bad_entries;
    for (std::size_t i = 0; i < how.rows.size(); ++i) {
      if (how.rows[i].id < 0) continue;
      const auto take = [&](int slot) {
        const u64 size = slot_row_bytes(P::info.slots[slot]);
        const u8* at = p.slots + memory::payload_offset(slot) + i * size;
        return bytes(at, at + size);
      };
      r.last.own[int(i)] = take(P::own), r.last.o[int(i)] = take(P::o);
      r.last.ql[int(i)] = take(P::ql), r.last.part[int(i)] = take(P::o_part);
    }
    r.last.kv_cache.assign(caches.back(), caches.back() + block_count * block_stride);
    r.last.index_cache.assign(index, index + block_count * index_stride(how));
    return r;
  }
};

#define MUST_RUN(o)         \
  do {                      \
    INFO((o).report.text);  \
    REQUIRE((o).report.ok); \
  } while (false)

}  // namespace monolayer::test
