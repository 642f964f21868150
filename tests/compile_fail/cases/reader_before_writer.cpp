// expect: writer_first: a stage reads a slot that no stage before it in its kind writes
// expect: in_stage<2, monolayer::refused::text<5>{"down"}>
// expect: of_slot<6, monolayer::refused::text<4>{"act"}>
// down stands before routed_gate_up, so a block would wait for its own later work.
#include "../../core/slices_program.hpp"
#include "monolayer/core/proofs.hpp"

using namespace slices;

struct layers {
  static constexpr program_info info = [] {
    program_info p = program();
#ifndef MONOLAYER_FIXED
    const stage_info moved = p.kinds[slice_b].stages[down];
    p.kinds[slice_b].stages[down] = p.kinds[slice_b].stages[routed_gate_up];
    p.kinds[slice_b].stages[routed_gate_up] = moved;
#endif
    return p;
  }();
};
static_assert(proven<layers>::value);
