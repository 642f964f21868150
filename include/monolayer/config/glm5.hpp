// Configurations of whole GLM-5 decoder layers (Hugging Face model type glm_moe_dsa), each for one of TP ranks. A config
// is one struct of constants and aliases: derive from one to change a choice.
#pragma once

#include "monolayer/core/cache_layout.hpp"
#include "monolayer/core/index_cache_layout.hpp"
#include "monolayer/core/weight_layout.hpp"

namespace monolayer {

/// GLM-5, 5.1 and 5.2 on one of TP ranks: FP8 attention in 128 x 128 blocks, MXFP4 experts, bf16 caches.
template <int TP>
struct glm5_layer {
  static_assert(TP == 1 || TP == 2 || TP == 4 || TP == 8, "glm5_layer: TP is 1, 2, 4 or 8");
  static constexpr int ranks = TP;
  // Eight rows' activations fit the LDS from TP4 on: more rows are several launches.
  static constexpr int max_rows = TP == 1 ? 3 : TP == 2 ? 6 : 8;

  static constexpr int hidden = 6144;
  static constexpr int q_lora = 2048;
  static constexpr int kv_lora = 512;
  static constexpr int heads = 64 / TP;  // of a rank
  static constexpr int nope = 192, rope = 64, v_dim = 256;
  static constexpr float softmax_scale = 0.0625f;  // (nope + rope)^-1/2; no scaled RoPE
  static constexpr float input_eps = 1e-5f, q_a_eps = 1e-6f, kv_a_eps = 1e-6f, post_eps = 1e-5f;

  static constexpr int index_heads = 32;
  static constexpr int index_dim = 128;
  static constexpr int index_topk = 2048;
  static constexpr int index_stripes = 32;      // tiles that share a row's keys
  static constexpr int max_context = 131072;    // tokens of a request; 4 bytes of scratch each and row
  static constexpr int kv_splits = 32;          // a row's list is cut into as many ranges of one length
  static constexpr int heads_at_once = heads < 16 ? heads : 16;  // of an attention tile

  static constexpr int experts = 256;
  static constexpr int top_k = 8;
  static constexpr int expert_width = 2048 / TP;
  static constexpr int dense_slices = 6;  // a dense MLP is so many expert-shaped ones
  static constexpr float routed_scaling = 2.5f;
  static constexpr int router_splits = 4;    // the router's k is cut so: 64 tiles
  static constexpr int reduce_columns = 48;  // of a tile of the all-reduce: 128 tiles

  using attention_weights = fp8_block<128, 128>;
  using index_weights = fp8_block<128, 128>;
  using expert_weights = mxfp4;
  using kv_cache = bf16_rows;
  using index_cache = bf16_keys;
};

/// The same with as many rows and cache rows as fit 64 KiB of LDS (gfx942): more rows are several launches.
template <class Config>
struct gfx942_layer : Config {
  static constexpr int max_rows = 2;
};

/// A small model of the same shape that a laptop's simulator can run (tests/data/golden).
template <int TP>
struct micro_layer : glm5_layer<TP> {
  static constexpr int max_rows = 8;
  static constexpr int hidden = 256;
  static constexpr int q_lora = 128;
  static constexpr int heads = 8 / TP;
  static constexpr int nope = 64, v_dim = 64;
  static constexpr float softmax_scale = 0.08838834764831845f;
  static constexpr int index_heads = 8;
  static constexpr int index_topk = 64;
  static constexpr int index_stripes = 4;
  static constexpr int max_context = 4096;
  static constexpr int kv_splits = 2;
  static constexpr int heads_at_once = heads;
  static constexpr int experts = 8;
  static constexpr int top_k = 2;
  static constexpr int expert_width = 256 / TP;
  static constexpr int dense_slices = 2;
  static constexpr int router_splits = 2;
  static constexpr int reduce_columns = 16;
};

/// The same with GLM-5's own head sizes.
template <int TP>
struct tiny_layer : micro_layer<TP> {
  static constexpr int hidden = 512;
  static constexpr int q_lora = 256;
  static constexpr int nope = 192, v_dim = 256;
  static constexpr float softmax_scale = 0.0625f;
  static constexpr int index_topk = 96;
  static constexpr int kv_splits = 3;
  static constexpr int experts = 16;
  static constexpr int top_k = 8;
  static constexpr int dense_slices = 4;
};

/// The same with experts wide enough for eight ranks without padding.
template <int TP>
struct mini_layer : tiny_layer<TP> {
  static constexpr int expert_width = 1024 / TP;
  static constexpr int dense_slices = 2;
};

// ---- choices of formats, for any of them

template <class Config>
struct with_bf16_layer : Config {
  using attention_weights = bf16_weights;
  using index_weights = bf16_weights;
  using expert_weights = bf16_weights;
};
/// FP8 checkpoints: every quantised matrix in blocks of 128 x 128.
template <class Config>
struct with_fp8_layer : Config {
  using attention_weights = fp8_block<128, 128>;
  using index_weights = fp8_block<128, 128>;
  using expert_weights = fp8_block<128, 128>;
};
/// MXFP4 checkpoints: MXFP4 experts, FP8 attention with a factor for each channel, bf16 indexer.
template <class Config>
struct with_mxfp4_layer : Config {
  using attention_weights = fp8_channel;
  using index_weights = bf16_weights;
  using expert_weights = mxfp4;
};
/// vLLM's FP8 caches on ROCm: 576-byte rows without scales, index keys in shuffled pages.
template <class Config>
struct with_fp8_caches : Config {
  using kv_cache = fp8_rows;
  using index_cache = fp8_keys<shuffled_16x16>;
};

}  // namespace monolayer
