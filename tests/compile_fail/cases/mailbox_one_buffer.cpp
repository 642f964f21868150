// expect: mailbox_buffers: a slot between GPUs needs two buffers
// expect: refused::buffers<1, 2>
// A fast rank would overwrite words that a slow one has yet to read.
#include "../../core/slices_program.hpp"
#include "monolayer/core/proofs.hpp"

using namespace slices;

struct layers {
  static constexpr program_info info = [] {
    program_info p = program();
#ifndef MONOLAYER_FIXED
    p.slots[partial].buffers = 1;
#endif
    return p;
  }();
};
static_assert(proven<layers>::value);
