// expect: use_order: units of the slot's next use can arrive before all units of this one
// expect: of_slot<0, monolayer::refused::text<2>{"x"}>
// The example's convolution does not say that it reads x: then nothing keeps the next layer's x from overtaking this one.
#include "custom_layer/program.hpp"
#include "monolayer/core/proofs.hpp"

using namespace custom_layer;

struct edited : program<small_config> {
  static constexpr program_info info = [] {
    program_info p = program<small_config>::info;
#ifndef MONOLAYER_FIXED
    p.kinds[conv].stages[1].reads[0] = {};
#endif
    return p;
  }();
};
static_assert(proven<edited>::value);
