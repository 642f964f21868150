// expect: peers_tagged: between GPUs only tagged words travel
// expect: of_slot<7, monolayer::refused::text<8>{"partial"}>
// A payload and its arrival could pass each other between GPUs.
#include "../../core/slices_program.hpp"
#include "monolayer/core/proofs.hpp"

using namespace slices;

struct layers {
  static constexpr program_info info = [] {
    program_info p = program();
#ifndef MONOLAYER_FIXED
    p.slots[partial].transport = transport::counted;
    p.slots[partial].units = 3;
#endif
    return p;
  }();
};
static_assert(proven<layers>::value);
