// expect: tagged_size: a tagged slot of more than 64 KiB should be counted
// expect: bytes_and_limit<81920, 65536>
// 1280 logits a row.
#include "../../core/slices_program.hpp"
#include "monolayer/core/proofs.hpp"

using namespace slices;

struct layers {
  static constexpr program_info info = [] {
    program_info p = program();
#ifndef MONOLAYER_FIXED
    p.slots[logits].columns = 1280;
    p.kinds[slice_b].stages[router].tiles = 80;
#endif
    return p;
  }();
};
static_assert(proven<layers>::value);
