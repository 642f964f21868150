// Parts of the whole-layer reference that are worth testing alone: RoPE, LayerNorm, the choice of tokens.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>
#include <vector>

#include "reference/glm5_checkpoint.hpp"
#include "reference/matrix.hpp"
#include "reference/slices.hpp"

namespace monolayer::reference {

// ---- RoPE ----

// rope / 2 cosines, then as many sines, of one position. Angles are float products and the functions' values
// are floats, as in transformers and in the engines' tables.
inline std::vector<double> rope_row(const glm5_geometry& g, long long position) {
  const int half = g.rope / 2;
  std::vector<double> row(static_cast<std::size_t>(g.rope));
  for (int i = 0; i < half; ++i) {
    const auto power = static_cast<float>(std::pow(g.rope_theta, 2.0 * i / g.rope));
    const float angle = (1.0f / power) * static_cast<float>(position);
    row[i] = static_cast<double>(static_cast<float>(std::cos(static_cast<double>(angle))));
    row[half + i] = static_cast<double>(static_cast<float>(std::sin(static_cast<double>(angle))));
  }
  return row;
}

// Rotates pairs (2i, 2i + 1) in place.
inline void rotate(double* x, const std::vector<double>& row) {
  const std::size_t half = row.size() / 2;
  for (std::size_t i = 0; i < half; ++i) {
    const double even = x[2 * i], odd = x[2 * i + 1];
    x[2 * i] = even * row[i] - odd * row[half + i];
    x[2 * i + 1] = odd * row[i] + even * row[half + i];
  }
}

// (x - mean) / sqrt(variance + eps) * weight + bias, in place.
inline void layer_norm(double* x, int n, const matrix& weight, const matrix& bias, double eps) {
  require(weight.cols == n && bias.cols == n, "layer_norm: wrong weight or bias");
  double mean = 0, variance = 0;
  for (int i = 0; i < n; ++i) mean += x[i] / n;
  for (int i = 0; i < n; ++i) variance += (x[i] - mean) * (x[i] - mean) / n;
  const double factor = 1 / std::sqrt(variance + eps);
  for (int i = 0; i < n; ++i) x[i] = (x[i] - mean) * factor * weight.at(0, i) + bias.at(0, i);
}

// ---- picks of tokens ----

// [rows][any number]: tokens of the row's own request.
using token_lists = std::vector<std::vector<int>>;

struct token_choice {
  std::vector<int> picks;  // ascending
  double margin = 0;       // k-th less (k + 1)-th score; infinite without a (k + 1)-th
};

// The k largest, ties to the earliest token, NaN never.
inline token_choice choose_tokens(const std::vector<double>& scores, int k) {
  std::vector<int> order;
  for (std::size_t t = 0; t < scores.size(); ++t) {
    if (!std::isnan(scores[t])) order.push_back(static_cast<int>(t));
  }
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return scores[a] > scores[b]; });
  const auto n = static_cast<std::size_t>(k);
  token_choice choice;
  choice.margin =
      order.size() > n ? scores[order[n - 1]] - scores[order[n]] : std::numeric_limits<double>::infinity();
  if (order.size() > n) order.resize(n);
  std::sort(order.begin(), order.end());
  choice.picks = std::move(order);
  return choice;
}

// How far picks are from being the largest scores: the largest score left out less the smallest one picked,
// or 0 where that is negative. For comparing the picks of a computation with other roundings, whose choice
// between nearly equal scores may differ. Infinite where a pick is no token, is there twice, or is NaN.
inline double pick_error(const std::vector<double>& scores, const std::vector<int>& picks) {
  const double infinity = std::numeric_limits<double>::infinity();
  std::vector<bool> picked(scores.size());
  double least = infinity, most = -infinity;
  for (const int t : picks) {
    if (t < 0 || t >= static_cast<int>(scores.size()) || picked[t] || std::isnan(scores[t])) return infinity;
    picked[t] = true;
    least = std::min(least, scores[t]);
  }
  for (std::size_t t = 0; t < scores.size(); ++t) {
    if (!picked[t] && !std::isnan(scores[t])) most = std::max(most, scores[t]);
  }
  return std::max(0.0, most - least);
}

// What the router chooses by, for pick_error: sigmoid(logit) + bias of each expert.
inline std::vector<double> router_scores(const double* logits, const std::vector<float>& bias) {
  std::vector<double> scores(bias.size());
  for (std::size_t e = 0; e < bias.size(); ++e) scores[e] = sigmoid(logits[e]) + static_cast<double>(bias[e]);
  return scores;
}

}  // namespace monolayer::reference
