// Launches of one layer, on the simulator or on a GPU, held against the float64 reference.
#pragma once

#include "glm5/checks.hpp"
#include "glm5/session.hpp"
#include "slices/picks.hpp"

namespace monolayer::test {

struct layer_setup {
  std::vector<token_row> rows;
  int blocks = 5;
  u64 seed = 1;
  paging_options paging = {};
  u32 ring_limit = 0;
};

/// What a launch left behind on rank 0; all ranks are checked to agree.
struct layer_outcome {
  std::vector<std::vector<u16>> out;          // [rows][hidden]; of dead rows the poison
  std::vector<std::vector<int>> picks;        // [rows]: tokens, of layers with an indexer
  reference::pick_table experts;              // [rows], of MoE layers
};

#if defined(MONOLAYER_TEST_ON_GPU)
using any_backend = hip_backend;
inline hip_backend make_backend(int ranks, u64, hip_backend*) { return hip_backend(ranks); }
inline void run_all(hip_backend& backend) { backend.finish(); }
constexpr u64 local_deadline_ns = 200'000'000, peer_deadline_ns = 2'000'000'000;
#else
using any_backend = sim_backend;
inline sim_backend make_backend(int ranks, u64 seed, sim_backend*) { return sim_backend({.ranks = ranks, .seed = seed}); }
inline void run_all(sim_backend& backend) {
  const sim::report report = backend.run();
  INFO(report.text);
  REQUIRE(report.ok);
}
constexpr u64 local_deadline_ns = 200'000'000'000, peer_deadline_ns = 200'000'000'000;
#endif

/// A machine with a model's layers, to launch one at a time.
template <class T, class C, class Running = T, class Program = glm5<C>>
struct layer_rig {
  using target = Running;
  using config = C;
  using session_type = glm5_session<any_backend, T, C, Running, Program>;
  const glm5_model<T, C>& source;
  layer_setup how;
  any_backend backend;
  session_type s;

  layer_rig(const glm5_model<T, C>& m, layer_setup setup)
      : source(m),
        how(std::move(setup)),
        backend(make_backend(C::ranks, how.seed, static_cast<any_backend*>(nullptr))),
        s(backend, m, how.paging) {}

  layer_outcome run(int layer, const std::vector<token_row>& rows, const std::vector<u16>& input,
                    const std::vector<std::vector<int>>* lists = nullptr) {
    s.set_rows(rows, input, lists != nullptr ? *lists : std::vector<std::vector<int>>{});
    const auto& l = source.layers[std::size_t(layer)];
    s.launch(int(rows.size()), layer, {l.kind(lists != nullptr)},
             {.blocks = how.blocks, .ring_limit = how.ring_limit, .local_deadline_ns = local_deadline_ns,
              .peer_deadline_ns = peer_deadline_ns});
    run_all(backend);
    return collect(layer, rows, lists == nullptr && l.has_indexer());
  }
  layer_outcome collect(int layer, const std::vector<token_row>& rows, bool picked) {
    layer_outcome o;
    const auto& l = source.layers[std::size_t(layer)];
    const std::vector<u16> out = s.output(0);
    for (int r = 1; r < C::ranks; ++r) CHECK(s.output(r) == out);
    for (int r = 0; r < C::ranks; ++r) CHECK(s.state(r).bad_entries == 0);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const auto at = out.begin() + long(i) * C::hidden;
      o.out.emplace_back(at, at + C::hidden);
      if (rows[i].request < 0) {
        CHECK(std::all_of(at, at + C::hidden, [](u16 x) { return x == 0x7fc1; }));
        o.picks.emplace_back(), o.experts.emplace_back();
        continue;
      }
      o.picks.push_back(picked ? s.picks(0, rows[i], int(i)) : std::vector<int>{});
      for (int r = 1; picked && r < C::ranks; ++r) CHECK(s.picks(r, rows[i], int(i)) == o.picks.back());
      o.experts.emplace_back();
      if (!l.dense()) {
        const std::vector<double> logits = s.logits(0, int(i));
        const std::vector<float> floats(logits.begin(), logits.end());
        o.experts.back() = picks_of(floats.data(), l.weights.bias, C::experts, C::top_k);
      }
    }
    return o;
  }
};

inline std::vector<int> sorted(std::vector<int> v) {
  std::sort(v.begin(), v.end());
  return v;
}

/// ||a - b|| / ||b|| of one row.
inline double row_error(const std::vector<u16>& a, const double* b) {
  double difference = 0, size = 0;
  for (std::size_t c = 0; c < a.size(); ++c) {
    const double d = reference::bf16_decode(a[c]) - b[c];
    difference += d * d, size += b[c] * b[c];
  }
  return std::sqrt(difference / size);
}
/// The largest |a - b| against the largest |b| of one row.
inline double largest_error(const std::vector<u16>& a, const double* b) {
  double difference = 0, size = 0;
  for (std::size_t c = 0; c < a.size(); ++c) {
    difference = std::max(difference, std::abs(reference::bf16_decode(a[c]) - b[c]));
    size = std::max(size, std::abs(b[c]));
  }
  return difference / size;
}

/// The rows of a launch as the reference takes them.
inline reference::query_rows live_queries(const std::vector<token_row>& rows, const std::vector<u16>& input, int hidden) {
  reference::query_rows q{{}, {}, {}};
  std::vector<double> values;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].request < 0) continue;
    q.positions.push_back(rows[i].position);
    q.requests.push_back(rows[i].request);
    for (int c = 0; c < hidden; ++c) values.push_back(reference::bf16_decode(input[i * std::size_t(hidden) + std::size_t(c)]));
  }
  q.h = reference::batch(int(q.positions.size()), hidden);
  q.h.values = std::move(values);
  return q;
}

/// Whether picks are the reference's, but for tokens whose scores are within 1% of the threshold's.
inline bool picks_agree(const std::vector<int>& picks, const std::vector<double>& scores, int k) {
  std::vector<double> order = scores;
  std::sort(order.begin(), order.end(), std::greater<>());
  const double threshold = int(order.size()) > k ? order[std::size_t(k) - 1] : order.back();
  if (picks.size() != std::min(order.size(), std::size_t(k))) return false;
  if (!std::is_sorted(picks.begin(), picks.end())) return false;
  const std::set<int> chosen(picks.begin(), picks.end());
  if (chosen.size() != picks.size()) return false;
  for (int t = 0; t < int(scores.size()); ++t) {
    if (std::abs(scores[std::size_t(t)] - threshold) <= 0.01 * std::abs(threshold)) continue;
    if (chosen.contains(t) != (scores[std::size_t(t)] > threshold)) return false;
  }
  return true;
}

/// The reference's rounding points for a config's caches.
template <class T, class C>
reference::glm5_rounding rounding_of() {
  reference::glm5_rounding r;
  r.cache = kv_format_of<C>();
  r.index_cache = key_format_of<C>();
  r.q_with_factors = glm5<C>::factors_in_q;
  r.range = C::index_topk / C::kv_splits;
  r.step = attention_areas<C, T>::step;
  return r;
}

/// Worst errors, each relative: of the result, and of the stages before it.
struct layer_errors {
  double out = 0, stages = 0;
  void take(const layer_errors& e) { out = std::max(out, e.out), stages = std::max(stages, e.stages); }
};

/// How far a launch is from the reference of geometry `g`, stage by stage.
struct layer_comparison {
  std::vector<int> live;        // rows of the launch
  reference::layer_result ref;  // of the live rows
  std::map<std::string, double> errors;  // relative, over all rows, by stage; the last one is "out"
};

/// Compares the launch that has just run with the reference under the same picks and experts: each stage given the
/// library's own slots before it, since flipped roundings cascade.
template <class Rig>
layer_comparison compare_layer(Rig& rig, int layer, const std::vector<token_row>& rows, const std::vector<u16>& input,
                               const std::vector<reference::request_cache>& caches, const reference::glm5_geometry& g,
                               const layer_outcome& o, const std::vector<std::vector<int>>* lists = nullptr) {
  using P = typename Rig::session_type::P;
  const auto& l = rig.source.layers[std::size_t(layer)];
  const bool own = l.has_indexer() && lists == nullptr;
  layer_comparison c;
  reference::step_options how;
  how.points = rounding_of<typename Rig::target, typename Rig::config>();
  how.tp = Rig::config::ranks;
  how.dense_slices = Rig::config::dense_slices;
  const reference::query_rows queries = live_queries(rows, input, g.hidden);
  reference::token_lists forced;
  reference::pick_table experts;
  std::vector<int>& live = c.live;
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (rows[i].request >= 0) {
      live.push_back(int(i));
      forced.push_back(own ? o.picks[i] : (*lists)[i]);
      experts.push_back(o.experts[i]);
    }
  how.lists = &forced;
  if (!l.dense()) how.experts = &experts;
  const reference::batch q_a = rig.s.slot(0, P::qa, live, 0, g.q_lora), q = rig.s.slot_of_all(P::q, live);
  const reference::batch ql = rig.s.slot_of_all(P::ql, live), attended = rig.s.slot_of_all(P::o, live);
  const reference::batch mid = rig.s.slot(0, P::mid, live, 0, g.hidden);
  const reference::batch index_q = own ? rig.s.slot(0, P::iq, live, 0, g.index_heads * g.index_dim) : reference::batch{};
  const reference::request_cache kept = rig.s.own(0, live, own);
  how.given = {.q_a = &q_a, .q = how.points.q_with_factors ? nullptr : &q, .rows = &kept.rows,
               .index_keys = own ? &kept.keys : nullptr, .index_q = own ? &index_q : nullptr, .ql = &ql, .o = &attended,
               .mid = &mid};
  reference::glm5_layer as_launched = l.weights;
  if (!own) as_launched.indexer.reset();
  c.ref = reference::layer_step(g, as_launched, queries, caches, how);
  const auto compare = [&](const char* name, const reference::batch& seen, const reference::batch& wanted) {
    c.errors[name] = reference::relative_l2(seen, wanted);
  };
  compare("q_a", q_a, c.ref.q_a);
  if (!how.points.q_with_factors) compare("q", q, c.ref.q);
  compare("cache rows", kept.rows, c.ref.rows);
  compare("ql", ql, c.ref.ql);
  compare("o", attended, c.ref.o);
  compare("mid", mid, c.ref.mid);
  if (own) {
    compare("index_q", index_q, c.ref.index_q);
    compare("index keys", kept.keys, c.ref.index_keys);
  }
  reference::batch out(int(live.size()), g.hidden);
  for (std::size_t i = 0; i < live.size(); ++i)
    for (int k = 0; k < g.hidden; ++k) out(int(i), k) = reference::bf16_decode(o.out[std::size_t(live[i])][std::size_t(k)]);
  compare("out", out, c.ref.out);
  return c;
}

/// The most that a stage may be off.
inline constexpr double stage_bound = 1e-3;

/// Launches a layer with its own picks (or with `lists`), and checks each stage against the reference, and the picks
/// against the scores of the reference. A layer that picked is launched again with these picks as a given list: the bits
/// must be the same. bound: of the result over all rows, most of it the last rounding to bf16; a single row may have a
/// quarter more.
template <class Rig>
layer_errors check_layer(Rig& rig, int layer, const std::vector<token_row>& rows, const std::vector<u16>& input,
                         const std::vector<reference::request_cache>& caches, double bound,
                         const std::vector<std::vector<int>>* lists = nullptr, bool again = true) {
  const auto& l = rig.source.layers[std::size_t(layer)];
  const auto& g = rig.source.g;
  const bool own = l.has_indexer() && lists == nullptr;
  const layer_outcome o = rig.run(layer, rows, input, own ? nullptr : lists);
  const layer_comparison c = compare_layer(rig, layer, rows, input, caches, g, o, lists);
  layer_errors errors;
  for (const auto& [name, error] : c.errors) {
    const bool out = name == "out";
    INFO("layer " << layer << " " << name);
    CHECK(error <= (out ? bound : stage_bound));
    (out ? errors.out : errors.stages) = std::max(out ? 0 : errors.stages, error);
  }
  for (std::size_t i = 0; i < c.live.size(); ++i) {
    const std::size_t row = std::size_t(c.live[i]);
    INFO("layer " << layer << " row " << row << " position " << rows[row].position);
    CHECK(row_error(o.out[row], c.ref.out.row(int(i))) <= 1.25 * bound);
    if (own) CHECK(picks_agree(o.picks[row], c.ref.scores[i], g.index_topk));
  }
  if (own && again) {
    std::vector<std::vector<int>> given(rows.size());
    for (std::size_t i = 0; i < rows.size(); ++i) given[i] = o.picks[i];
    const layer_outcome listed = rig.run(layer, rows, input, &given);
    CHECK(listed.out == o.out);
  }
  return errors;
}

}  // namespace monolayer::test
