// The whole-layer reference against golden decode traces, where there are any: what transformers computed in
// float32. The reference reaches 0.8e-6 for attention, 0.45e-6 for a layer's output and 0.3e-6 for the logits.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "reference/glm5.hpp"
#include "reference/golden.hpp"

namespace ref = monolayer::reference;

namespace {

std::vector<std::string> folders_or_skip() {
  auto folders = ref::find_golden_folders();
  if (folders.empty()) SKIP("no golden traces: set MONOLAYER_GOLDEN_DIR");
  return folders;
}

ref::batch first_rows(const ref::batch& b, int rows) {
  ref::batch part(rows, b.cols);
  std::copy_n(b.values.begin(), part.values.size(), part.values.begin());
  return part;
}

template <class T>
std::vector<T> sorted(std::vector<T> v) {
  std::sort(v.begin(), v.end());
  return v;
}

// A layer's own picks and results; a choice may differ only where float32 can't tell.
void check_layer(const ref::golden_layer& golden, const ref::layer_result& s) {
  for (int r = 0; r < s.out.rows; ++r) {
    if (!s.scores.empty() && s.lists[r] != golden.lists[r]) {
      REQUIRE(golden.lists[r].size() == s.lists[r].size());
      REQUIRE(ref::pick_error(s.scores[r], golden.lists[r]) < 1e-5);
    }
    if (golden.experts.empty()) continue;
    if (sorted(s.experts[r]) != sorted(golden.experts[r])) {
      REQUIRE(s.expert_margin[r] < 1e-5);
      continue;
    }
    for (std::size_t k = 0; k < golden.experts[r].size(); ++k) {
      const auto& picks = s.experts[r];
      const auto at = std::find(picks.begin(), picks.end(), golden.experts[r][k]) - picks.begin();
      REQUIRE(std::fabs(s.weights[r][at] - golden.expert_weights[r][k]) < 2e-6);
    }
  }
  REQUIRE(ref::relative_l2(s.attn, first_rows(golden.attn, s.attn.rows)) < 2e-6);
  REQUIRE(ref::relative_l2(s.out, first_rows(golden.out, s.out.rows)) < 1e-6);
}

// Each layer from the trace's own input, on the first tokens.
void check_trace(const ref::golden_trace& t, int tokens) {
  for (std::size_t i = 0; i < t.layers.size(); ++i) {
    INFO(t.name << ", layer " << i);
    const ref::golden_layer& golden = t.layers[i];
    const ref::token_lists lists(golden.lists.begin(), golden.lists.begin() + tokens);
    ref::step_options o;
    o.points = ref::glm5_rounding::exact();
    o.lists = golden.weights.indexer ? nullptr : &lists;
    check_layer(golden, ref::prefill(t.g, golden.weights, first_rows(t.input_of(i), tokens), o));
  }
  const auto logits = ref::logits_of(t, first_rows(t.layers.back().out, tokens));
  REQUIRE(ref::relative_l2(logits, first_rows(t.logits, tokens)) < 1e-6);
}

}  // namespace

TEST_CASE("each layer reproduces the golden traces", "[reference][golden]") {
  for (const auto& folder : folders_or_skip()) {
    const ref::golden_trace t = ref::load_golden(folder);
    // Past index_topk tokens there is something to choose.
    check_trace(t, std::min(t.embeddings.rows, t.g.index_topk + 24));
  }
}

TEST_CASE("golden tokens are the argmax of golden logits and embed as the checkpoint says",
          "[reference][golden]") {
  for (const auto& folder : folders_or_skip()) {
    const ref::golden_trace t = ref::load_golden(folder);
    INFO(t.name);
    std::vector<double> row(static_cast<std::size_t>(t.g.hidden));
    for (int i = 0; i < t.embeddings.rows; ++i) {
      t.embedding_table.decode_row(t.tokens[i], row.data());
      REQUIRE(std::equal(row.begin(), row.end(), t.embeddings.row(i)));
      if (i < t.prompt_len) continue;
      const double* logits = t.logits.row(i - 1);
      REQUIRE(std::max_element(logits, logits + t.logits.cols) - logits == t.tokens[i]);
    }
  }
}

TEST_CASE("all tokens of the golden traces, and all layers in a chain", "[.long]") {
  for (const auto& folder : folders_or_skip()) {
    const ref::golden_trace t = ref::load_golden(folder);
    check_trace(t, t.embeddings.rows);
    INFO(t.name);
    ref::batch h = t.embeddings;
    ref::token_lists lists;
    for (const auto& layer : t.layers) {
      ref::step_options o;
      o.points = ref::glm5_rounding::exact();
      if (!layer.weights.indexer) o.lists = &lists;
      auto s = ref::prefill(t.g, layer.weights, h, o);
      lists = s.lists;
      h = s.out;
      REQUIRE(ref::relative_l2(h, layer.out) < 2e-6);
    }
    const auto logits = ref::logits_of(t, h);
    REQUIRE(ref::relative_l2(logits, t.logits) < 2e-6);
    for (int i = t.prompt_len; i < t.embeddings.rows; ++i) {
      const double* row = logits.row(i - 1);
      REQUIRE(std::max_element(row, row + logits.cols) - row == t.tokens[i]);
    }
  }
}

// What the library's roundings cost, with the same picks: the rounding of a residual row alone is 1.65e-3.
TEST_CASE("the library's rounding points move a layer's output by a few thousandths", "[.long]") {
  for (const auto& folder : folders_or_skip()) {
    const ref::golden_trace t = ref::load_golden(folder);
    for (std::size_t i = 0; i < t.layers.size(); ++i) {
      const auto& layer = t.layers[i];
      const ref::batch h = ref::rounded_to_bf16(t.input_of(i));
      ref::step_options o;
      o.points = ref::glm5_rounding::exact();
      o.lists = &layer.lists;
      if (!layer.experts.empty()) o.experts = &layer.experts;
      const auto exact = ref::prefill(t.g, layer.weights, h, o);
      const auto error = [&](ref::glm5_rounding points) {
        o.points = points;
        return ref::relative_l2(ref::prefill(t.g, layer.weights, h, o).out, exact.out);
      };
      auto points = ref::glm5_rounding::with_out();
      const double both = error(points);
      points.mid = false;
      const double mid_exact = error(points);
      points.mid = true;
      points.cache = ref::cache_format::fp8;
      const double fp8_rows = error(points);
      INFO(t.name << ", layer " << i << ": bf16 " << both << ", mid not rounded " << mid_exact
                  << ", fp8 rows " << fp8_rows);
      REQUIRE((both > 2e-3 && both < 5e-3));
      REQUIRE((mid_exact > 1.6e-3 && mid_exact < both));
      REQUIRE((fp8_rows > both && fp8_rows < 1.5e-2));
    }
  }
}
