// expect: reuse: a reader of the slot is not upstream of the write that takes its buffer again
// expect: in_stage<4, monolayer::refused::text<7>{"reduce"}>
// expect: refused::buffers<1, 2>
// One buffer of hidden: a tile of reduce would overwrite what another has still to read.
#include "../../core/slices_program.hpp"
#include "monolayer/core/proofs.hpp"

using namespace slices;

struct layers {
  static constexpr program_info info = [] {
    program_info p = program();
#ifndef MONOLAYER_FIXED
    p.slots[hidden].buffers = 1;
#endif
    return p;
  }();
};
static_assert(proven<layers>::value);
