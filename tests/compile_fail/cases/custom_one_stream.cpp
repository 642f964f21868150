// expect: reuse: a reader of the slot is not upstream of the write that takes its buffer again
// expect: of_slot<4, monolayer::refused::text<7>{"hidden"}>
// expect: refused::buffers<1, 2>
// The example's residual stream in one buffer: a block could write columns of the next one that another still reads.
#include "custom_layer/program.hpp"
#include "monolayer/core/proofs.hpp"

using namespace custom_layer;

struct edited : program<small_config> {
  static constexpr program_info info = [] {
    program_info p = program<small_config>::info;
#ifndef MONOLAYER_FIXED
    p.slots[hidden].buffers = 1;
#endif
    return p;
  }();
};
static_assert(proven<edited>::value);
