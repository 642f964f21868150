// The configurations that the library offers and that continuous integration compiles for every target. A config is
// one struct of constants and aliases; derive from one of these to change a choice.
#pragma once

#include "monolayer/core/weight_layout.hpp"

namespace monolayer {

/// The slices of one GLM-5 MoE layer on one of `TP` ranks (GLM-5, 5.1, 5.2; Hugging Face glm_moe_dsa).
template <int TP>
struct glm5_slices {
  static_assert(TP == 1 || TP == 2 || TP == 4 || TP == 8, "glm5_slices: TP is 1, 2, 4 or 8");
  static constexpr int ranks = TP;
  // At TP1 eight rows' expert activations would not fit beside the ring: more rows are several launches.
  static constexpr int max_rows = TP == 1 ? 3 : 8;
  static constexpr int hidden = 6144;
  static constexpr int q_lora = 2048;
  static constexpr int heads = 64 / TP;
  static constexpr int head_dim = 256;
  static constexpr int experts = 256;
  static constexpr int top_k = 8;
  static constexpr int expert_width = 2048 / TP;
  static constexpr float routed_scaling = 2.5f;
  static constexpr float input_eps = 1e-5f, q_a_eps = 1e-6f, post_eps = 1e-5f;
  static constexpr int router_splits = 4;    // the router's k is cut so: 64 tiles
  static constexpr int reduce_columns = 48;  // of a tile of the all-reduce: 128 tiles
  using attention_weights = fp8_block<128, 128>;
  using expert_weights = mxfp4;
};

/// The same with as many rows as 64 KiB of LDS stage beside a ring of weight chunks (gfx942): more rows are several
/// launches.
template <int TP>
struct gfx942_slices : glm5_slices<TP> {
  static constexpr int max_rows = 2;
};

/// A small layer of the same shape, for tests and for trying things out.
template <int TP>
struct small_slices {
  static constexpr int ranks = TP;
  static constexpr int max_rows = 8;
  static constexpr int hidden = 512;
  static constexpr int q_lora = 256;
  static constexpr int heads = 8 / TP;
  static constexpr int head_dim = 64;
  static constexpr int experts = 16;
  static constexpr int top_k = 4;
  static constexpr int expert_width = 512 / TP;
  static constexpr float routed_scaling = 2.5f;
  static constexpr float input_eps = 1e-5f, q_a_eps = 1e-6f, post_eps = 1e-5f;
  static constexpr int router_splits = 2;
  static constexpr int reduce_columns = 32;
  using attention_weights = fp8_block<128, 128>;
  using expert_weights = mxfp4;
};

/// Any of them with bf16 weights throughout.
template <class Config>
struct with_bf16_weights : Config {
  using attention_weights = bf16_weights;
  using expert_weights = bf16_weights;
};

}  // namespace monolayer
