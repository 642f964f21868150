// Self-tests of slice B of the reference: routing, tensor parallelism, rounding points, spans of layers.
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <limits>
#include <set>
#include <stdexcept>
#include <vector>

#include "reference/slices.hpp"

namespace ref = monolayer::reference;

namespace {

// Agreement of two computations but for the order of their double sums.
constexpr double order_of_sums = 1e-12;

ref::rounding no_wire() {
  ref::rounding points;
  points.wire = false;
  return points;
}

void set_bf16(ref::matrix& m, int r, int c, std::uint16_t bits) {
  m.row_data(r)[2 * c] = static_cast<std::uint8_t>(bits);
  m.row_data(r)[2 * c + 1] = static_cast<std::uint8_t>(bits >> 8);
}

void copy_row(ref::matrix& m, int from, int to) {
  for (int c = 0; c < m.cols; ++c) set_bf16(m, to, c, static_cast<std::uint16_t>(m.code(from, c)));
}

}  // namespace

TEST_CASE("slice B is its formula", "[reference]") {
  const ref::geometry g = ref::small();
  for (const ref::format fmt : ref::all_formats) {
    INFO(ref::name_of(fmt));
    const ref::layer_b layer = ref::make_layer_b(g, 51, {.routed = fmt, .shared = ref::format::bf16});
    const ref::batch h = ref::random_activations(2, g.hidden, 52);
    const auto s = ref::slice_b(g, layer, h, 1, nullptr, ref::rounding::exact());
    for (int r = 0; r < h.rows; ++r) {
      std::vector<double> out(g.hidden);
      for (int c = 0; c < g.hidden; ++c) out[c] = h(r, c);
      double chosen = 0;
      for (const int e : s.picks[r]) chosen += 1 / (1 + std::exp(-s.logits(r, e)));
      for (int k = 0; k <= g.top_k; ++k) {
        const ref::expert& e = k == g.top_k ? layer.shared() : layer.get(s.picks[r][k]);
        const double w = k == g.top_k ? 1 : 2.5 / chosen / (1 + std::exp(-s.logits(r, s.picks[r][k])));
        if (k < g.top_k) REQUIRE(std::fabs(w - s.weights[r][k]) < order_of_sums);
        for (int i = 0; i < g.expert_width; ++i) {
          double gate = 0, up = 0;
          for (int c = 0; c < g.hidden; ++c) {
            gate += s.y(r, c) * e.gate.at(i, c);
            up += s.y(r, c) * e.up.at(i, c);
          }
          const double act = gate / (1 + std::exp(-gate)) * up * w;
          for (int c = 0; c < g.hidden; c += 101) out[c] += act * e.down.at(c, i);
        }
      }
      for (int c = 0; c < g.hidden; c += 101) REQUIRE(std::fabs(out[c] - s.out(r, c)) < 1e-11);
    }
    const auto rounded = ref::slice_b(g, layer, h);
    const double error = ref::relative_l2(rounded.out, s.out);
    REQUIRE(error > 1e-5);
    REQUIRE(error < 1e-2);
  }
}

TEST_CASE("ranks sum to the whole", "[reference]") {
  const ref::geometry g = ref::small();
  const ref::batch h = ref::random_activations(3, g.hidden, 61);
  for (const ref::format fmt : ref::all_formats) {
    INFO(ref::name_of(fmt));
    const ref::layer_b layer =
        ref::make_layer_b(g, 62, {.routed = fmt, .shared = fmt, .how = {false, true, true}});
    const auto whole = ref::slice_b(g, layer, h, 1, nullptr, no_wire());
    for (const int tp : {2, 4, 8}) {
      const auto split = ref::slice_b(g, layer, h, tp, nullptr, no_wire());
      REQUIRE(split.picks == whole.picks);
      REQUIRE(ref::relative_l2(split.sum, whole.sum) < order_of_sums);
      const double wire = ref::relative_l2(ref::slice_b(g, layer, h, tp).sum, whole.sum);
      REQUIRE(wire > 1e-5);
      REQUIRE(wire < 1e-2);
    }
    // The same from the ranks' own parts, one expert alone.
    std::vector<ref::batch> once(1, ref::batch(h.rows, g.hidden)), parts(1, ref::batch(h.rows, g.hidden));
    const std::vector<ref::detail::served> rows{{0, 0.75}, {2, 1.5}};
    ref::detail::add_expert(layer.get(3), whole.y, rows, true, once);
    for (int rank = 0; rank < 4; ++rank) {
      ref::detail::add_expert(ref::expert_of_rank(layer.get(3), rank, 4), whole.y, rows, true, parts);
    }
    REQUIRE(ref::relative_l2(parts[0], once[0]) < order_of_sums);
  }
}

TEST_CASE("picks come in order, ties to the smallest index, NaN never", "[reference]") {
  const ref::geometry g = ref::small();
  ref::layer_b layer(g, 71);
  const ref::batch h = ref::random_activations(4, g.hidden, 72);
  // Experts 2, 9 and 13 score the same, above all others; 6 and 11 the same, below them.
  copy_row(layer.router, 2, 9);
  copy_row(layer.router, 2, 13);
  copy_row(layer.router, 6, 11);
  layer.bias[2] = layer.bias[9] = layer.bias[13] = 3;
  layer.bias[6] = layer.bias[11] = 1.5;
  const auto tied = ref::slice_b(g, layer, h);
  for (int r = 0; r < h.rows; ++r) {
    REQUIRE(tied.picks[r] == std::vector<int>{2, 9, 13, 6});
    REQUIRE(tied.margin[r] == 0);
    double sum = 0;
    for (const double w : tied.weights[r]) sum += w;
    REQUIRE(std::fabs(sum - 2.5) < order_of_sums);
    REQUIRE(tied.weights[r][0] == tied.weights[r][2]);  // the bias has no part in the weights
  }
  // A NaN in a router row, and one in a bias.
  set_bf16(layer.router, 9, 0, 0x7fc0);
  layer.bias[6] = std::numeric_limits<float>::quiet_NaN();
  const auto holes = ref::slice_b(g, layer, h);
  for (int r = 0; r < h.rows; ++r) {
    REQUIRE(std::isnan(holes.logits(r, 9)));
    REQUIRE((holes.picks[r][0] == 2 && holes.picks[r][1] == 13 && holes.picks[r][2] == 11));
    for (const int e : holes.picks[r]) REQUIRE((e != 9 && e != 6));
    for (int c = 0; c < g.hidden; ++c) REQUIRE(std::isfinite(holes.out(r, c)));
  }
  // Fewer candidates than picks.
  for (int e = 3; e < g.experts; ++e) layer.bias[e] = std::numeric_limits<float>::quiet_NaN();
  const auto few = ref::slice_b(g, layer, h);
  for (int r = 0; r < h.rows; ++r) {
    REQUIRE((few.picks[r][0] == 2 && few.picks[r][3] == -1));
    REQUIRE(few.weights[r][3] == 0);
    REQUIRE(std::isinf(few.margin[r]));
  }
  const ref::pick_table forced{{1, 3, 5, 7}, {0, 1, 2, 3}, {15, 14, 12, 10}, {7, 5, 3, 1}};
  const auto given = ref::slice_b(g, ref::layer_b(g, 71), h, 1, &forced);
  REQUIRE(given.picks == forced);
  REQUIRE(std::fabs(given.weights[0][0] / given.weights[0][1] -
                    ref::sigmoid(given.logits(0, 1)) / ref::sigmoid(given.logits(0, 3))) < order_of_sums);
}

TEST_CASE("a bias near 34 chooses, and bf16 would destroy it", "[reference]") {
  ref::geometry g = ref::small();
  g.experts = 64;
  // A router of little gain, so that the bias decides among scores near one half.
  ref::layer_b layer(g, 81, {.bias_near_34 = true, .router_gain = 0.05});
  const ref::batch h = ref::random_activations(8, g.hidden, 82);
  const auto s = ref::slice_b(g, layer, h);
  ref::layer_b rounded = layer, none = layer;
  for (auto& b : rounded.bias) {
    REQUIRE(std::fabs(b - 34) < 0.125);
    b = static_cast<float>(ref::bf16_round(static_cast<double>(b)));
    REQUIRE(b == 34);
  }
  for (auto& b : none.bias) b = 0;
  int changed = 0;
  const auto other = ref::slice_b(g, rounded, h), without = ref::slice_b(g, none, h);
  for (int r = 0; r < h.rows; ++r) {
    changed += std::set<int>(s.picks[r].begin(), s.picks[r].end()) !=
               std::set<int>(other.picks[r].begin(), other.picks[r].end());
    REQUIRE(other.picks[r] == without.picks[r]);  // one constant for all experts
  }
  REQUIRE(changed >= 6);
  REQUIRE(ref::relative_l2(other.out, s.out) > 0.05);
}

TEST_CASE("experts are made when used, and don't depend on the order", "[reference]") {
  const ref::geometry g = ref::small();
  const ref::layer_b layer = ref::make_layer_b(g, 91), again = ref::make_layer_b(g, 91);
  const auto bytes = layer.get(7).up.data;
  (void)again.get(2);
  REQUIRE(again.get(7).up.data == bytes);
  REQUIRE(layer.get(7).gate.data != bytes);
  REQUIRE(layer.get(8).up.data != bytes);
  REQUIRE(layer.made() == 2);
  layer.release();
  REQUIRE(layer.get(7).up.data == bytes);
  ref::layer_b edited = layer;
  edited.edit(7).up.data[5] ^= 1;
  REQUIRE(edited.get(7).up.data != bytes);
  REQUIRE(layer.get(7).up.data == bytes);
  REQUIRE_THROWS_AS(layer.get(g.experts), std::invalid_argument);
}

TEST_CASE("a span feeds one layer's result to the next", "[reference]") {
  const ref::geometry g = ref::small();
  std::vector<ref::layer_b> layers;
  for (std::uint64_t i = 0; i < 3; ++i)
    layers.push_back(ref::make_layer_b(g, 100 + i, {.routed = ref::format::mxfp4}));
  const ref::batch h = ref::random_activations(2, g.hidden, 101);
  const auto span = ref::slice_b_span(g, layers, h, 4);
  ref::batch in = h;
  ref::pick_table picks;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const auto one = ref::slice_b(g, layers[i], in, 4);
    in = ref::rounded_to_bf16(one.out);
    REQUIRE(span[i].out.values == in.values);
    REQUIRE(span[i].picks == one.picks);
  }
  const auto forced = ref::slice_b_span(g, layers, h, 4, {span[0].picks, span[1].picks, span[2].picks});
  REQUIRE(forced[2].out.values == span[2].out.values);
  REQUIRE(ref::to_bf16(span[2].out).size() == span[2].out.values.size());
}

TEST_CASE("errors are never hidden by a NaN", "[reference]") {
  ref::batch a(2, 2), b(2, 2);
  a.values = {1, 2, 3, 4};
  b.values = {1, 2, 3, 5};
  REQUIRE(ref::relative_l2(a, a) == 0);
  REQUIRE(std::fabs(ref::relative_l2(b, a) - 1 / std::sqrt(30.0)) < order_of_sums);
  REQUIRE(ref::max_abs_over_rowmax(b, a) == 0.25);
  b.values[1] = std::numeric_limits<double>::quiet_NaN();
  REQUIRE(std::isinf(ref::relative_l2(b, a)));
  REQUIRE(std::isinf(ref::max_abs_over_rowmax(b, a)));
}

// Hidden: seconds when optimised. Run it by its tag.
TEST_CASE("the whole GLM-5 geometry is quick enough", "[.][full]") {
  const ref::geometry g = ref::glm5();
  const auto seconds = [](auto&& work) {
    const auto start = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  for (const ref::format fmt : ref::all_formats) {
    const ref::batch h = ref::random_activations(2, g.hidden, 111);
    double size = 0;
    const double b = seconds([&] {
      const ref::layer_b layer =
          ref::make_layer_b(g, 112, {.routed = fmt, .shared = fmt, .bias_near_34 = true});
      const auto s = ref::slice_b(g, layer, h, 8);
      for (const double v : s.out.values) size += v * v;
    });
    const double a = seconds([&] {
      const auto s = ref::slice_a(g, ref::make_layer_a(g, 113, {.q_a = fmt, .q_b = fmt}), h);
      REQUIRE(std::isfinite(s.q(1, g.q_rows() - 1)));
    });
    WARN(ref::name_of(fmt) << ": slice A " << a << " s, slice B " << b << " s, rms of out "
                           << std::sqrt(size / (2 * g.hidden)));
    REQUIRE(std::isfinite(size));
  }
}
