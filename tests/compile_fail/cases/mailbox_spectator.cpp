// expect: mailbox_upstream: every tile that reads a reduction must be an ancestor of every word of the next one
// expect: text<4>{"spy"}
// A second reader of the reduction that feeds nothing: no number of buffers keeps its words.
#include "../../core/slices_program.hpp"
#include "monolayer/core/proofs.hpp"

using namespace slices;

struct layers {
  static constexpr program_info info = [] {
    program_info p = program();
#ifndef MONOLAYER_FIXED
    p.kinds[slice_b].stage_count = 6;
    p.kinds[slice_b].stages[5] = stage_info{.name = "spy", .tiles = 128, .reads = {{partial, reach::own}}};
#endif
    return p;
  }();
};
static_assert(proven<layers>::value);
