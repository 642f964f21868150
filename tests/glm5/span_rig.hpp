// Spans of whole layers in the simulator, described by a setup: which rows, which launches, which machine.
// Rows carry ids, and what a row is depends on its id alone: so its bits, in the output and in the caches,
// can be compared between runs that place it elsewhere, among other rows, or whose caches hold what the other
// rows wrote earlier.
#pragma once

#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <sstream>

#include "glm5/session.hpp"
#include "slices/sim_backend.hpp"

namespace monolayer::test {

/// The smallest whole layer that still has several heads, splits, stripes, experts and waves at work.
template <int TP>
struct nano_layer : micro_layer<TP> {
  static constexpr int hidden = 384;  // 24 tiles of the sums, so up to 24 blocks
  static constexpr int router_splits = 3;
  static constexpr int heads = 4 / TP;
  static constexpr int heads_at_once = heads;
  static constexpr int index_heads = 4;
  static constexpr int kv_splits = 4;
  static constexpr int index_stripes = 2;
  static constexpr int max_context = 256;
  static constexpr int expert_width = 128 / TP;
};

/// A layer of a model: whether its MLP is dense, whether it has an indexer, and whether a span uses that.
struct layer_plan {
  bool dense, indexer, shares;
  constexpr layer_plan(bool is_dense, bool own_picks, bool has_indexer)
      : dense(is_dense), indexer(has_indexer), shares(!own_picks) {}
};
inline constexpr layer_plan dense_layer{true, true, true}, moe_layer{false, true, true},
    sharing_layer{false, false, false}, dense_sharing_layer{true, false, false},
    could_pick_layer{false, false, true};  // has an indexer, and shares all the same

struct launch_of {
  int first, count;
};

struct span_setup {
  std::vector<int> ids;             // of the rows, -1: a dead row; empty: all ids in order
  std::vector<launch_of> launches;  // empty: one over all layers
  int blocks = 3, groups = 1;
  u32 ring_limit = 0;
  u64 seed = 1;
  u64 epoch = 0;  // of the newest layer before the first launch
  int repeats = 1;
  bool expect_readers = true;
  paging_options paging = {.requests = 4, .tokens = 96};
  std::vector<u64> kinds = {};  // empty: the model's
  std::vector<sim::fault> faults = {};
  bool deadlock_is_error = true;
  u64 local_deadline_ns = 200'000'000'000, peer_deadline_ns = 200'000'000'000;
};

inline span_setup with_ids(std::vector<int> ids) {
  span_setup s;
  s.ids = std::move(ids);
  return s;
}

/// What the caches hold of a token.
struct token_bytes {
  std::vector<u8> row, key;
  friend bool operator==(const token_bytes&, const token_bytes&) = default;
};

struct span_outcome {
  sim::report report;
  std::vector<int> ids;
  std::vector<std::vector<u16>> out;              // by rank: [max_rows][hidden]
  std::vector<std::vector<token_bytes>> written;  // by layer and row; empty of dead rows
  std::vector<std::vector<int>> picks;            // by row: tokens, as the newest layer that picks left them
  std::vector<device_state> states;
  std::string stray;  // not empty: a byte of a cache changed that is nobody's to write, or ranks that differ
};

/// The rows: several requests, several positions of one, with fewer tokens than index_topk, as many, and
/// more. Those from 8 on are for steps of more rows than a launch takes.
inline constexpr int row_ids = 13;
inline constexpr token_row row_of_id[row_ids] = {{0, 0},  {1, 5},  {1, 62}, {1, 63}, {1, 64}, {2, 79}, {2, 95},
                                                 {3, 72}, {0, 1},  {1, 65}, {1, 66}, {3, 73}, {3, 74}};

/// Random layers in the formats of C.
template <class C>
std::vector<reference::glm5_layer> weights_of(const std::vector<layer_plan>& plans, u64 seed,
                                              reference::glm5_layer_options options,
                                              const std::function<void(reference::glm5_layer&)>& plant) {
  const reference::glm5_layer_options formats = glm5_formats_of<C>();
  options.attention = formats.attention, options.index = formats.index;
  options.routed = formats.routed, options.shared = formats.shared, options.dense_mlp = formats.dense_mlp;
  std::vector<reference::glm5_layer> all;
  for (std::size_t l = 0; l < plans.size(); ++l) {
    options.dense = plans[l].dense, options.indexer = plans[l].indexer;
    all.push_back(reference::make_glm5_layer(glm5_geometry_of<C>(), seed * 100 + l, options));
    if (plant) plant(all.back());
  }
  return all;
}

template <class T, class C, class Running = T, class Program = glm5<C>>
struct span_rig {
  using P = Program;
  using session_type = glm5_session<sim_backend, T, C, Running, Program>;
  using keys = typename C::index_cache;
  static constexpr int ranks = C::ranks, tokens = 96, requests = 4;

  std::vector<layer_plan> plans;
  glm5_model<T, C> source;
  std::vector<u64> kinds;
  std::vector<u16> inputs;                                    // [id][hidden]
  std::vector<std::vector<std::vector<token_bytes>>> cached;  // by layer, request, token: before any launch

  explicit span_rig(std::vector<layer_plan> layers, u64 seed = 1, reference::glm5_layer_options options = {},
                    double size = 1, const std::function<void(reference::glm5_layer&)>& plant = {})
      : plans(std::move(layers)), source(weights_of<C>(plans, seed, options, plant)) {
    inputs = reference::to_bf16(reference::random_activations(row_ids, C::hidden, seed + 77, size));
    for (std::size_t l = 0; l < plans.size(); ++l)
      kinds.push_back(plans[l].dense ? (plans[l].shares ? P::dense_listed : P::dense)
                                     : (plans[l].shares ? P::moe_listed : P::moe));
    for (std::size_t l = 0; l < plans.size(); ++l) {
      cached.emplace_back();
      for (int r = 0; r < requests; ++r) {
        const auto values = reference::random_cache(tokens, 576, C::index_dim, seed * 1000 + l * 10 + u64(r),
                                                    kv_format_of<C>(), key_format_of<C>());
        cached.back().emplace_back();
        for (int t = 0; t < tokens; ++t) cached.back().back().push_back(encode(values, t));
      }
    }
  }

  /// The machine of a setup with everything allocated, for tests that launch by hand.
  struct live {
    const span_rig& of;
    span_setup how;
    sim_backend backend;
    session_type s;
    /// What rows that are not live have written to the caches in launches before: by layer, id.
    const span_outcome* earlier;
    std::vector<std::vector<std::vector<u8>>> before;  // by rank and cache (layer * 2 + which): bytes

    live(const span_rig& r, span_setup h, const span_outcome* others = nullptr)
        : of(r),
          how(std::move(h)),
          backend(options_of(how)),
          s(backend, r.source, how.paging),
          earlier(others) {
      if (how.ids.empty()) how.ids = {0, 1, 2, 3, 4, 5, 6, 7};
      if (how.launches.empty()) how.launches = {{0, int(r.plans.size())}};
      if (how.kinds.empty()) how.kinds = r.kinds;
      for (int i = 0; i < ranks; ++i) {
        if (how.expect_readers)
          backend.machine.expect_readers(s.of[i].memory.mailbox[i], s.of[i].memory.mailbox_bytes, 1);
        state(i).epoch = how.epoch;
      }
      for (const sim::fault& f : how.faults) backend.machine.inject(f);
      set_rows(how.ids);
    }
    device_state& state(int rank) { return *static_cast<device_state*>(s.of[rank].memory.state[rank]); }
    std::vector<token_row> rows() const {
      std::vector<token_row> v;
      for (int id : how.ids) v.push_back(id < 0 ? dead_row : row_of_id[id]);
      return v;
    }
    run_options options() const {
      return {how.blocks, how.groups, how.ring_limit, how.local_deadline_ns, how.peer_deadline_ns};
    }
    /// Rows, inputs and caches as they are before a step of `ids`: everything in the caches that the rows may not read
    /// is NaN, slot 0, padding and their own tokens included.
    void set_rows(const std::vector<int>& ids) {
      fill_caches(ids);
      place_rows(ids);
    }
    void fill_caches(const std::vector<int>& ids) {
      for (int r = 0; r < ranks; ++r)
        for (int l = 0; l < int(of.plans.size()); ++l) fill_cache(ids, r, l);
    }
    /// Rows and inputs; the caches stay as they are.
    void place_rows(const std::vector<int>& ids) {
      how.ids = ids;
      std::vector<u16> input(std::size_t(C::max_rows) * C::hidden, 0x7fc2);  // dead rows hold NaN
      for (std::size_t i = 0; i < ids.size(); ++i)
        if (ids[i] >= 0)
          std::copy_n(of.inputs.begin() + long(ids[i]) * C::hidden, C::hidden,
                      input.begin() + long(i) * C::hidden);
      s.set_rows(rows(), input);
      before = snapshot();
    }
    void launch(const launch_of& part) {
      s.launch(int(how.ids.size()), part.first,
               {how.kinds.begin() + part.first, how.kinds.begin() + part.first + part.count}, options());
    }
    /// Runs the launches one after the other; each one's output is the next one's input, and a layer that
    /// shares picks with one of an earlier launch gets them as a list.
    sim::report run() {
      sim::report report;
      for (std::size_t i = 0; i < how.launches.size(); ++i) {
        if (i != 0) {
          std::vector<std::vector<int>> lists;
          for (std::size_t row = 0; row < how.ids.size(); ++row) lists.push_back(picks_of_row(0, int(row)));
          s.set_rows(rows(), s.output(0), lists);
        }
        launch(how.launches[i]);
        report = backend.run();
        if (!report.ok) break;
      }
      return report;
    }
    std::vector<int> picks_of_row(int rank, int row) const {
      const int id = how.ids[std::size_t(row)];
      return id < 0 ? std::vector<int>{} : s.picks(rank, row_of_id[id], row);
    }
    span_outcome collect(sim::report r) {
      span_outcome o;
      o.report = std::move(r);
      o.ids = how.ids;
      for (int i = 0; i < ranks; ++i) o.out.push_back(s.output(i)), o.states.push_back(s.state(i));
      for (int row = 0; row < int(how.ids.size()); ++row) o.picks.push_back(picks_of_row(0, row));
      // Own tokens are taken out of the difference; what is left must be as it was.
      auto expected = before;
      for (int l = 0; l < int(of.plans.size()); ++l) {
        o.written.emplace_back();
        for (int id : how.ids) {
          o.written.back().emplace_back();
          if (id < 0) continue;
          const token_row t = row_of_id[id];
          for (int rank = 0; rank < ranks; ++rank) {
            const auto [kv, key] = s.cached(rank, l, t.request, t.position);
            const token_bytes seen{kv, picks(l) ? key : std::vector<u8>{}};
            if (rank == 0) o.written.back().back() = seen;
            if (seen != o.written.back().back()) o.stray = "ranks wrote different bytes";
            put(expected[std::size_t(rank)], l, t, seen);
          }
        }
      }
      if (snapshot() != expected) o.stray = "a byte of a cache changed that is no row's own";
      return o;
    }
    bool picks(int layer) const {
      return how.kinds[std::size_t(layer)] == P::dense || how.kinds[std::size_t(layer)] == P::moe;
    }
    /// All caches of all ranks.
    std::vector<std::vector<std::vector<u8>>> snapshot() const {
      std::vector<std::vector<std::vector<u8>>> all;
      for (int r = 0; r < ranks; ++r) {
        all.emplace_back();
        for (const auto& b : s.of[r].bound) {
          all.back().push_back(bytes_at(b.kv_cache, s.kv_page() * u64(s.pages)));
          all.back().push_back(bytes_at(b.index_cache, s.key_page() * u64(s.pages)));
        }
      }
      return all;
    }
    /// The same with the live rows' own tokens zeroed: what no launch of these rows may change.
    std::vector<std::vector<std::vector<u8>>> others(std::vector<std::vector<std::vector<u8>>> caches) const {
      const token_bytes zeros{std::vector<u8>(C::kv_cache::bytes),
                              std::vector<u8>(C::index_dim * (keys::fp8 ? 1 : 2) + (keys::fp8 ? 4 : 0))};
      for (auto& rank : caches)
        for (int l = 0; l < int(of.plans.size()); ++l)
          for (int id : how.ids)
            if (id >= 0) put(rank, l, row_of_id[id], zeros);
      return caches;
    }
    static std::vector<u8> bytes_at(const void* at, u64 n) {
      return {static_cast<const u8*>(at), static_cast<const u8*>(at) + n};
    }

   private:
    void put(std::vector<std::vector<u8>>& caches, int layer, const token_row& t,
             const token_bytes& b) const {
      put(caches[std::size_t(layer) * 2].data(), caches[std::size_t(layer) * 2 + 1].data(), t, b);
    }
    void put(u8* kv, u8* index, const token_row& t, const token_bytes& b) const {
      const int slot = s.slot_of(t.request, t.position), size = int(s.paging.block_size);
      const u32 page = u32(slot / size), place = u32(slot % size);
      std::copy(b.row.begin(), b.row.end(), kv + page * s.kv_page() + place * s.kv_row_stride());
      if (b.key.empty()) return;
      u8* at = index + page * s.key_page();
      constexpr u32 element = keys::fp8 ? 1 : 2;
      for (u32 d = 0; d < u32(C::index_dim); ++d)
        std::copy_n(b.key.begin() + d * element, element, at + keys::value_offset(place, d));
      if constexpr (keys::fp8)
        std::copy_n(b.key.begin() + C::index_dim, 4, at + keys::scale_offset(u32(size), place));
    }
    void fill_cache(const std::vector<int>& ids, int rank, int layer) {
      const auto& b = s.of[rank].bound[std::size_t(layer)];
      u8 *kv = static_cast<u8*>(b.kv_cache), *index = static_cast<u8*>(b.index_cache);
      std::fill_n(kv, s.kv_page() * u64(s.pages), u8(0xff));
      std::fill_n(index, s.key_page() * u64(s.pages), u8(0xff));
      int last[requests] = {-1, -1, -1, -1};
      bool own[requests][tokens] = {};
      for (int id : ids)
        if (id >= 0) {
          const token_row t = row_of_id[id];
          last[t.request] = std::max(last[t.request], t.position);
          own[t.request][t.position] = true;
        }
      for (int r = 0; r < requests; ++r)
        for (int t = 0; t < last[r]; ++t)
          if (!own[r][t]) put(kv, index, {r, t}, earlier_bytes(layer, {r, t}));
    }
    const token_bytes& earlier_bytes(int layer, const token_row& t) const {
      for (std::size_t i = 0; earlier != nullptr && i < earlier->ids.size(); ++i)
        if (const int id = earlier->ids[i];
            id >= 0 && row_of_id[id].request == t.request && row_of_id[id].position == t.position)
          return earlier->written[std::size_t(layer)][i];
      return of.cached[std::size_t(layer)][std::size_t(t.request)][std::size_t(t.position)];
    }
    static sim::options options_of(const span_setup& h) {
      sim::options o;
      o.ranks = ranks;
      o.seed = h.seed;
      o.groups = h.groups;
      o.deadlock_is_error = h.deadlock_is_error;
      o.stage_name = [](u32, u32 stage) { return "stage " + std::to_string(stage); };
      return o;
    }
  };

  span_outcome run(const span_setup& how, const span_outcome* others = nullptr) const {
    live l(*this, how, others);
    sim::report r;
    for (int i = 0; i < how.repeats; ++i) {
      if (i != 0) l.set_rows(l.how.ids);
      r = l.run();
      if (!r.ok) break;
    }
    return l.collect(std::move(r));
  }

  /// Empty if live rows have the bits that `expected` has for their ids, in the output, the caches and the
  /// picks, and everything else was left alone.
  std::string difference(const span_outcome& o, const span_outcome& expected) const {
    std::ostringstream text;
    for (int row = 0; row < C::max_rows; ++row) {
      const int id = row < int(o.ids.size()) ? o.ids[std::size_t(row)] : -1;
      const auto at = std::find(expected.ids.begin(), expected.ids.end(), id);
      if (id >= 0 && at == expected.ids.end()) return "no such row was expected";
      const auto there = std::size_t(at - expected.ids.begin());
      for (int r = 0; r < ranks; ++r)
        for (std::size_t c = 0; c < std::size_t(C::hidden); ++c) {
          const u16 seen = o.out[std::size_t(r)][std::size_t(row) * C::hidden + c];
          const u16 wanted = id < 0 ? u16(0x7fc1) : expected.out[std::size_t(r)][there * C::hidden + c];
          if (seen == wanted) continue;
          text << "output of rank " << r << ", row " << row << " (id " << id << "), column " << c << ": "
               << std::hex << seen << " instead of " << wanted;
          return text.str();
        }
      if (id < 0) continue;
      for (std::size_t l = 0; l < plans.size(); ++l)
        if (o.written[l][std::size_t(row)] != expected.written[l][there]) {
          text << "cache bytes of layer " << l << ", row " << row << " (id " << id << ")";
          return text.str();
        }
      if (o.picks[std::size_t(row)] != expected.picks[there]) return "picks of row " + std::to_string(row);
    }
    for (int r = 1; r < ranks; ++r)
      if (o.out[std::size_t(r)] != o.out[0]) return "the ranks' outputs differ";
    for (const device_state& state : o.states)
      if (state.bad_entries != 0) return "entries were counted as bad";
    return o.stray;
  }

 private:
  static token_bytes encode(const reference::request_cache& values, int t) {
    token_bytes b;
    const auto bf16s = [](const double* from, int n, std::vector<u8>& to) {
      for (int d = 0; d < n; ++d) {
        const u16 bits = reference::bf16_encode(from[d]);
        to.push_back(u8(bits)), to.push_back(u8(bits >> 8));
      }
    };
    if constexpr (C::kv_cache::element_bytes == 1)
      for (int d = 0; d < 576; ++d) b.row.push_back(reference::e4m3_encode(values.rows(t, d)));
    else
      bf16s(values.rows.row(t), 576, b.row);
    if constexpr (keys::fp8) {
      const reference::fp8_key k = reference::encode_index_key(values.keys.row(t), C::index_dim);
      b.key.assign(k.codes.begin(), k.codes.end());
      b.key.resize(C::index_dim + 4);
      std::memcpy(b.key.data() + C::index_dim, &k.scale, 4);
    } else {
      bf16s(values.keys.row(t), C::index_dim, b.key);
    }
    return b;
  }
};

#define MUST_RUN(o)         \
  do {                      \
    INFO((o).report.text);  \
    REQUIRE((o).report.ok); \
  } while (false)

}  // namespace monolayer::test
