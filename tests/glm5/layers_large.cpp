// Layers cut for eight ranks without padding, and one of GLM-5's own sizes.
#include <chrono>
#include <cstdio>

#include "glm5/against_reference.hpp"

using namespace monolayer;
using namespace monolayer::test;

namespace {

double seconds() {
  static const auto start = std::chrono::steady_clock::now();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// One layer at C's TP against float64, with its own picks and, bit for bit, with these as a list.
template <class T, class C>
void check_one(bool dense, bool indexer, const std::vector<token_row>& rows, int tokens, const std::vector<int>& experts,
               int blocks) {
  reference::glm5_layer_options o = glm5_formats_of<C>();
  o.dense = dense, o.indexer = indexer;
  std::vector<reference::glm5_layer> weights;
  weights.push_back(reference::make_glm5_layer(glm5_geometry_of<C>(), 11, o));
  const glm5_model<T, C> model(std::move(weights), experts);
  layer_setup how;
  how.blocks = blocks;
  how.paging.tokens = tokens;
  how.paging.block_size = 64;
  layer_rig<T, C> rig(model, how);
  const auto input = reference::to_bf16(reference::random_activations(int(rows.size()), C::hidden, 9));
  std::vector<reference::request_cache> caches;
  for (int i = 0; i < how.paging.requests; ++i) {
    caches.push_back(reference::random_cache(tokens, C::kv_lora + C::rope, C::index_dim, u64(31 + i), kv_format_of<C>(),
                                             key_format_of<C>()));
    rig.s.set_cache(0, i, caches.back());
  }
  std::vector<std::vector<int>> lists(rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i)
    for (int t = 0; t <= rows[i].position && int(lists[i].size()) < C::index_topk; t += 2) lists[i].push_back(t);
  const double begin = seconds();
  const layer_errors e = check_layer(rig, 0, rows, input, caches, 2e-3, indexer ? nullptr : &lists);
  std::printf("%s TP%d, %zu rows: error %.2e, stages %.2e; %.1f s of launches\n", T::name, C::ranks, rows.size(), e.out,
              e.stages, seconds() - begin);
}

}  // namespace

using T = sim::TARGET;

TEST_CASE("mini at TP8") {
  using C = with_mxfp4_layer<mini_layer<8>>;
  static_assert(C::expert_width % unit_k == 0 && C::heads * C::v_dim % unit_k == 0);  // nothing is padded
  check_one<T, C>(false, true, {{0, 120}, {1, 7}}, 128, {}, 2);
  check_one<T, C>(true, true, {{0, 120}}, 128, {}, 2);
}

TEST_CASE("a MoE layer of GLM-5's sizes at TP8, one row", "[.long]") {
  check_one<T, glm5_layer<8>>(false, true, {{0, 2500}}, 2560, {3, 17, 64, 65, 100, 127, 128, 191, 200, 255}, 4);
}
