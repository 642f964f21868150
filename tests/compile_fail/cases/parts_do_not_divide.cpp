// expect: parts_divide: a slot's parts must divide the tiles of its writer
// expect: tiles_and_parts<250, 16>
// 250 tiles in 16 parts: some tile would belong to two heads.
#include "../../core/slices_program.hpp"
#include "monolayer/core/proofs.hpp"

using namespace slices;

struct layers {
  static constexpr program_info info = [] {
    program_info p = program();
#ifndef MONOLAYER_FIXED
    p.kinds[slice_a].stages[q_b].tiles = 250;
#endif
    return p;
  }();
};
static_assert(proven<layers>::value);
