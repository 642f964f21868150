// expect: group_scope: who writes or reads a group slot must be by_group, read its own part
// expect: in_stage<2, monolayer::refused::text<9>{"head_out"}>
// Heads of other groups are not visible to this one.
#include "../../core/slices_program.hpp"
#include "monolayer/core/proofs.hpp"

using namespace slices;

struct layers {
  static constexpr program_info info = [] {
    program_info p = program();
#ifndef MONOLAYER_FIXED
    p.kinds[slice_a].stages[head_out].reads[0].reach = reach::all;
#endif
    return p;
  }();
};
static_assert(proven<layers>::value);
