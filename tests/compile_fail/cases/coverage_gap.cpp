// expect: coverage: the writer's tiles must cover the columns of the slot exactly once
// expect: columns_covered<6096, 6144>
// The last 48 columns of the residual stream are written by nobody.
#include "../../core/slices_program.hpp"
#include "monolayer/core/proofs.hpp"

using namespace slices;

struct layers {
  static constexpr program_info info = [] {
    program_info p = program();
#ifndef MONOLAYER_FIXED
    p.kinds[slice_b].stages[reduce].tiles = 127;
    p.slots[partial].parts = p.slots[hidden].units = 127;
    p.slots[partial].columns = 127 * 48;
    p.kinds[slice_b].stages[down].tiles = 127 * 3;
#endif
    return p;
  }();
};
static_assert(proven<layers>::value);
