// expect: fan_out: bytes x readers of a slot exceed fan_out_limit at max_rows
// expect: bytes_and_limit<100663296, 32000000>
// Every block of reduce would read every word of every rank.
#include "../../core/slices_program.hpp"
#include "monolayer/core/proofs.hpp"

using namespace slices;

struct layers {
  static constexpr program_info info = [] {
    program_info p = program();
#ifndef MONOLAYER_FIXED
    p.slots[partial].parts = 1;
#endif
    return p;
  }();
};
static_assert(proven<layers>::value);
