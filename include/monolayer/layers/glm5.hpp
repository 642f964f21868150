// A whole GLM-5 decoder layer as one list of stages, in four kinds that a launch walks in any order:
//   dense, moe                 with an indexer of their own
//   dense_listed, moe_listed   they attend to the picks of the newest layer of the span that has an indexer, or to the
//                              caller's list (batch_view::list) where the span has none before them
// A rank holds heads / TP heads and width / TP of each expert; the projections to latents and the indexer are replicated.
#pragma once

#include "monolayer/config/glm5.hpp"
#include "monolayer/device/copied_rows.hpp"
#include "monolayer/device/kernel.hpp"
#include "monolayer/stages/cache_rows.hpp"
#include "monolayer/stages/index_top_k.hpp"
#include "monolayer/stages/indexer.hpp"
#include "monolayer/stages/mla.hpp"
#include "monolayer/stages/moe.hpp"

namespace monolayer {

template <class C>
struct glm5 {
  using config = C;
  enum kind_id { dense, dense_listed, moe, moe_listed, kind_count };
  enum slot_id {
    qa, kv, ik, iw, q, iq, own, ql, scores, picks, o_part, o, attn_partial, mid, logits, act_shared, act, mlp_partial,
    hidden, slot_count
  };
  // layer_entry::data; a kind leaves what it does not need null
  enum data_id {
    input_norm, q_a_weights, kv_a_weights, q_a_norm, kv_a_norm, q_b_weights, nope_factors, uk_weights, uv_weights,
    o_weights, post_norm, router_weights, router_bias, shared_gate_up, shared_down, routed_gate_up, routed_down,
    index_q_weights, index_k_weights, index_head_weights, index_norm_weight, index_norm_bias, kv_cache, index_cache,
    picks_out, data_count
  };
  static_assert(data_count <= max_layer_data);

  // What the pipeline and the router ask for besides the tables.
  static constexpr int experts = C::experts;
  static constexpr float routed_scaling = C::routed_scaling;
  static constexpr int max_context = C::max_context;
  MONOLAYER_HOST_DEVICE static u32 router_key(float score, float bias) { return ordered_key(add(score, bias)); }

  // ---- inputs
  template <int K>
  static constexpr int padded = weight_tile<bf16_weights, K>::padded_k;
  static constexpr int head_dim = C::nope + C::rope, width = C::expert_width;
  static constexpr int padded_experts = int(align_up(C::experts, tile_features));
  static constexpr int padded_index_heads = int(align_up(C::index_heads, tile_features));
  using attention_weights = typename C::attention_weights;
  using expert_weights = typename C::expert_weights;
  using stream = inputs::normed_stream<1, hidden, C::hidden, padded<C::hidden>, input_norm, C::input_eps>;
  using latent = inputs::normed_slot<2, qa, C::q_lora, padded<C::q_lora>, q_a_norm, C::q_a_eps>;
  using heads_out = inputs::copied_slot<3, o, C::heads * C::v_dim, padded<C::heads * C::v_dim>>;
  using after_attention = inputs::normed_slot<4, mid, C::hidden, padded<C::hidden>, post_norm, C::post_eps>;
  using routes = inputs::routing_or_dense<logits, C::router_splits, router_bias, C::dense_slices>;
  using activations = inputs::expert_activations<5, act, act_shared, width, padded<width>>;

  // ---- stages
  /// FP8 attention by channel: kv_b's factors of the rows that W_UK is made of multiply q before it is rounded.
  static constexpr bool factors_in_q = std::is_same_v<attention_weights, fp8_channel>;
  using q_target = stages::to_rotated_slot<q, head_dim, C::nope, C::rope, factors_in_q ? int(nope_factors) : -1>;
  using iq_target = stages::to_rotated_slot<iq, C::index_dim, 0, C::rope>;

  using q_a_stage = stages::projection<stream, stages::to_slot<qa>, C::hidden, C::q_lora, attention_weights, q_a_weights>;
  using kv_a_stage = stages::projection<stream, stages::to_f32_slot<kv>, C::hidden, C::kv_lora + C::rope,
                                        attention_weights, kv_a_weights>;
  using index_k_stage = stages::projection<stream, stages::to_f32_slot<ik>, C::hidden, C::index_dim,
                                           typename C::index_weights, index_k_weights>;
  using index_w_stage = stages::projection<stream, stages::to_f32_slot<iw>, C::hidden, padded_index_heads, bf16_weights,
                                           index_head_weights>;
  using q_b_stage = stages::projection<latent, q_target, C::q_lora, C::heads * head_dim, attention_weights, q_b_weights>;
  using index_q_stage = stages::projection<latent, iq_target, C::q_lora, C::index_heads * C::index_dim,
                                           typename C::index_weights, index_q_weights>;
  using rows_stage = stages::cache_rows<C, kv, ik, own, kv_a_norm, index_norm_weight, index_norm_bias, kv_cache,
                                        index_cache>;
  using absorb_stage = stages::absorb<C, q, ql, uk_weights>;
  using scores_stage = stages::index_scores<iq, iw, own, scores, C::index_heads, typename C::index_cache,
                                            int(C::kv_cache::bytes), C::index_stripes, index_cache>;
  using top_k_stage = stages::index_top_k<scores, picks, C::index_topk, picks_out>;
  static constexpr int picks_columns = C::index_topk + 4;
  using attention_stage = stages::attention<C, q, ql, picks, own, o_part, kv_cache>;
  using v_up_stage = stages::v_up<C, attention_stage, o_part, o, uv_weights>;
  using o_stage = stages::projection<heads_out, stages::to_mailbox<attn_partial>, C::heads * C::v_dim, C::hidden,
                                     attention_weights, o_weights>;
  using attn_sum_stage = stages::all_reduce<attn_partial, stages::stream_residual<hidden>, mid, C::hidden,
                                            C::reduce_columns, false>;
  using router_stage = stages::projection<after_attention, stages::to_f32_slot<logits>, C::hidden, padded_experts,
                                          bf16_weights, router_weights, C::router_splits>;
  using shared_stage = stages::gate_up<after_attention, act_shared, C::hidden, width, expert_weights, shared_gate_up>;
  using routed_stage = stages::routed_gate_up<inputs::both<after_attention, routes>, act, C::hidden, width,
                                              expert_weights, routed_gate_up>;
  using down_stage = stages::experts_down<inputs::both<routes, activations>, mlp_partial, C::hidden, width,
                                          expert_weights, shared_down, routed_down>;
  using mlp_sum_stage = stages::all_reduce<mlp_partial, stages::slot_residual<mid>, hidden, C::hidden,
                                           C::reduce_columns, true>;
  enum code_id {
    q_a_code, kv_a_code, index_k_code, index_w_code, q_b_code, index_q_code, rows_code, absorb_code, scores_code,
    top_k_code, attention_code, v_up_code, o_code, attn_sum_code, router_code, shared_code, routed_code, down_code,
    mlp_sum_code
  };
  using codes = code_list<q_a_stage, kv_a_stage, index_k_stage, index_w_stage, q_b_stage, index_q_stage, rows_stage,
                          absorb_stage, scores_stage, top_k_stage, attention_stage, v_up_stage, o_stage, attn_sum_stage,
                          router_stage, shared_stage, routed_stage, down_stage, mlp_sum_stage>;

  // ---- tables
  static constexpr kind_info make_kind(const char* name, bool indexer, bool routed) {
    constexpr int f = tile_features;
    constexpr slot_read before{hidden, reach::all, true};
    kind_info kind{.name = name};
    auto add = [&](stage_info s) { kind.stages[kind.stage_count++] = s; };
    const slot_read key = indexer ? slot_read{ik} : slot_read{};
    const slot_read router = routed ? slot_read{logits} : slot_read{};
    add(stage_info{.name = "q_a", .code = q_a_code, .tiles = q_a_stage::tiles, .tile_columns = f, .reads = {before},
                   .writes = qa, .streamed = 1});
    add(stage_info{.name = "kv_a", .code = kv_a_code, .tiles = kv_a_stage::tiles, .tile_columns = f, .reads = {before},
                   .writes = kv, .streamed = 1});
    if (indexer) {
      add(stage_info{.name = "index_k", .code = index_k_code, .tiles = index_k_stage::tiles, .tile_columns = f,
                     .reads = {before}, .writes = ik, .streamed = 1});
      add(stage_info{.name = "index_w", .code = index_w_code, .tiles = index_w_stage::tiles, .tile_columns = f,
                     .reads = {before}, .writes = iw, .streamed = 1});
    }
    add(stage_info{.name = "q_b", .code = q_b_code, .tiles = q_b_stage::tiles, .tile_columns = f, .reads = {{qa}},
                   .writes = q, .streamed = 1});
    if (indexer)
      add(stage_info{.name = "index_q", .code = index_q_code, .tiles = index_q_stage::tiles, .tile_columns = f,
                     .reads = {{qa}}, .writes = iq, .streamed = 1});
    add(stage_info{.name = "cache_rows", .code = rows_code, .tiles = C::max_rows, .tile_columns = rows_stage::own_columns,
                   .by_row = true, .reads = {{kv}, key}, .writes = own});
    add(stage_info{.name = "absorb", .code = absorb_code, .tiles = absorb_stage::tiles,
                   .tile_columns = absorb_stage::tile_columns, .reads = {{q, reach::own}}, .writes = ql, .streamed = 1});
    if (indexer) {
      add(stage_info{.name = "scores", .code = scores_code, .tiles = C::max_rows * C::index_stripes,
                     .tile_columns = C::max_context / C::index_stripes, .by_row = true, .reads = {{iq}, {iw}, {own}},
                     .writes = scores});
      add(stage_info{.name = "top_k", .code = top_k_code, .tiles = C::max_rows, .tile_columns = picks_columns,
                     .by_row = true, .reads = {{scores, reach::own}}, .writes = picks});
    }
    add(stage_info{.name = "attention", .code = attention_code, .tiles = attention_stage::tiles,
                   .tile_columns = attention_stage::tile_columns, .by_row = true,
                   .reads = {{ql}, {q}, {own}, {picks, reach::all, !indexer}}, .writes = o_part});
    add(stage_info{.name = "v_up", .code = v_up_code, .tiles = v_up_stage::tiles, .tile_columns = v_up_stage::tile_columns,
                   .reads = {{o_part, reach::own, false, C::heads_at_once}}, .writes = o, .streamed = 1});
    add(stage_info{.name = "o_proj", .code = o_code, .tiles = o_stage::tiles, .tile_columns = f, .reads = {{o}},
                   .writes = attn_partial, .streamed = 1});
    add(stage_info{.name = "attention_sum", .code = attn_sum_code, .tiles = attn_sum_stage::tiles,
                   .tile_columns = C::reduce_columns, .reads = {{attn_partial, reach::own}, before}, .writes = mid});
    if (routed)
      add(stage_info{.name = "router", .code = router_code, .tiles = router_stage::tiles, .tile_columns = f,
                     .reads = {{mid}}, .writes = logits, .streamed = 1});
    add(stage_info{.name = "shared_gate_up", .code = shared_code, .tiles = shared_stage::tiles, .tile_columns = f,
                   .reads = {{mid}}, .writes = act_shared, .streamed = 1});
    add(stage_info{.name = "routed_gate_up", .code = routed_code, .tiles = routed_tiles, .tile_columns = f, .routed = true,
                   .reads = {{mid}, router}, .writes = act, .streamed = 1});
    add(stage_info{.name = "down", .code = down_code, .tiles = down_stage::tiles, .tile_columns = f,
                   .reads = {{act_shared}, {act}, router}, .writes = mlp_partial, .streamed = 2});
    add(stage_info{.name = "mlp_sum", .code = mlp_sum_code, .tiles = mlp_sum_stage::tiles,
                   .tile_columns = C::reduce_columns, .reads = {{mlp_partial, reach::own}, {mid}}, .writes = hidden});
    return kind;
  }
  static constexpr int routed_tiles = C::max_rows * C::top_k * routed_stage::column_tiles;

  static constexpr program_info make_info() {
    constexpr element b16 = element::bf16, f32 = element::f32;
    program_info p{.max_rows = C::max_rows, .top_k = C::top_k, .ranks = C::ranks, .slot_count = slot_count};
    const auto mailbox = [](const char* name, int parts) {
      return slot_info{.name = name, .type = element::bf16, .columns = C::hidden, .parts = parts, .scope = scope::peers,
                       .transport = transport::tagged, .buffers = 2};
    };
    p.slots[qa] = slot_info{.name = "qa", .type = b16, .columns = C::q_lora, .units = q_a_stage::tiles};
    p.slots[kv] = slot_info{.name = "kv", .type = f32, .columns = C::kv_lora + C::rope, .units = kv_a_stage::tiles};
    p.slots[ik] = slot_info{.name = "ik", .type = f32, .columns = C::index_dim, .units = index_k_stage::tiles};
    p.slots[iw] = slot_info{.name = "iw", .type = f32, .columns = padded_index_heads, .units = index_w_stage::tiles};
    p.slots[q] = slot_info{.name = "q", .type = b16, .columns = C::heads * head_dim, .parts = C::heads,
                           .units = head_dim / tile_features};
    p.slots[iq] = slot_info{.name = "iq", .type = b16, .columns = C::index_heads * C::index_dim,
                            .units = index_q_stage::tiles};
    p.slots[own] = slot_info{.name = "own", .type = b16, .columns = rows_stage::own_columns, .units = C::max_rows};
    p.slots[ql] = slot_info{.name = "ql", .type = b16, .columns = C::heads * C::kv_lora, .parts = C::heads,
                            .units = absorb_stage::tiles / C::heads};
    p.slots[scores] = slot_info{.name = "scores", .type = f32, .columns = C::max_context, .parts = C::max_rows,
                                .units = C::index_stripes};
    p.slots[picks] = slot_info{.name = "picks", .type = element::u32, .columns = picks_columns,
                               .units = C::max_rows};
    p.slots[o_part] = slot_info{.name = "o_part", .type = f32,
                                .columns = attention_stage::part_columns, .parts = attention_stage::groups,
                                .units = attention_stage::tiles / attention_stage::groups};
    p.slots[o] = slot_info{.name = "o", .type = b16, .columns = C::heads * C::v_dim, .units = v_up_stage::tiles};
    p.slots[attn_partial] = mailbox("attn_partial", attn_sum_stage::tiles);
    p.slots[mid] = slot_info{.name = "mid", .type = b16, .columns = C::hidden, .units = attn_sum_stage::tiles};
    p.slots[logits] = slot_info{.name = "logits", .type = f32, .columns = C::router_splits * padded_experts,
                                .transport = transport::tagged};
    p.slots[act_shared] = slot_info{.name = "act_shared", .type = b16, .columns = width, .units = shared_stage::tiles};
    p.slots[act] = slot_info{.name = "act", .type = b16, .columns = C::top_k * width, .units = routed_tiles};
    p.slots[mlp_partial] = mailbox("mlp_partial", mlp_sum_stage::tiles);
    p.slots[hidden] = slot_info{.name = "hidden", .type = b16, .columns = C::hidden, .units = mlp_sum_stage::tiles,
                                .buffers = 2};
    // Eight rows' residual streams and activations are read by every block; fewer rows read less.
    p.fan_out_limit = 40'000'000;
    p.kind_count = kind_count;
    p.kinds[dense] = make_kind("dense", true, false);
    p.kinds[dense_listed] = make_kind("dense_listed", false, false);
    p.kinds[moe] = make_kind("moe", true, true);
    p.kinds[moe_listed] = make_kind("moe_listed", false, true);
    return p;
  }
  static constexpr program_info info = make_info();

  // ---- sizes in LDS
  template <class... Tiles>
  static constexpr u32 most(Tiles... sizes) {
    u32 all = 0;
    ((all = u32(sizes) > all ? u32(sizes) : all), ...);
    return all;
  }
  static constexpr u32 largest_chunk = codes::largest_chunk;
  static constexpr u32 staged_bytes_per_row =
      most(padded<C::hidden>, padded<C::q_lora>, padded<C::heads * C::v_dim>, (C::top_k + 1) * padded<width>) * 2 +
      staged_row_pad;
  template <class T>
  static constexpr u32 least_staged_bytes =
      most(absorb_stage::template scratch_bytes<T>, scores_stage::template scratch_bytes<T>,
           top_k_stage::template scratch_bytes<T>, attention_stage::template scratch_bytes<T>,
           v_up_stage::template scratch_bytes<T>);
};

}  // namespace monolayer
