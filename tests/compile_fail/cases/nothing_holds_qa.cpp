// expect: reuse: a reader of the slot is not upstream of the write that takes its buffer again
// expect: in_kind<0, monolayer::refused::text<8>{"slice_a"}>
// expect: refused::buffers<2, 0>
// q_a does not wait for the heads of the layer before: it would overwrite qa, and pass the reads of hidden.
#include "../../core/slices_program.hpp"
#include "monolayer/core/proofs.hpp"

using namespace slices;

struct layers {
  static constexpr program_info info = [] {
    program_info p = program();
#ifndef MONOLAYER_FIXED
    p.kinds[slice_a].stages[q_a].reads[1] = {};
#endif
    return p;
  }();
};
static_assert(proven<layers>::value);
