// expect: coverage: the writer's tiles must cover the columns of the slot exactly once
// expect: in_stage<1, monolayer::refused::text<11>{"short_conv"}>
// expect: columns_covered<1024, 256>
// The example's convolution as a stage whose tiles serve all rows: they would cover the channels four times.
#include "custom_layer/program.hpp"
#include "monolayer/core/proofs.hpp"

using namespace custom_layer;

struct edited : program<small_config> {
  static constexpr program_info info = [] {
    program_info p = program<small_config>::info;
#ifndef MONOLAYER_FIXED
    p.kinds[conv].stages[1].by_row = false;
#endif
    return p;
  }();
};
static_assert(proven<edited>::value);
