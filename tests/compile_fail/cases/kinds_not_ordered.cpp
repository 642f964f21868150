// expect: reuse: a reader of the slot is not upstream of the write that takes its buffer again
// expect: in_stage<0, monolayer::refused::text<4>{"q_a"}>
// expect: of_slot<3, monolayer::refused::text<7>{"hidden"}>
// slice_b never waits for slice_a, so two of its layers can replace hidden while a q_a before them still
// reads it.
#include "../../core/slices_program.hpp"
#include "monolayer/core/proofs.hpp"

using namespace slices;

struct layers {
  static constexpr program_info info = [] {
    program_info p = program();
#ifndef MONOLAYER_FIXED
    p.kinds[slice_b].stages[router].reads[1] = {};
#endif
    return p;
  }();
};
static_assert(proven<layers>::value);
