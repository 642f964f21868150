// expect: tagged_size: a tagged slot of more than 16 KiB should be counted
// expect: bytes_and_limit<20480, 16384>
// 320 logits a row.
#include "../../core/slices_program.hpp"
#include "monolayer/core/proofs.hpp"

using namespace slices;

struct layers {
  static constexpr program_info info = [] {
    program_info p = program();
#ifndef MONOLAYER_FIXED
    p.slots[logits].columns = 320;
    p.kinds[slice_b].stages[router].tiles = 20;
#endif
    return p;
  }();
};
static_assert(proven<layers>::value);
