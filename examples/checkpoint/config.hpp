// A GLM-5 model's config.json (model_type glm_moe_dsa). What the library's layer cannot compute is refused
// here, by name.
//
// Defaults and rules are those of transformers' GlmMoeDsaConfig. The lists mlp_layer_types and indexer_types
// win over the numbers that they were made from: implementations disagree on those numbers' meaning.
#pragma once

#include <cmath>
#include <vector>

#include "checkpoint/mapped_file.hpp"

namespace monolayer::examples {

struct glm5_model_config {
  int hidden = 0, vocab = 0, layers = 0, max_positions = 0;
  int heads = 0, q_lora = 0, kv_lora = 0, nope = 0, rope = 0, v_dim = 0;
  int index_heads = 0, index_dim = 0, index_topk = 0;
  int experts = 0, top_k = 0, expert_width = 0, dense_width = 0;
  double routed_scaling = 0, rope_theta = 0;
  double layer_norm_eps = 0;               // rms_norm_eps: input, post-attention and final norm
  double q_a_eps = 1e-6, kv_a_eps = 1e-6;  // transformers builds these two norms with its class's default
  double index_norm_eps = 1e-6;            // of the indexer's LayerNorm, a constant too
  bool tied_embeddings = false;            // the LM head is the embedding table
  std::vector<bool> moe;                   // [layers]: experts, or a dense MLP
  std::vector<bool> indexer;  // [layers]: runs its indexer, or takes the picks of the last layer that did
  std::vector<int> eos;       // token ids that end a text

  int head_dim() const { return nope + rope; }
  double softmax_scale() const { return 1 / std::sqrt(double(head_dim())); }
  int dense_slices() const {
    return dense_width / expert_width;
  }  // a dense MLP is the sum of that many experts
};

/// Errors: which field of `file`, what was seen, what is wanted.
result<glm5_model_config> parse_config(const json& object, const std::string& file);
result<glm5_model_config> read_config(const std::filesystem::path& path);

}  // namespace monolayer::examples
