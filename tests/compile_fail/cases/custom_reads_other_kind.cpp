// expect: writer_first: a stage reads a slot that no stage before it in its kind writes
// expect: in_kind<0, monolayer::refused::text<5>{"conv"}>
// expect: of_slot<2, monolayer::refused::text<4>{"act"}>
// The example's out-projection reads the MLP's slot: in a layer of its own kind nobody writes that.
#include "custom_layer/program.hpp"
#include "monolayer/core/proofs.hpp"

using namespace custom_layer;

struct edited : program<small_config> {
  static constexpr program_info info = [] {
    program_info p = program<small_config>::info;
#ifndef MONOLAYER_FIXED
    p.kinds[conv].stages[2].reads[0].slot = act;
#endif
    return p;
  }();
};
static_assert(proven<edited>::value);
