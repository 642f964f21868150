// expect: earlier_writer: no kind writes a slot that is read as an earlier layer's
// expect: of_slot<3, monolayer::refused::text<7>{"hidden"}>
// Without slice_b no layer ever writes the residual stream.
#include "../../core/slices_program.hpp"
#include "monolayer/core/proofs.hpp"

using namespace slices;

struct layers {
  static constexpr program_info info = [] {
    program_info p = program();
#ifndef MONOLAYER_FIXED
    p.kind_count = 1;
#endif
    return p;
  }();
};
static_assert(proven<layers>::value);
