// expect: names: every kind, every slot, and every stage of a kind needs a name of its own
// expect: name_and_twin<3, 0>
// Two stages of slice_b called router.
#include "../../core/slices_program.hpp"
#include "monolayer/core/proofs.hpp"

using namespace slices;

struct layers {
  static constexpr program_info info = [] {
    program_info p = program();
#ifndef MONOLAYER_FIXED
    p.kinds[slice_b].stages[down].name = "router";
#endif
    return p;
  }();
};
static_assert(proven<layers>::value);
