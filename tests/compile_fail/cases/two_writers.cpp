// expect: one_writer: two stages of a kind write the same slot
// expect: in_stage<2, monolayer::refused::text<15>{"routed_gate_up"}>
// expect: writers<2, 1>
// Shared and routed experts write the same activations.
#include "../../core/slices_program.hpp"
#include "monolayer/core/proofs.hpp"

using namespace slices;

struct layers {
  static constexpr program_info info = [] {
    program_info p = program();
#ifndef MONOLAYER_FIXED
    p.kinds[slice_b].stages[routed_gate_up].writes = act_shared;
#endif
    return p;
  }();
};
static_assert(proven<layers>::value);
