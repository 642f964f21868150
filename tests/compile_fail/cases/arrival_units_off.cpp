// expect: arrivals: the tiles of a part must bring exactly slot.units arrival units
// expect: in_stage<0, monolayer::refused::text<4>{"q_a"}>
// expect: arrival_units<128, 120>
// Waiters of qa would go on before the last eight tiles have arrived.
#include "../../core/slices_program.hpp"
#include "monolayer/core/proofs.hpp"

using namespace slices;

struct layers {
  static constexpr program_info info = [] {
    program_info p = program();
#ifndef MONOLAYER_FIXED
    p.slots[qa].units = 120;
#endif
    return p;
  }();
};
static_assert(proven<layers>::value);
