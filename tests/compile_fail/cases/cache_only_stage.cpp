// expect: reuse: a reader of the slot is not upstream of the write that takes its buffer again
// expect: text<6>{"cache"}
// expect: of_slot<5, monolayer::refused::text<11>{"act_shared"}>
// A stage that only writes caches: nothing waits for it, so nothing keeps its input.
#include "../../core/slices_program.hpp"
#include "monolayer/core/proofs.hpp"

using namespace slices;

struct layers {
  static constexpr program_info info = [] {
    program_info p = program();
#ifndef MONOLAYER_FIXED
    p.kinds[slice_b].stage_count = 6;
    p.kinds[slice_b].stages[5] = stage_info{.name = "cache", .tiles = 8, .reads = {{act_shared}}};
#endif
    return p;
  }();
};
static_assert(proven<layers>::value);
