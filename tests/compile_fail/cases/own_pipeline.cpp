// expect: writer_first: a stage reads a slot that no stage before it in its kind writes
// expect: in_stage<1, monolayer::refused::text<8>{"project"}>
// expect: of_slot<1, monolayer::refused::text<8>{"squared"}>
// A pipeline of one's own from nothing: the second stage reads its own output instead of the first one's.
#include "monolayer/core/proofs.hpp"

using namespace monolayer;

struct two_stages {
  static constexpr program_info info = [] {
    program_info p{.max_rows = 4, .slot_count = 2, .kind_count = 1};
    p.slots[0] = {.name = "stream", .type = element::bf16, .columns = 512, .units = 32, .buffers = 2};
    p.slots[1] = {.name = "squared", .type = element::bf16, .columns = 512, .units = 8};
    p.kinds[0].name = "layer";
    p.kinds[0].stage_count = 2;
    p.kinds[0].stages[0] = {
        .name = "square", .tiles = 8, .tile_columns = 64, .reads = {{0, reach::all, true}}, .writes = 1};
    p.kinds[0].stages[1] = {.name = "project", .tiles = 32, .tile_columns = 16, .reads = {{1}}, .writes = 0};
#ifndef MONOLAYER_FIXED
    p.kinds[0].stages[0].writes = -1;
    p.kinds[0].stages[1].writes = 1;
#endif
    return p;
  }();
};
static_assert(proven<two_stages>::value);
