// expect: arrivals: the tiles of a part must bring exactly slot.units arrival units
// expect: arrival_units<2048, 256>
// A routed slot counts (row, place) pairs and column tiles, not the tiles of one routing.
#include "../../core/slices_program.hpp"
#include "monolayer/core/proofs.hpp"

using namespace slices;

struct layers {
  static constexpr program_info info = [] {
    program_info p = program();
#ifndef MONOLAYER_FIXED
    p.slots[act].units = 8 * 32;
#endif
    return p;
  }();
};
static_assert(proven<layers>::value);
