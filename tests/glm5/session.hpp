// Running whole layers on a backend (slices/session.hpp says what one is): memory of all ranks, paged caches, lists.
#pragma once

#include <map>
#include <numeric>
#include <set>

#include "glm5/model.hpp"
#include "slices/session.hpp"

namespace monolayer::test {

/// A row of a launch: a token of a request, or nothing where request is -1.
struct token_row {
  int request = 0, position = 0;
};
inline constexpr token_row dead_row{-1, 0};

struct paging_options {
  u32 block_size = 16;
  int requests = 2;
  int tokens = 64;           // most tokens of a request
  u64 row_pad = 0, page_pad = 0;  // bytes that the engine leaves between rows, between pages
  bool all_in_order = false; // pages in order instead of shuffled
};

template <class Backend, class T, class C, class Running = T, class Program = glm5<C>>
struct glm5_session {
  using P = Program;
  using plan = monolayer::plan<Running, P>;
  using kv = typename C::kv_cache;
  using keys = typename C::index_cache;
  static constexpr int ranks = C::ranks, max_rows = C::max_rows, hidden = C::hidden;
  static constexpr auto payload_offsets = [] {
    std::array<u64, P::slot_count> all{};
    for (int i = 0; i < P::slot_count; ++i) all[std::size_t(i)] = slot_layout<P, Running::arrivals>::payload_offset(i);
    return all;
  }();

  struct rank_data {
    rank_memory memory;
    layer_entry* layers = nullptr;  // the table of the next launch
    u16 *input = nullptr, *output = nullptr;
    long long *row_slots = nullptr, *positions = nullptr;
    int *block_table = nullptr, *requests = nullptr, *list_starts = nullptr, *list = nullptr;
    float* rope = nullptr;
    std::vector<bound_glm5<C>> bound;  // by layer
  };
  Backend& backend;
  const glm5_model<T, C>& source;
  paging_options paging;
  int pages_of_request, pages;
  std::vector<int> table;  // [requests][pages_of_request]
  rank_data of[ranks];

  glm5_session(Backend& b, const glm5_model<T, C>& m, paging_options how = {}) : backend(b), source(m), paging(how) {
    pages_of_request = (how.tokens + int(how.block_size) - 1) / int(how.block_size);
    pages = how.requests * pages_of_request + 1;  // page 0 is nobody's
    table.resize(std::size_t(how.requests * pages_of_request));
    std::iota(table.begin(), table.end(), 1);
    reference::generator random(77);
    for (std::size_t i = table.size(); !how.all_in_order && i > 1; --i)
      std::swap(table[i - 1], table[std::size_t(random.next() % i)]);
    for (int r = 0; r < ranks; ++r) allocate(r);
    introduce_ranks(of);
    for (int r = 0; r < ranks; ++r) backend.template prepared<Running, P>(of[r].memory, r);
  }

  int slot_of(int request, int token) const {
    return table[std::size_t(request * pages_of_request + token / int(paging.block_size))] * int(paging.block_size) +
           token % int(paging.block_size);
  }
  u64 kv_row_stride() const { return kv::bytes + paging.row_pad; }
  u64 kv_page() const { return paging.block_size * kv_row_stride() + paging.page_pad; }
  u64 key_page() const { return align_up(keys::page_bytes(paging.block_size) + paging.page_pad, keys::alignment); }

  /// Puts tokens of a request into a layer's caches on all ranks: token t is row t, decoded values.
  void set_cache(int layer, int request, const reference::request_cache& cache) {
    std::vector<u8> rows(kv_page() * u64(pages)), key_bytes(key_page() * u64(pages));
    for (int r = 0; r < ranks; ++r) {
      const bound_glm5<C>& b = of[r].bound[std::size_t(layer)];
      backend.read(rows.data(), b.kv_cache, rows.size());
      backend.read(key_bytes.data(), b.index_cache, key_bytes.size());
      for (int t = 0; t < cache.rows.rows; ++t) encode_row(rows, slot_of(request, t), cache.rows.row(t));
      for (int t = 0; t < cache.keys.rows; ++t) encode_key(key_bytes, slot_of(request, t), cache.keys.row(t));
      backend.write(b.kv_cache, rows.data(), rows.size());
      backend.write(b.index_cache, key_bytes.data(), key_bytes.size());
    }
  }
  /// The bytes of the two caches at a token.
  std::pair<std::vector<u8>, std::vector<u8>> cached(int rank, int layer, int request, int token) const {
    const bound_glm5<C>& b = of[rank].bound[std::size_t(layer)];
    const int slot = slot_of(request, token), page = slot / int(paging.block_size), place = slot % int(paging.block_size);
    std::vector<u8> row(kv::bytes), whole(keys::page_bytes(paging.block_size)), key;
    backend.read(row.data(), static_cast<u8*>(b.kv_cache) + u64(page) * kv_page() + u64(place) * kv_row_stride(), row.size());
    backend.read(whole.data(), static_cast<u8*>(b.index_cache) + u64(page) * key_page(), whole.size());
    for (int d = 0; d < C::index_dim; ++d)
      for (u32 i = 0; i < (keys::fp8 ? 1u : 2u); ++i) key.push_back(whole[keys::value_offset(u32(place), u32(d)) + i]);
    if constexpr (keys::fp8)
      for (u32 i = 0; i < 4; ++i) key.push_back(whole[keys::scale_offset(paging.block_size, u32(place)) + i]);
    return {row, key};
  }

  /// Rows of the next launches on all ranks. Outputs are poisoned. `lists`: tokens of the row's request, for layers that
  /// attend to a given list.
  void set_rows(const std::vector<token_row>& rows, const std::vector<u16>& input,
                const std::vector<std::vector<int>>& lists = {}) {
    std::vector<long long> slots, positions;
    std::vector<int> requests, starts = {0}, list;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const bool live = rows[i].request >= 0;
      slots.push_back(live ? slot_of(rows[i].request, rows[i].position) : -1);
      positions.push_back(live ? rows[i].position : 0);
      requests.push_back(live ? rows[i].request : 0);
      if (live && i < lists.size())
        for (int token : lists[i]) list.push_back(slot_of(rows[i].request, token));
      starts.push_back(int(list.size()));
    }
    list.resize(std::max<std::size_t>(list.size(), 1));
    const std::vector<u16> poison(std::size_t(max_rows) * hidden, 0x7fc1);
    for (rank_data& d : of) {
      backend.write(d.input, input.data(), input.size() * 2);
      backend.write(d.output, poison.data(), poison.size() * 2);
      backend.write(d.row_slots, slots.data(), slots.size() * 8);
      backend.write(d.positions, positions.data(), positions.size() * 8);
      backend.write(d.requests, requests.data(), requests.size() * 4);
      backend.write(d.list_starts, starts.data(), starts.size() * 4);
      backend.write(d.list, list.data(), list.size() * 4);
    }
  }

  batch_view batch(int rank) const {
    const rank_data& d = of[rank];
    return {.positions = d.positions,
            .block_table = d.block_table,
            .block_table_stride = pages_of_request,
            .requests = d.requests,
            .list_starts = d.list_starts,
            .list = d.list,
            .rope = d.rope,
            .rope_positions = u64(paging.tokens),
            .cache_slots = u64(pages) * paging.block_size,
            .kv_block_stride = kv_page(),
            .kv_row_stride = kv_row_stride(),
            .index_block_stride = key_page(),
            .block_size = paging.block_size,
            .reserved = 0};
  }
  /// Enqueues `kinds.size()` layers from `first` on, as layers of these kinds, as one launch on every rank.
  void launch(int rows, int first, const std::vector<u64>& kinds, const run_options& o) {
    for (int r = 0; r < ranks; ++r) {
      std::vector<layer_entry> entries;
      for (std::size_t i = 0; i < kinds.size(); ++i) {
        bound_glm5<C> b = of[r].bound[std::size_t(first) + i];
        if (!glm5_host<T, C>::has_indexer(kinds[i])) b.picks_out = nullptr;
        entries.push_back(must(bind_glm5<T, C>(kinds[i], b, r)));
      }
      backend.write(of[r].layers, entries.data(), entries.size() * sizeof(layer_entry));
    }
    launch_only(rows, kinds, o);
  }
  /// The same with the table of layers that the last launch() left.
  void launch_only(int rows, const std::vector<u64>& kinds, const run_options& o) {
    for (int r = 0; r < ranks; ++r) {
      span_arguments a;
      a.layers = of[r].layers;
      a.kinds = kinds;
      a.input = of[r].input;
      a.output = of[r].output;
      a.row_slots = of[r].row_slots;
      a.batch = batch(r);
      a.rows = rows;
      a.rank = r;
      a.blocks = o.blocks;
      a.groups = o.groups;
      a.ring_limit = o.ring_limit;
      a.local_deadline_ns = o.local_deadline_ns;
      a.peer_deadline_ns = o.peer_deadline_ns;
      backend.template launch<Running, P>(must(bind<Running, P>(of[r].memory, a)), o.blocks);
    }
  }
  /// The output becomes the next launch's input.
  void feed_back() {
    for (rank_data& d : of) {
      const std::vector<u16> rows = fetch<u16>(d.output, std::size_t(max_rows) * hidden);
      backend.write(d.input, rows.data(), rows.size() * 2);
    }
  }

  std::vector<u16> output(int rank) const { return fetch<u16>(of[rank].output, std::size_t(max_rows) * hidden); }
  /// The newest picks of a row as the launch left them in its slot: tokens of the row's request.
  std::vector<int> picks(int rank, const token_row& row, int index) const {
    const std::size_t columns = std::size_t(P::info.slots[P::picks].columns);
    const std::vector<u32> all = fetch<u32>(
        static_cast<u8*>(of[rank].memory.slots) + payload_offsets[P::picks] + u64(index) * columns * 4, columns);
    std::map<int, int> token_at;
    for (int t = 0; t <= row.position; ++t) token_at[slot_of(row.request, t)] = t;
    std::vector<int> tokens;
    for (u32 i = 0; i < all[C::index_topk] && i < u32(C::index_topk); ++i) {
      const auto at = token_at.find(int(all[i]));
      tokens.push_back(at == token_at.end() ? -1 : at->second);
    }
    return tokens;
  }
  /// A row's router logits.
  std::vector<double> logits(int rank, int row) const {
    const slot_info& s = P::info.slots[P::logits];
    const std::vector<u32> words = fetch<u32>(static_cast<u8*>(of[rank].memory.slots) + payload_offsets[P::logits] +
                                                  u64(row) * slot_row_bytes(s), std::size_t(s.columns) * 2);
    std::vector<double> sums(C::experts);
    for (int e = 0; e < C::experts; ++e) {
      float sum = bits_to_float(words[std::size_t(e) * 2]);
      for (int split = 1; split < C::router_splits; ++split)
        sum += bits_to_float(words[std::size_t(split * P::padded_experts + e) * 2]);
      sums[std::size_t(e)] = double(sum);
    }
    return sums;
  }
  /// The newest values of a slot with one buffer: rows `at` of the launch, bf16 or f32, columns [first, + count).
  reference::batch slot(int rank, int number, const std::vector<int>& at, int first, int count) const {
    const slot_info& s = P::info.slots[number];
    reference::batch values(int(at.size()), count);
    for (std::size_t i = 0; i < at.size(); ++i) {
      const u8* from = static_cast<u8*>(of[rank].memory.slots) + payload_offsets[number] + u64(at[i]) * slot_row_bytes(s);
      if (s.type == element::bf16) {
        const std::vector<u16> row = fetch<u16>(from + first * 2, std::size_t(count));
        for (int c = 0; c < count; ++c) values(int(i), c) = reference::bf16_decode(row[std::size_t(c)]);
      } else {
        const std::vector<float> row = fetch<float>(from + first * 4, std::size_t(count));
        for (int c = 0; c < count; ++c) values(int(i), c) = double(row[std::size_t(c)]);
      }
    }
    return values;
  }
  /// The same of a slot that each rank has its own part of, side by side.
  reference::batch slot_of_all(int number, const std::vector<int>& at) const {
    const int count = P::info.slots[number].columns;
    reference::batch all(int(at.size()), count * ranks);
    for (int r = 0; r < ranks; ++r) {
      const reference::batch part = slot(r, number, at, 0, count);
      for (int i = 0; i < part.rows; ++i) std::copy_n(part.row(i), count, all.row(i) + r * count);
    }
    return all;
  }
  /// The cache rows and index keys in slot `own`, decoded.
  reference::request_cache own(int rank, const std::vector<int>& at, bool with_keys) const {
    reference::request_cache c{reference::batch(int(at.size()), kv::latent + kv::rope),
                               reference::batch(with_keys ? int(at.size()) : 0, C::index_dim)};
    for (std::size_t i = 0; i < at.size(); ++i) {
      const u64 bytes = slot_row_bytes(P::info.slots[P::own]);
      const std::vector<u8> row = fetch<u8>(static_cast<u8*>(of[rank].memory.slots) + payload_offsets[P::own] + u64(at[i]) * bytes, bytes);
      const auto bf16_at = [&](u64 byte) { return reference::bf16_decode(u16(row[byte] | row[byte + 1] << 8)); };
      for (int d = 0; d < c.rows.cols; ++d)
        c.rows(int(i), d) = kv::element_bytes == 1 ? reference::e4m3_decode(row[std::size_t(d)]) : bf16_at(u64(d) * 2);
      if (!with_keys) continue;
      float scale = 1;
      if constexpr (keys::fp8) std::memcpy(&scale, row.data() + kv::bytes + keys::own_scale, 4);
      for (int d = 0; d < C::index_dim; ++d)
        c.keys(int(i), d) = keys::fp8 ? reference::e4m3_decode(row[kv::bytes + std::size_t(d)]) * double(scale)
                                      : bf16_at(kv::bytes + u64(d) * 2);
    }
    return c;
  }
  device_state state(int rank) const {
    device_state s;
    backend.read(&s, of[rank].memory.state[rank], sizeof s);
    return s;
  }

 private:
  template <class V>
  std::vector<V> fetch(const void* from, std::size_t count) const {
    std::vector<V> v(count);
    backend.read(v.data(), from, count * sizeof(V));
    return v;
  }
  template <class V>
  V* put(int rank, const V* data, std::size_t count, const char* name, memory_use use = memory_use::constant) {
    V* at = static_cast<V*>(backend.allocate(rank, std::max<std::size_t>(count, 1) * sizeof(V), name, use));
    // New memory is zero: the experts that a test leaves out of a large layer need no page of it.
    constexpr std::size_t piece = (std::size_t(1) << 20) / sizeof(V);
    for (std::size_t i = 0; data != nullptr && i < count; i += piece) {
      const std::size_t n = std::min(piece, count - i);
      const auto* bytes = reinterpret_cast<const char*>(data + i);
      if (std::any_of(bytes, bytes + n * sizeof(V), [](char b) { return b != 0; })) backend.write(at + i, data + i, n * sizeof(V));
    }
    return at;
  }
  void encode_row(std::vector<u8>& bytes, int slot, const double* values) const {
    u8* at = bytes.data() + u64(slot) / paging.block_size * kv_page() + u64(slot) % paging.block_size * kv_row_stride();
    for (int c = 0; c < kv::latent + kv::rope; ++c) {
      if constexpr (kv::element_bytes == 1) {
        at[c] = reference::e4m3_encode(values[c]);
      } else {
        const u16 bits = reference::bf16_encode(values[c]);
        std::memcpy(at + c * 2, &bits, 2);
      }
    }
  }
  void encode_key(std::vector<u8>& bytes, int slot, const double* values) const {
    const u32 place = u32(slot) % paging.block_size;
    u8* at = bytes.data() + u64(slot) / paging.block_size * key_page();
    if constexpr (keys::fp8) {
      const reference::fp8_key coded = reference::encode_index_key(values, C::index_dim);
      for (int d = 0; d < C::index_dim; ++d) at[keys::value_offset(place, u32(d))] = coded.codes[std::size_t(d)];
      std::memcpy(at + keys::scale_offset(paging.block_size, place), &coded.scale, 4);
    } else {
      for (int d = 0; d < C::index_dim; ++d) {
        const u16 bits = reference::bf16_encode(values[d]);
        std::memcpy(at + keys::value_offset(place, u32(d)), &bits, 2);
      }
    }
  }
  void allocate(int r) {
    rank_data& d = of[r];
    rank_memory& m = d.memory;
    m.slots = backend.allocate(r, m.slots_bytes = plan::slots_bytes, "slots", memory_use::slots);
    m.arrivals = backend.allocate(r, m.arrivals_bytes = plan::arrivals_bytes, "arrivals", memory_use::state);
    m.mailbox[r] = backend.allocate(r, m.mailbox_bytes = plan::mailbox_bytes, "mailbox", memory_use::mailbox);
    m.state[r] = backend.allocate(r, m.state_bytes = plan::state_bytes, "state", memory_use::state);
    d.input = put<u16>(r, nullptr, std::size_t(max_rows) * hidden, "input");
    d.output = put<u16>(r, nullptr, std::size_t(max_rows) * hidden, "output", memory_use::output);
    d.row_slots = put<long long>(r, nullptr, max_rows, "row_slots");
    d.positions = put<long long>(r, nullptr, max_rows, "positions");
    d.requests = put<int>(r, nullptr, max_rows, "requests");
    d.list_starts = put<int>(r, nullptr, max_rows + 1, "list_starts");
    d.list = put<int>(r, nullptr, std::size_t(max_rows) * C::index_topk * 2, "list");
    d.block_table = put(r, table.data(), table.size(), "block_table");
    std::vector<float> rope;
    for (int p = 0; p < paging.tokens; ++p) {
      const std::vector<double> row = reference::rope_row(source.g, p);
      for (std::size_t i = 0; i < row.size(); ++i) rope.push_back(float(row[i]));
    }
    d.rope = put(r, rope.data(), rope.size(), "rope");
    d.layers = put<layer_entry>(r, nullptr, source.layers.size(), "layers");
    for (const auto& l : source.layers) {
      bound_glm5<C> b;
      for (int id = 0; id < P::data_count; ++id) {
        const packed_matrix& p = l.packed[std::size_t(r)][std::size_t(id)];
        if (!p.bytes.empty())
          b.data[std::size_t(id)] = {p.header, put(r, p.bytes.data(), p.bytes.size(), glm5_host<T, C>::name_of(id))};
      }
      b.kv_cache = backend.allocate(r, kv_page() * u64(pages), "kv_cache", memory_use::output);
      b.index_cache = backend.allocate(r, key_page() * u64(pages), "index_cache", memory_use::output);
      d.bound.push_back(b);
    }
  }
};

}  // namespace monolayer::test
