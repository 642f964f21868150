// A small layer of every kind in one choice of formats, against the float64 reference.
#pragma once

#include "glm5/against_reference.hpp"
#include "glm5/span_rig.hpp"

namespace monolayer::test {

/// Layers of a model with their caches, ready to be compared.
template <class T, class C>
struct exact_rig {
  static constexpr int tokens = 96, requests = 3;
  glm5_model<T, C> model;
  layer_rig<T, C> rig;
  std::vector<std::vector<reference::request_cache>> caches;  // by layer and request

  explicit exact_rig(const std::vector<layer_plan>& plans, const layer_setup& how,
                     reference::glm5_layer_options options = {})
      : model(weights_of<C>(plans, how.seed, options, {})), rig(model, paged(how)) {
    for (std::size_t l = 0; l < plans.size(); ++l) {
      caches.emplace_back();
      poison(int(l));
      for (int r = 0; r < requests; ++r) {
        caches.back().push_back(reference::random_cache(tokens, 576, C::index_dim,
                                                        how.seed * 1000 + l * 10 + u64(r), kv_format_of<C>(),
                                                        key_format_of<C>()));
        rig.s.set_cache(int(l), r, caches.back().back());
      }
    }
  }
  /// Rows of the given size; dead ones hold NaN.
  static std::vector<u16> inputs(const std::vector<token_row>& rows, u64 seed, double size) {
    std::vector<u16> all =
        reference::to_bf16(reference::random_activations(int(rows.size()), C::hidden, seed, size));
    for (std::size_t i = 0; i < rows.size(); ++i)
      if (rows[i].request < 0) std::fill_n(all.begin() + long(i) * C::hidden, C::hidden, u16(0x7fc2));
    return all;
  }

 private:
  static layer_setup paged(layer_setup how) {
    how.paging.requests = requests, how.paging.tokens = tokens;
    return how;
  }
  /// Pages of nobody, slot 0 among them, and all padding are NaN.
  void poison(int layer) {
    for (auto& rank : rig.s.of) {
      const auto& b = rank.bound[std::size_t(layer)];
      std::memset(b.kv_cache, 0xff, rig.s.kv_page() * u64(rig.s.pages));
      std::memset(b.index_cache, 0xff, rig.s.key_page() * u64(rig.s.pages));
    }
  }
};

/// Every kind with its own picks and with given lists: of no token, of one, of as many as there may be.
template <class T, class C>
void check_all_kinds(const layer_setup& how) {
  exact_rig<T, C> x({dense_layer, moe_layer, sharing_layer}, how);
  const std::vector<token_row> rows = {{0, 0}, {1, 5}, dead_row, {1, 63}, {1, 64}, {2, 95}, {0, 80}};
  const std::vector<u16> input = x.inputs(rows, how.seed + 9, 1);
  for (int layer : {0, 1}) check_layer(x.rig, layer, rows, input, x.caches[std::size_t(layer)], 2e-3);
  std::vector<int> first(64), last(64);
  std::iota(first.begin(), first.end(), 0), std::iota(last.begin(), last.end(), 32);
  const std::vector<std::vector<int>> lists = {{0}, {}, {}, {63, 5, 1}, first, last, {3}};
  check_layer(x.rig, 2, rows, input, x.caches[2], 2e-3, &lists);
}

}  // namespace monolayer::test
