// Two slices of a GLM-5 decoder layer, each a kind of layer of its own:
//   slice A: input RMSNorm and q_a; q_a's RMSNorm and q_b; q handed out head by head
//   slice B: post-attention RMSNorm, router, shared and routed experts, sum over the ranks, residual
// A launch walks any sequence of them. B writes the residual stream that the next A and B read.
#pragma once

#include "monolayer/config/configs.hpp"
#include "monolayer/device/kernel.hpp"
#include "monolayer/stages/moe.hpp"

namespace monolayer {

template <class C>
struct slices {
  using config = C;
  enum kind_id { slice_a, slice_b };
  enum slot_id { qa, q, heads_done, hidden, logits, act_shared, act, partial, slot_count };
  // layer_entry::data of the two kinds
  enum data_a { input_norm, q_a_weights, q_a_norm, q_b_weights };
  enum data_b { post_norm, router_weights, router_bias, shared_gate_up, shared_down, routed_gate_up, routed_down };

  static constexpr int width = C::expert_width;
  static constexpr int q_columns = C::heads * C::head_dim;

  using hidden_k = weight_tile<bf16_weights, C::hidden>;
  using normed_a = inputs::normed_stream<1, hidden, C::hidden, hidden_k::padded_k, input_norm, C::input_eps>;
  using normed_qa = inputs::normed_slot<2, qa, C::q_lora, weight_tile<bf16_weights, C::q_lora>::padded_k, q_a_norm,
                                        C::q_a_eps>;
  // A layer is of one kind, so both kinds may call it input 1: where the norms agree it is one type, compiled once.
  using normed_b = inputs::normed_stream<1, hidden, C::hidden, hidden_k::padded_k, post_norm, C::post_eps>;
  using routes = inputs::routing<logits, C::router_splits, router_bias>;
  using activations =
      inputs::expert_activations<4, act, act_shared, width, weight_tile<bf16_weights, width>::padded_k>;

  using q_a_stage = stages::projection<normed_a, stages::to_slot<qa>, C::hidden, C::q_lora, typename C::attention_weights, q_a_weights>;
  using q_b_stage = stages::projection<normed_qa, stages::to_slot<q>, C::q_lora, q_columns, typename C::attention_weights, q_b_weights>;
  using heads_stage = stages::store_heads<q, C::heads, C::head_dim>;
  using router_stage = stages::projection<normed_b, stages::to_f32_slot<logits>, C::hidden, C::experts, bf16_weights,
                                          router_weights, C::router_splits>;
  using shared_stage =
      stages::gate_up<normed_b, act_shared, C::hidden, width, typename C::expert_weights, shared_gate_up>;
  using routed_stage = stages::routed_gate_up<inputs::both<normed_b, routes>, act, C::hidden, width,
                                              typename C::expert_weights, routed_gate_up>;
  using down_stage = stages::experts_down<inputs::both<routes, activations>, partial, C::hidden, width,
                                          typename C::expert_weights, shared_down, routed_down>;
  using reduce_stage = stages::all_reduce<partial, stages::stream_residual<hidden>, hidden, C::hidden, C::reduce_columns, true>;

  enum code_id { q_a_code, q_b_code, heads_code, router_code, shared_code, routed_code, down_code, reduce_code };
  using codes = code_list<q_a_stage, q_b_stage, heads_stage, router_stage, shared_stage, routed_stage, down_stage,
                          reduce_stage>;

  static constexpr program_info make_info() {
    constexpr int f = tile_features;
    constexpr int routed_tiles = C::max_rows * C::top_k * routed_stage::column_tiles;
    program_info p{.max_rows = C::max_rows, .top_k = C::top_k, .ranks = C::ranks, .slot_count = slot_count};
    p.slots[qa] = slot_info{.name = "qa", .type = element::bf16, .columns = C::q_lora, .units = q_a_stage::tiles};
    p.slots[q] = slot_info{.name = "q", .type = element::bf16, .columns = q_columns, .parts = C::heads,
                  .units = C::head_dim / f, .scope = scope::group};
    p.slots[heads_done] = slot_info{.name = "heads_done", .units = C::heads};
    p.slots[hidden] = slot_info{.name = "hidden", .type = element::bf16, .columns = C::hidden,
                       .units = reduce_stage::tiles, .buffers = 2};
    p.slots[logits] = slot_info{.name = "logits", .type = element::f32, .columns = C::router_splits * C::experts,
                       .transport = transport::tagged};
    p.slots[act_shared] = slot_info{.name = "act_shared", .type = element::bf16, .columns = width,
                           .units = shared_stage::tiles};
    p.slots[act] = slot_info{.name = "act", .type = element::bf16, .columns = C::top_k * width, .units = routed_tiles};
    p.slots[partial] = slot_info{.name = "partial", .type = element::bf16, .columns = C::hidden,
                        .parts = reduce_stage::tiles, .scope = scope::peers, .transport = transport::tagged,
                        .buffers = 2};
    // Eight rows' residual streams and activations are read by every block; fewer rows read less.
    p.fan_out_limit = 40'000'000;

    p.kind_count = 2;
    p.kinds[slice_a] = kind_info{
        .name = "slice_a",
        .stage_count = 3,
        .stages = {{.name = "q_a", .code = q_a_code, .tiles = q_a_stage::tiles, .tile_columns = f,
                    .reads = {{hidden, reach::all, true}, {heads_done, reach::all, true}}, .writes = qa, .streamed = 1},
                   {.name = "q_b", .code = q_b_code, .tiles = q_b_stage::tiles, .tile_columns = f, .reads = {{qa, reach::all}}, .writes = q,
                    .by_group = true, .streamed = 1},
                   {.name = "store_heads", .code = heads_code, .tiles = C::heads, .reads = {{q, reach::own}}, .writes = heads_done,
                    .by_group = true}}};
    p.kinds[slice_b] = kind_info{
        .name = "slice_b",
        .stage_count = 5,
        .stages = {{.name = "router", .code = router_code, .tiles = router_stage::tiles, .tile_columns = f,
                    // A slice A before this layer reads the stream too: it must be done before B writes it again.
                    .reads = {{hidden, reach::all, true}, {heads_done, reach::all, true}}, .writes = logits,
                    .streamed = 1},
                   {.name = "shared_gate_up", .code = shared_code, .tiles = shared_stage::tiles, .tile_columns = f,
                    .reads = {{hidden, reach::all, true}}, .writes = act_shared, .streamed = 1},
                   {.name = "routed_gate_up", .code = routed_code, .tiles = routed_tiles, .tile_columns = f, .routed = true,
                    .reads = {{hidden, reach::all, true}, {logits, reach::all}}, .writes = act, .streamed = 1},
                   {.name = "down", .code = down_code, .tiles = down_stage::tiles, .tile_columns = f,
                    .reads = {{act_shared, reach::all}, {act, reach::all}, {logits, reach::all}}, .writes = partial, .streamed = 2},
                   {.name = "reduce", .code = reduce_code, .tiles = reduce_stage::tiles, .tile_columns = C::reduce_columns,
                    .reads = {{partial, reach::own}, {hidden, reach::all, true}}, .writes = hidden}}};
    return p;
  }
  static constexpr program_info info = make_info();

  // What the router needs besides the tables.
  static constexpr int experts = C::experts;
  static constexpr float routed_scaling = C::routed_scaling;
  MONOLAYER_HOST_DEVICE static u32 router_key(float score, float bias) { return ordered_key(add(score, bias)); }

  static constexpr u32 largest(u32 a, u32 b) { return a > b ? a : b; }
  static constexpr u32 largest_chunk = codes::largest_chunk;
  static constexpr u32 staged_bytes_per_row =
      largest(largest(hidden_k::padded_k, weight_tile<bf16_weights, C::q_lora>::padded_k),
              (C::top_k + 1) * down_stage::weights::padded_k) * 2 + staged_row_pad;
};

}  // namespace monolayer
