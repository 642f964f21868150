// expect: known_slots: a stage reads or writes a slot that the table does not have
// expect: slot_and_count<8, 8>
// A slot beyond the table.
#include "../../core/slices_program.hpp"
#include "monolayer/core/proofs.hpp"

using namespace slices;

struct layers {
  static constexpr program_info info = [] {
    program_info p = program();
#ifndef MONOLAYER_FIXED
    p.kinds[slice_b].stages[down].reads[3].slot = slot_count;
#endif
    return p;
  }();
};
static_assert(proven<layers>::value);
