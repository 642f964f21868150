// expect: use_order: units of the slot's next use can arrive before all units of this one
// expect: text<15>{"shared_gate_up"}
// Nobody reads act_shared and its writer waits for nothing: two layers would count into one counter.
#include "../../core/slices_program.hpp"
#include "monolayer/core/proofs.hpp"

using namespace slices;

struct layers {
  static constexpr program_info info = [] {
    program_info p = program();
#ifndef MONOLAYER_FIXED
    p.kinds[slice_b].stages[down].reads[1] = {};
    p.kinds[slice_b].stages[shared_gate_up].reads[0] = {};
#endif
    return p;
  }();
};
static_assert(proven<layers>::value);
