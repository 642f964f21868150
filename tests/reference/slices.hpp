// The two slices of a GLM-5 decoder layer in double, with the library's rounding points. Plain loops on
// purpose.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

#include "reference/batch.hpp"
#include "reference/checkpoint.hpp"
#include "reference/formats.hpp"
#include "reference/matrix.hpp"

namespace monolayer::reference {

// The places where the library's activations become bf16. A default one rounds as the library does, except
// for the result, whose last rounding a test's tolerance covers.
struct rounding {
  bool input = true;     // the residual row, h or h1
  bool norm = true;      // the normalised row, after the norm's weight
  bool q_a = true;       // output of q_a
  bool q_a_norm = true;  // output of q_a's norm
  bool act = true;       // an expert's silu(gate) * up * routing weight
  bool wire = true;      // a rank's partial sum, its own included, at any number of ranks
  bool out = false;      // the new residual row

  static rounding exact() { return {false, false, false, false, false, false, false}; }
  static rounding with_out() { return {.out = true}; }
};

namespace detail {

inline double round_if(bool on, double x) { return on ? bf16_round(x) : x; }

// Eight sums, for speed: their order is fixed. By name, since an array would stay in memory at -O1.
inline double dot(const double* a, const double* b, int n) {
  double s0 = 0, s1 = 0, s2 = 0, s3 = 0, s4 = 0, s5 = 0, s6 = 0, s7 = 0;
  int i = 0;
  for (; i + 8 <= n; i += 8) {
    s0 += a[i] * b[i], s1 += a[i + 1] * b[i + 1], s2 += a[i + 2] * b[i + 2], s3 += a[i + 3] * b[i + 3];
    s4 += a[i + 4] * b[i + 4], s5 += a[i + 5] * b[i + 5], s6 += a[i + 6] * b[i + 6], s7 += a[i + 7] * b[i + 7];
  }
  for (; i < n; ++i) s0 += a[i] * b[i];
  return ((s0 + s4) + (s1 + s5)) + ((s2 + s6) + (s3 + s7));
}

inline batch rounded_input(const batch& h, bool on) { return on ? rounded_to_bf16(h) : h; }

}  // namespace detail

inline double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
inline double silu(double x) { return x * sigmoid(x); }

// x * rsqrt(mean(x^2) + eps) * weight; one rounding, after the weight.
inline batch rms_norm(const batch& x, const matrix& weight, double eps, bool round) {
  require(weight.rows == 1 && weight.cols == x.cols, "rms_norm: wrong weight");
  std::vector<double> w(static_cast<std::size_t>(x.cols));
  weight.decode_row(0, w.data());
  batch y(x.rows, x.cols);
  for (int r = 0; r < x.rows; ++r) {
    const double factor = 1 / std::sqrt(detail::dot(x.row(r), x.row(r), x.cols) / x.cols + eps);
    for (int c = 0; c < x.cols; ++c) y(r, c) = detail::round_if(round, x(r, c) * factor * w[c]);
  }
  return y;
}

// x w^T: each weight row is decoded once for all rows of x.
inline batch project(const batch& x, const matrix& w, bool round) {
  require(w.cols == x.cols, "project: wrong width");
  std::vector<double> row(static_cast<std::size_t>(w.cols));
  batch y(x.rows, w.rows);
  for (int n = 0; n < w.rows; ++n) {
    w.decode_row(n, row.data());
    for (int r = 0; r < x.rows; ++r)
      y(r, n) = detail::round_if(round, detail::dot(x.row(r), row.data(), w.cols));
  }
  return y;
}

// ---- slice A ----

struct slice_a_result {
  batch x;    // [rows][hidden], normalised
  batch q_a;  // [rows][q_lora]
  batch c_q;  // [rows][q_lora], normalised
  batch q;    // [rows][heads * head_dim], never rounded; a rank's part: column_slice by q_rows_of_rank
};

inline slice_a_result slice_a(const geometry& g, const layer_a& layer, const batch& h, rounding points = {}) {
  require(h.cols == g.hidden, "slice_a: wrong hidden size");
  slice_a_result s;
  s.x = rms_norm(detail::rounded_input(h, points.input), layer.input_norm, g.eps_input, points.norm);
  s.q_a = project(s.x, layer.q_a, points.q_a);
  s.c_q = rms_norm(s.q_a, layer.q_a_norm, g.eps_q_a, points.q_a_norm);
  s.q = project(s.c_q, layer.q_b, false);
  return s;
}

// ---- slice B ----

// [rows][top_k]; -1 where a row has fewer experts whose score is a number.
using pick_table = std::vector<std::vector<int>>;

struct slice_b_result {
  batch y;           // [rows][hidden], normalised
  batch logits;      // [rows][experts]
  pick_table picks;  // by descending score + bias, ties to the smallest index; or the forced
  std::vector<std::vector<double>> weights;  // [rows][top_k], in the order of picks
  std::vector<double> margin;  // [rows]: k-th less (k + 1)-th score + bias; infinite without a (k + 1)-th
  batch sum;                   // [rows][hidden], what the experts add to the residual: out is h1 + sum
  batch out;                   // [rows][hidden]
};

struct route {
  std::vector<int> picks;
  std::vector<double> weights;
  double margin = 0;
};

// The routing weights of given picks: scores without bias, normalised over the picks.
inline std::vector<double> routing_weights(const geometry& g, const double* logits,
                                           const std::vector<int>& picks) {
  std::vector<double> weights(picks.size());
  double sum = 0;
  for (std::size_t k = 0; k < picks.size(); ++k) {
    require(picks[k] < g.experts, "routing_weights: no such expert");
    weights[k] = picks[k] < 0 ? 0 : sigmoid(logits[picks[k]]);
    sum += weights[k];
  }
  for (auto& w : weights) w = w / (sum + 1e-20) * static_cast<double>(g.routed_scaling);
  return weights;
}

// Chooses the experts of one row.
inline route choose(const geometry& g, const double* logits, const std::vector<float>& bias) {
  require(bias.size() == static_cast<std::size_t>(g.experts), "choose: wrong bias");
  std::vector<double> score(static_cast<std::size_t>(g.experts));
  std::vector<int> order;
  for (int e = 0; e < g.experts; ++e) {
    score[e] = sigmoid(logits[e]) + static_cast<double>(bias[e]);
    if (!std::isnan(score[e])) order.push_back(e);
  }
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return score[a] > score[b]; });
  const auto k = static_cast<std::size_t>(g.top_k);
  route chosen;
  chosen.margin =
      order.size() > k ? score[order[k - 1]] - score[order[k]] : std::numeric_limits<double>::infinity();
  chosen.picks = order;
  chosen.picks.resize(k, -1);
  chosen.weights = routing_weights(g, logits, chosen.picks);
  return chosen;
}

namespace detail {

// One row that an expert serves, and the weight of its result.
struct served {
  int row;
  double weight;
};

// Adds the expert's result for the rows it serves to each rank's partial sum.
inline void add_expert(const expert& e, const batch& y, const std::vector<served>& rows, bool round_act,
                       std::vector<batch>& partials) {
  const int width = e.gate.rows, tp = static_cast<int>(partials.size());
  const auto n = static_cast<int>(rows.size());
  require(e.gate.cols == y.cols && e.up.cols == y.cols && e.up.rows == width, "expert: wrong gate or up");
  require(e.down.cols == width && e.down.rows == y.cols, "expert: wrong down");
  std::vector<double> weight(static_cast<std::size_t>(std::max(width, y.cols)));
  batch act(n, width);
  for (int i = 0; i < width; ++i) {
    e.gate.decode_row(i, weight.data());
    for (int r = 0; r < n; ++r) act(r, i) = silu(dot(y.row(rows[r].row), weight.data(), y.cols));
    e.up.decode_row(i, weight.data());
    for (int r = 0; r < n; ++r) {
      // The routing weight goes in before the rounding, as in the library.
      act(r, i) =
          round_if(round_act, act(r, i) * dot(y.row(rows[r].row), weight.data(), y.cols) * rows[r].weight);
    }
  }
  for (int c = 0; c < e.down.rows; ++c) {
    e.down.decode_row(c, weight.data());
    for (int rank = 0; rank < tp; ++rank) {
      const range part = range_of_rank(width, rank, tp);
      for (int r = 0; r < n; ++r) {
        partials[rank](rows[r].row, c) +=
            dot(act.row(r) + part.begin, weight.data() + part.begin, part.count);
      }
    }
  }
}

}  // namespace detail

// forced: picks to use in place of the reference's own, to compare results where the margin is too small to
// agree on them; logits, margin and the weights' rule stay.
inline slice_b_result slice_b(const geometry& g, const layer_b& layer, const batch& h1, int tp = 1,
                              const pick_table* forced = nullptr, rounding points = {}) {
  require(h1.cols == g.hidden, "slice_b: wrong hidden size");
  require(tp > 0, "slice_b: no ranks");
  require(forced == nullptr || forced->size() == static_cast<std::size_t>(h1.rows),
          "slice_b: wrong forced picks");
  const batch h = detail::rounded_input(h1, points.input);
  slice_b_result s;
  s.y = rms_norm(h, layer.post_norm, g.eps_post, points.norm);
  s.logits = project(s.y, layer.router, false);

  std::vector<std::vector<detail::served>> served(static_cast<std::size_t>(g.experts));
  for (int r = 0; r < h.rows; ++r) {
    route chosen = choose(g, s.logits.row(r), layer.bias);
    if (forced != nullptr) {
      chosen.picks = (*forced)[r];
      chosen.weights = routing_weights(g, s.logits.row(r), chosen.picks);
    }
    for (std::size_t k = 0; k < chosen.picks.size(); ++k) {
      if (chosen.picks[k] >= 0) served[chosen.picks[k]].push_back({r, chosen.weights[k]});
    }
    s.picks.push_back(chosen.picks);
    s.weights.push_back(chosen.weights);
    s.margin.push_back(chosen.margin);
  }

  std::vector<batch> partials(static_cast<std::size_t>(tp), batch(h.rows, h.cols));
  for (int e = 0; e < g.experts; ++e) {
    if (!served[e].empty()) detail::add_expert(layer.get(e), s.y, served[e], points.act, partials);
  }
  if (g.shared_experts > 0) {
    std::vector<detail::served> all;
    for (int r = 0; r < h.rows; ++r) all.push_back({r, 1.0});
    detail::add_expert(layer.shared(), s.y, all, points.act, partials);
  }

  s.sum = batch(h.rows, h.cols);
  s.out = h;
  for (std::size_t i = 0; i < s.out.values.size(); ++i) {
    for (const batch& partial : partials) s.sum.values[i] += detail::round_if(points.wire, partial.values[i]);
    s.out.values[i] = detail::round_if(points.out, h.values[i] + s.sum.values[i]);
  }
  return s;
}

// Slice B over a span of layers: the result of one, in bf16 unless told otherwise, is the input of the next.
// forced: one table a layer, or none.
inline std::vector<slice_b_result> slice_b_span(const geometry& g, const std::vector<layer_b>& layers,
                                                const batch& h1, int tp = 1,
                                                const std::vector<pick_table>& forced = {},
                                                rounding points = rounding::with_out()) {
  require(forced.empty() || forced.size() == layers.size(), "slice_b_span: wrong forced picks");
  std::vector<slice_b_result> results;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const batch& in = i == 0 ? h1 : results.back().out;
    results.push_back(slice_b(g, layers[i], in, tp, forced.empty() ? nullptr : &forced[i], points));
  }
  return results;
}

}  // namespace monolayer::reference
