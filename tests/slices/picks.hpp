// What the router contract says of a row's logits.
#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace monolayer::test {

/// The experts that the router contract picks from a row's logits: f32 score plus f32 bias, ties to the smaller index.
inline std::vector<int> picks_of(const float* logits, const std::vector<float>& bias, int experts, int top_k) {
  std::vector<float> key(static_cast<std::size_t>(experts));
  for (int e = 0; e < experts; ++e) key[e] = float(1 / (1 + std::exp(-double(logits[e])))) + bias[e];
  std::vector<int> order(key.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return key[a] > key[b]; });
  order.resize(std::size_t(top_k));
  return order;
}

}  // namespace monolayer::test
