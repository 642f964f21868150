// Whole layers against the float64 reference on one target, TARGET: formats of weights and caches, all kinds,
// lists of any length, inputs so small that each norm's eps matters.
#include "glm5/exact.hpp"

using namespace monolayer;
using namespace monolayer::test;

using T = sim::TARGET;

namespace {

template <class Config>
struct with_plain_fp8_keys : Config {
  using kv_cache = fp8_rows;
  using index_cache = fp8_keys<plain>;
};

layer_setup setup(int blocks, u64 seed, u32 block_size) {
  layer_setup how;
  how.blocks = blocks, how.seed = seed, how.paging.block_size = block_size;
  return how;
}

struct norm_case {
  const char* stage;  // that shows it first
  float reference::glm5_geometry::*eps;
};

/// A layer whose norms see inputs of size 1e-3: right within the bounds, and with any eps changed to the
/// other that GLM-5 has, outside them by far.
template <class C>
void check_norms(const layer_setup& how) {
  reference::glm5_layer_options small;
  small.q_a_gain = small.kv_a_gain = small.index_k_gain = small.o_gain = 1e-3;
  exact_rig<T, C> x({moe_layer}, how, small);
  const std::vector<token_row> rows = {{0, 3}, dead_row, {2, 70}};
  const std::vector<u16> input = x.inputs(rows, how.seed + 9, 1e-3);
  check_layer(x.rig, 0, rows, input, x.caches[0], 2e-3, nullptr, false);
  const layer_outcome o = x.rig.run(0, rows, input);
  const norm_case norms[] = {{"q_a", &reference::glm5_geometry::eps_input},
                             {"q", &reference::glm5_geometry::eps_q_a},
                             {"cache rows", &reference::glm5_geometry::eps_kv_a},
                             {"index keys", &reference::glm5_geometry::eps_index},
                             {"out", &reference::glm5_geometry::eps_post}};
  for (const norm_case& n : norms) {
    INFO("eps seen by " << n.stage);
    reference::glm5_geometry other = x.model.g;
    other.*n.eps = other.*n.eps > 5e-6f ? 1e-6f : 1e-5f;
    const layer_comparison c = compare_layer(x.rig, 0, rows, input, x.caches[0], other, o);
    CHECK(c.errors.at(n.stage) > 10 * (std::string(n.stage) == "out" ? 2e-3 : stage_bound));
  }
}

}  // namespace

#if CONFIGS == 0
TEST_CASE("bf16 and bf16 caches, TP1", "[reference]") {
  check_all_kinds<T, with_bf16_layer<nano_layer<1>>>(setup(5, 1, 16));
}
TEST_CASE("norms of inputs of size 1e-3", "[norms]") {
  check_norms<with_bf16_layer<nano_layer<1>>>(setup(5, 11, 16));
}
TEST_CASE("FP8 blocks and FP8 caches in shuffled pages, TP2", "[reference]") {
  check_all_kinds<T, with_fp8_caches<with_fp8_layer<nano_layer<2>>>>(setup(4, 2, 16));
}
#elif CONFIGS == 1
TEST_CASE("FP8 by channel, MXFP4 and FP8 caches in plain pages, TP4", "[reference]") {
  check_all_kinds<T, with_plain_fp8_keys<with_mxfp4_layer<nano_layer<4>>>>(setup(3, 3, 1));
}
TEST_CASE("FP8 blocks, MXFP4 and bf16 caches, TP8", "[reference]") {
  check_all_kinds<T, micro_layer<8>>(setup(2, 4, 64));
}
#else
TEST_CASE("bf16 and FP8 caches in plain pages, TP2", "[reference]") {
  check_all_kinds<T, with_plain_fp8_keys<with_bf16_layer<nano_layer<2>>>>(setup(5, 5, 16));
}
TEST_CASE("FP8 blocks and bf16 caches, TP4", "[reference]") {
  check_all_kinds<T, with_fp8_layer<nano_layer<4>>>(setup(5, 6, 1));
}
TEST_CASE("FP8 by channel, MXFP4 and FP8 caches in shuffled pages, TP1", "[reference]") {
  check_all_kinds<T, with_fp8_caches<with_mxfp4_layer<nano_layer<1>>>>(setup(8, 7, 64));
}
TEST_CASE("FP8 by channel, MXFP4 and bf16 caches, TP8", "[reference]") {
  check_all_kinds<T, with_mxfp4_layer<micro_layer<8>>>(setup(3, 8, 16));
}
TEST_CASE("norms of inputs of size 1e-3 in quantised layers", "[norms]") {
  check_norms<with_fp8_layer<nano_layer<4>>>(setup(3, 12, 16));
}
#endif
