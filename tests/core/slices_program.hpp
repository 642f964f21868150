// The two slices with GLM-5's sizes at TP4 as tables: a sound program that tests and compile_fail cases
// break.
#pragma once

#include "monolayer/core/graph.hpp"

namespace slices {

using namespace monolayer;

enum slot : int { qa, q, heads_done, hidden, logits, act_shared, act, partial, slot_count };
enum kind : int { slice_a, slice_b, kind_count };
enum stage_of_a : int { q_a, q_b, head_out };
enum stage_of_b : int { router, shared_gate_up, routed_gate_up, down, reduce };

constexpr program_info program() {
  constexpr int rows = 8, places = 8, width = 512, heads = 16, head = 256, model = 6144;
  constexpr int reduce_tiles = 128;
  program_info p;
  p.max_rows = rows;
  p.top_k = places;
  p.ranks = 4;
  p.fan_out_limit = 32'000'000;  // hidden at 8 rows: 98 KB to each of 256 blocks
  p.slot_count = slot_count;
  p.slots[qa] = {.name = "qa", .type = element::bf16, .columns = 2048, .units = 128};
  p.slots[q] = {.name = "q",
                .type = element::bf16,
                .columns = heads * head,
                .parts = heads,
                .units = head / 16,
                .scope = scope::group};
  p.slots[heads_done] = {.name = "heads_done", .units = heads};
  p.slots[hidden] = {
      .name = "hidden", .type = element::bf16, .columns = model, .units = reduce_tiles, .buffers = 2};
  p.slots[logits] = {.name = "logits", .type = element::f32, .columns = 256, .transport = transport::tagged};
  p.slots[act_shared] = {.name = "act_shared", .type = element::bf16, .columns = width, .units = width / 16};
  p.slots[act] = {
      .name = "act", .type = element::bf16, .columns = places * width, .units = rows * places * width / 16};
  // A reduce tile reads its own 48 columns of all ranks, so each slice is a part.
  p.slots[partial] = {.name = "partial",
                      .type = element::bf16,
                      .columns = model,
                      .parts = reduce_tiles,
                      .scope = scope::peers,
                      .transport = transport::tagged,
                      .buffers = 2};

  constexpr slot_read hidden_before{hidden, reach::all, true};
  constexpr slot_read heads_before{heads_done, reach::all, true};
  p.kind_count = kind_count;
  kind_info& a = p.kinds[slice_a];
  a.name = "slice_a";
  a.stage_count = 3;
  a.stages[q_a] = {.name = "q_a",
                   .tiles = 128,
                   .tile_columns = 16,
                   .reads = {hidden_before, heads_before},
                   .writes = qa,
                   .streamed = 1};
  a.stages[q_b] = {.name = "q_b",
                   .tiles = heads * head / 16,
                   .tile_columns = 16,
                   .reads = {{qa}},
                   .writes = q,
                   .by_group = true,
                   .streamed = 1};
  a.stages[head_out] = {
      .name = "head_out", .tiles = heads, .reads = {{q, reach::own}}, .writes = heads_done, .by_group = true};

  kind_info& b = p.kinds[slice_b];
  b.name = "slice_b";
  b.stage_count = 5;
  // The router also waits for an earlier slice_a: its q_a must have read `hidden` before two more layers
  // replace it.
  b.stages[router] = {.name = "router",
                      .tiles = 16,
                      .tile_columns = 16,
                      .reads = {hidden_before, heads_before},
                      .writes = logits,
                      .streamed = 1};
  b.stages[shared_gate_up] = {.name = "shared_gate_up",
                              .tiles = width / 16,
                              .tile_columns = 16,
                              .reads = {hidden_before},
                              .writes = act_shared,
                              .streamed = 2};
  b.stages[routed_gate_up] = {.name = "routed_gate_up",
                              .tiles = rows * places * width / 16,
                              .tile_columns = 16,
                              .routed = true,
                              .reads = {hidden_before, {logits}},
                              .writes = act,
                              .streamed = 2};
  b.stages[down] = {.name = "down",
                    .tiles = model / 16,
                    .tile_columns = 16,
                    .reads = {{act}, {act_shared}, {logits}},
                    .writes = partial,
                    .streamed = 1};
  b.stages[reduce] = {.name = "reduce",
                      .tiles = reduce_tiles,
                      .tile_columns = model / reduce_tiles,
                      .reads = {{partial, reach::own}, hidden_before},
                      .writes = hidden};
  return p;
}

}  // namespace slices
