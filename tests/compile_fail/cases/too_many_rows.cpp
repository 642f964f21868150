// expect: limits: a count of the program is outside what the tables or the kernels hold
// expect: number_and_limit<16, 8>
// 9 to 16 rows are two launches.
#include "../../core/slices_program.hpp"
#include "monolayer/core/proofs.hpp"

using namespace slices;

struct layers {
  static constexpr program_info info = [] {
    program_info p = program();
#ifndef MONOLAYER_FIXED
    p.max_rows = 16;
#endif
    return p;
  }();
};
static_assert(proven<layers>::value);
