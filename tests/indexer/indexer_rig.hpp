// Runs of the indexer's program in the simulator, and keys encoded without the library.
#pragma once

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "indexer/indexer_program.hpp"
#include "indexer/top_k_rig.hpp"
#include "monolayer/host/launch_sim.hpp"
#include "reference/formats.hpp"

namespace indexer_test {

using namespace monolayer;

// ---- independent encoding of keys

/// 128 values to the bytes of slot `own`, and what those bytes mean.
template <class Format>
std::vector<u8> encode_key(const std::vector<float>& values, std::vector<double>* meaning = nullptr) {
  std::vector<u8> bytes(Format::own_bytes);
  double amax = 1e-4;
  for (float v : values) amax = std::max(amax, double(std::abs(v)));
  const double scale = std::exp2(std::ceil(std::log2(double(float(amax) / 448.0f))));
  if (meaning) meaning->resize(128);
  for (std::size_t d = 0; d < 128; ++d) {
    double stored;
    if constexpr (Format::fp8) {
      bytes[d] = reference::e4m3_encode(values[d] / scale);
      stored = reference::e4m3_decode(bytes[d]) * scale;
    } else {
      const u16 bits = reference::bf16_encode(values[d]);
      std::memcpy(&bytes[2 * d], &bits, 2);
      stored = reference::bf16_decode(bits);
    }
    if (meaning) (*meaning)[d] = stored;
  }
  if constexpr (Format::fp8) {
    const float s = float(scale);
    std::memcpy(&bytes[128], &s, 4);
  }
  return bytes;
}
/// Puts such a key at its place of a page, by the contract's own formulas.
template <class Format>
void put_key(u8* page, u32 block_size, u32 o, const std::vector<u8>& key) {
  for (u32 d = 0; d < 128; ++d) {
    if constexpr (std::is_same_v<Format, bf16_keys>)
      std::memcpy(page + o * 256 + 2 * d, &key[2 * d], 2);
    else if constexpr (std::is_same_v<Format, fp8_keys<plain>>)
      page[o * 128 + d] = key[d];
    else
      page[(o / 16) * 2048 + (d / 16) * 256 + (o % 16) * 16 + (d % 16)] = key[d];
  }
  if constexpr (Format::fp8) std::memcpy(page + block_size * 128 + 4 * o, &key[128], 4);
}

// ---- a model, and runs of it

struct test_row {
  int request;
  int position;  // < 0: a dead row
};

template <class P>
struct indexer_model {
  using format = typename P::format;
  u32 block_size, pages_a_request;
  u64 page_stride;
  int requests;
  std::vector<int> table;                          // [requests][pages_a_request]
  std::vector<std::vector<std::vector<u8>>> keys;  // [request][token]
  std::vector<std::vector<std::vector<double>>> meaning;
  std::mt19937_64 random;

  indexer_model(u32 bs, u64 padding, int n, u64 seed) : block_size(bs), requests(n), random(seed) {
    pages_a_request = (P::max_context + bs - 1) / bs;
    page_stride = format::page_bytes(bs) + padding;
    table.resize(std::size_t(n) * pages_a_request);
    for (std::size_t i = 0; i < table.size(); ++i) table[i] = int(i);
    std::shuffle(table.begin(), table.end(), random);
    keys.resize(std::size_t(n)), meaning.resize(std::size_t(n));
    for (int r = 0; r < n; ++r)
      for (int t = 0; t < P::max_context; ++t) {
        std::vector<float> v(128);
        const double size = std::exp2(double(random() % 7) - 3);
        for (float& x : v) x = float(size * normal());
        keys[r].emplace_back(), meaning[r].emplace_back();
        keys[r][t] = encode_key<format>(v, &meaning[r][t]);
      }
  }
  double normal() {
    double s = -6;
    for (int i = 0; i < 12; ++i) s += double(random() >> 11) * 0x1p-53;
    return s;
  }
  u64 slot(int request, int t) const {
    return u64(table[std::size_t(request) * pages_a_request + std::size_t(t) / block_size]) * block_size +
           u64(t) % block_size;
  }
};

/// q and w of a row follow from its request and position.
template <class P>
void make_query(const test_row& row, std::vector<u16>& q, std::vector<float>& w) {
  std::mt19937_64 random(u64(row.request) * 1000003 + u64(row.position) + 5);
  q.resize(P::heads * 128), w.resize(P::info.slots[P::iw].columns);
  for (u16& x : q) x = reference::bf16_encode((double(random() >> 11) * 0x1p-53 - 0.5) * 4);
  for (float& x : w) x = float(double(random() >> 11) * 0x1p-53 - 0.3);
}

struct run_setup {
  std::vector<test_row> rows;
  int blocks = 3;
  u64 seed = 1;
  bool with_requests = true;  // else row r is request r
  bool with_starts = false;   // list_starts of min(position + 1, top_k) entries a row
  bool with_copy = true;
  std::vector<std::pair<int, int>> broken_pages =
      {};  // (request, token): the page of that token is none of the caches'
};
struct run_result {
  sim::report report;
  std::vector<std::vector<float>> scores;  // by row
  std::vector<std::vector<u32>> picks;     // the slot's, through `take`
  std::vector<std::vector<int>> copy;      // the caller's: what lies in each row's range
  u32 bad_entries = 0;
};

template <class T, class P>
run_result run_indexer(const indexer_model<P>& model, const run_setup& how) {
  using format = typename P::format;
  using memory = slot_layout<P, T::arrivals>;
  sim::options o;
  o.seed = how.seed;
  o.stage_name = [](u32, u32 stage) { return std::string(P::info.kinds[0].stages[stage].name); };
  sim::machine m(o);
  const auto put = [&](const auto& v, const char* name, sim::memory kind = sim::memory::plain) {
    auto* at = m.allocate(0, v.size() * sizeof v[0] + 16, name, kind, sim::fill::poison);
    std::memcpy(at, v.data(), v.size() * sizeof v[0]);
    return static_cast<std::remove_cvref_t<decltype(v[0])>*>(at);
  };
  const std::size_t n = how.rows.size();
  std::vector<long long> positions(n), row_slots(n);
  std::vector<int> requests(n), table = model.table, starts(n + 1);
  std::vector<u16> q(P::rows * P::heads * 128, 0x7fc0);
  std::vector<float> w(P::rows * P::info.slots[P::iw].columns, NAN);
  std::vector<u8> own(P::rows * P::own_bytes, 0xff);
  std::vector<u8> cache(model.page_stride * model.table.size());
  for (int r = 0; r < model.requests; ++r)
    for (int t = 0; t < P::max_context; ++t)
      put_key<format>(&cache[model.slot(r, t) / model.block_size * model.page_stride], model.block_size,
                      u32(model.slot(r, t) % model.block_size), model.keys[r][t]);
  std::vector<u8> nan(format::own_bytes, 0xff);
  for (std::size_t i = 0; i < n; ++i) {
    const test_row& row = how.rows[i];
    starts[i + 1] = starts[i] + (row.position < 0 ? 0 : std::min(row.position + 1, P::top_k));
    positions[i] = row.position, row_slots[i] = -1, requests[i] = row.request;
    if (row.position < 0) continue;
    const u64 slot = model.slot(row.request, row.position);
    row_slots[i] = static_cast<long long>(slot);
    std::vector<u16> row_q;
    std::vector<float> row_w;
    make_query<P>(row, row_q, row_w);
    std::copy(row_q.begin(), row_q.end(), q.begin() + std::ptrdiff_t(i * row_q.size()));
    std::copy(row_w.begin(), row_w.end(), w.begin() + std::ptrdiff_t(i * row_w.size()));
    const auto& key = model.keys[row.request][row.position];
    std::copy(key.begin(), key.end(), own.begin() + std::ptrdiff_t(i * P::own_bytes + P::kv_bytes));
    put_key<format>(&cache[slot / model.block_size * model.page_stride], model.block_size, u32(slot % model.block_size),
                    nan);
  }
  for (auto [request, token] : how.broken_pages)
    table[std::size_t(request) * model.pages_a_request + std::size_t(token) / model.block_size] =
        token % 2 ? -1 : int(model.table.size());

  rank_memory r;
  r.slots = m.allocate(0, memory::payload_bytes, "slots", sim::memory::slot, sim::fill::poison);
  r.arrivals = m.allocate(0, memory::arrival_bytes, "arrivals", sim::memory::control, sim::fill::zero);
  r.state[0] = m.allocate(0, sizeof(device_state), "state", sim::memory::control, sim::fill::zero);
  annotate<T, P>(m, r, 0);
  std::vector<u32> taken(P::rows * (P::top_k + 4), 0xdddddddd);
  std::vector<int> copy(P::rows * P::top_k + 16, -7);
  layer_entry layer{};
  layer.data[P::iq_data] = put(q, "q"), layer.data[P::iw_data] = put(w, "w"),
  layer.data[P::own_data] = put(own, "own key");
  layer.data[P::cache_data] = put(cache, "cache");
  int* copy_at = put(copy, "copy", sim::memory::output);
  if (how.with_copy) layer.data[P::picks_data] = copy_at;
  u32* taken_at = put(taken, "taken", sim::memory::output);
  layer.output = taken_at;
  launch_params p{};
  p.state = p.peer_state[0] = static_cast<device_state*>(r.state[0]);
  p.layers = put(std::vector<layer_entry>{layer}, "layers");
  p.row_slots = put(row_slots, "row_slots");
  p.slots = static_cast<u8*>(r.slots), p.arrivals = static_cast<u8*>(r.arrivals);
  p.batch.positions = put(positions, "positions");
  p.batch.block_table = put(table, "block_table");
  p.batch.block_table_stride = model.pages_a_request;
  if (how.with_requests) p.batch.requests = put(requests, "requests");
  if (how.with_starts) p.batch.list_starts = put(starts, "list_starts");
  p.batch.rope_positions = u64(1) << 40;
  p.batch.cache_slots = model.table.size() * model.block_size;
  p.batch.index_block_stride = model.page_stride;
  p.batch.block_size = model.block_size;
  p.local_deadline_ns = p.peer_deadline_ns = 200'000'000'000;
  p.layer_count = 1, p.rows = int(n), p.groups = 1, p.lds_bytes = T::lds_bytes;
  m.launch<T>(0, how.blocks, p.lds_bytes, [p] { run_block<T, P>(p); });

  run_result result{m.run(), {}, {}, {}, 0};
  if (!result.report.ok) return result;
  result.bad_entries = p.state->bad_entries;
  for (std::size_t i = 0; i < n; ++i) {
    const std::size_t tokens = std::size_t(how.rows[i].position + 1);
    result.scores.emplace_back(tokens);
    if (tokens != 0)
      std::memcpy(result.scores[i].data(), p.slots + memory::payload_offset(P::scores) + i * P::max_context * 4,
                  tokens * 4);
    const u32* from = taken_at + i * (P::top_k + 4);
    result.picks.emplace_back();
    if (from[P::top_k] <= u32(P::top_k)) result.picks[i].assign(from, from + from[P::top_k]);
    const int begin = how.with_starts ? starts[i] : int(i) * P::top_k;
    const int end = how.with_starts ? starts[i + 1] : begin + P::top_k;
    result.copy.emplace_back(copy_at + begin, copy_at + end);
  }
  return result;
}

}  // namespace indexer_test
