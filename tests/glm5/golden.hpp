// Layers against the golden traces: fed with the trace's input, attending to the trace's picks, the output must be the
// trace's; with the layer's own picks it must be the reference's under the same picks, and bit for bit what a launch gives
// that is handed these picks as a list.
#pragma once

#include <cstdio>

#include "glm5/against_reference.hpp"
#include "reference/golden.hpp"

namespace monolayer::test {

/// Eight positions of a trace: 0 below index_topk, 1 at the end of the trace, 2 between, 3 around index_topk.
inline std::vector<int> trace_positions(int topk, int tokens, int part) {
  const std::vector<int> early = {0, 1, topk / 3, topk / 2, topk - 9, topk - 2, topk - 1, topk};
  const std::vector<int> around = {topk - 12, topk - 6, topk - 5, topk - 4, topk + 2, topk + 3, topk + 9, topk + 20};
  std::vector<int> late, middle;
  for (int i = 0; i < 8; ++i) {
    late.push_back(tokens - 1 - (7 - i) * 3);
    middle.push_back(topk + 1 + i * (tokens - topk - 30) / 8);
  }
  return part == 0 ? early : part == 1 ? late : part == 2 ? middle : around;
}

struct golden_errors {
  double trace = 0, value = 0, own = 0;  // worst row against the trace, worst value, worst launch with own picks
  int rows = 0, other_experts = 0;
};

/// Runs all layers of a trace at C's TP, eight rows of one request a launch. Caches of earlier positions are the
/// reference's.
template <class T, class C>
golden_errors check_golden(const reference::golden_trace& t, const std::vector<int>& parts, u64 seed, int blocks) {
  std::vector<reference::glm5_layer> weights;
  for (const auto& l : t.layers) weights.push_back(l.weights);
  const glm5_model<T, C> model(weights);
  const int tokens = int(t.tokens.size());
  layer_setup setup{.rows = {}, .blocks = blocks, .seed = seed, .paging = {}, .ring_limit = 0};
  setup.paging.requests = 1;
  setup.paging.tokens = tokens;
  layer_rig<T, C> rig(model, setup);
  REQUIRE(model.g.dense_width == t.g.dense_width);
  golden_errors worst;
  for (int layer = 0; layer < int(t.layers.size()); ++layer) {
    const reference::golden_layer& golden = t.layers[std::size_t(layer)];
    const std::vector<u16> input = reference::to_bf16(t.input_of(std::size_t(layer)));
    reference::step_options how;
    how.points = rounding_of<T, C>();
    how.lists = &golden.lists;
    const reference::layer_result all =
        reference::prefill(t.g, golden.weights, reference::from_bf16(input.data(), tokens, C::hidden), how);
    const auto caches = std::vector{reference::cache_of(all, tokens)};
    rig.s.set_cache(layer, 0, caches[0]);
    for (int part : parts) {
      const std::vector<int> positions = trace_positions(C::index_topk, tokens, part);
      std::vector<token_row> rows;
      std::vector<u16> values;
      std::vector<std::vector<int>> lists;
      for (int p : positions) {
        rows.push_back({0, p});
        values.insert(values.end(), input.begin() + long(p) * C::hidden, input.begin() + long(p + 1) * C::hidden);
        lists.push_back(golden.lists[std::size_t(p)]);
      }
      const layer_outcome o = rig.run(layer, rows, values, &lists);
      for (std::size_t i = 0; i < rows.size(); ++i) {
        const int p = positions[i];
        INFO(t.name << " layer " << layer << " position " << p);
        if (!golden.weights.dense && sorted(o.experts[i]) != sorted(golden.experts[std::size_t(p)])) {
          CHECK(all.expert_margin[std::size_t(p)] <= 1e-2);
          ++worst.other_experts;
          continue;
        }
        const double error = row_error(o.out[i], golden.out.row(p)), value = largest_error(o.out[i], golden.out.row(p));
        // The trace knows no FP8 caches: what they lose is theirs, and the reference holds such launches tightly.
        constexpr bool fp8 = C::kv_cache::element_bytes == 1;
        CHECK(error <= (fp8 ? 3e-2 : 8e-3));
        CHECK(value <= (fp8 ? 4e-2 : 0.015));
        worst.trace = std::max(worst.trace, error), worst.value = std::max(worst.value, value);
        ++worst.rows;
      }
      if (golden.weights.indexer)
        worst.own = std::max(worst.own, check_layer(rig, layer, rows, values, caches, 2e-3).out);
    }
  }
  CHECK(worst.other_experts * 20 <= worst.rows + worst.other_experts);
  std::printf("%-20s TP%d %-12s %3d rows: worst against the trace %.2e, value %.2e; other experts %d; own picks %.2e\n",
              t.name.c_str(), C::ranks, T::name, worst.rows, worst.trace, worst.value, worst.other_experts, worst.own);
  std::fflush(stdout);
  return worst;
}

}  // namespace monolayer::test
