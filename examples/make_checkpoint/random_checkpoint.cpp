// config.json in full, and tensors with the names and shapes that a GLM-5 checkpoint has.
#include "make_checkpoint/random_checkpoint.hpp"

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "reference/synthesis.hpp"

namespace monolayer::examples {

glm5_model_config mini_config() {
  glm5_model_config c;
  c.hidden = 512;
  c.vocab = 512;
  c.layers = 3;
  c.max_positions = 4096;
  c.heads = 8;
  c.q_lora = 256;
  c.kv_lora = 512;
  c.nope = 192;
  c.rope = 64;
  c.v_dim = 256;
  c.index_heads = 8;
  c.index_dim = 128;
  c.index_topk = 96;
  c.experts = 16;
  c.top_k = 8;
  c.expert_width = 1024;
  c.dense_width = 2048;
  c.routed_scaling = 2.5;
  c.rope_theta = 1e6;
  c.layer_norm_eps = 1e-5;
  c.moe = {false, true, true};
  c.indexer = {true, true, false};
  return c;
}

json config_json(const glm5_model_config& c, const checkpoint_formats& formats) {
  json mlp = json::array(), indexer = json::array();
  for (bool moe : c.moe) mlp.push_back(moe ? "sparse" : "dense");
  for (bool full : c.indexer) indexer.push_back(full ? "full" : "shared");
  json config = {{"architectures", {"GlmMoeDsaForCausalLM"}},
                 {"attention_bias", false},
                 {"dtype", "bfloat16"},
                 {"eos_token_id", c.eos.empty() ? json() : json(c.eos)},
                 {"hidden_act", "silu"},
                 {"hidden_size", c.hidden},
                 {"index_head_dim", c.index_dim},
                 {"index_n_heads", c.index_heads},
                 {"index_topk", c.index_topk},
                 {"indexer_types", indexer},
                 {"intermediate_size", c.dense_width},
                 {"kv_lora_rank", c.kv_lora},
                 {"max_position_embeddings", c.max_positions},
                 {"mlp_layer_types", mlp},
                 {"model_type", "glm_moe_dsa"},
                 {"moe_intermediate_size", c.expert_width},
                 {"n_group", 1},
                 {"n_routed_experts", c.experts},
                 {"n_shared_experts", 1},
                 {"norm_topk_prob", true},
                 {"num_attention_heads", c.heads},
                 {"num_experts_per_tok", c.top_k},
                 {"num_hidden_layers", c.layers},
                 {"num_key_value_heads", c.heads},
                 {"q_lora_rank", c.q_lora},
                 {"qk_head_dim", c.head_dim()},
                 {"qk_nope_head_dim", c.nope},
                 {"qk_rope_head_dim", c.rope},
                 {"rms_norm_eps", c.layer_norm_eps},
                 {"rope_parameters", {{"rope_theta", c.rope_theta}, {"rope_type", "default"}}},
                 {"routed_scaling_factor", c.routed_scaling},
                 {"tie_word_embeddings", c.tied_embeddings},
                 {"topk_group", 1},
                 {"v_head_dim", c.v_dim},
                 {"vocab_size", c.vocab}};
  const weight_kind block = weight_kind::fp8_block;
  if (formats == checkpoint_formats{block, block, block}) {
    config["quantization_config"] = {{"quant_method", "fp8"},
                                     {"fmt", "e4m3"},
                                     {"weight_block_size", {128, 128}},
                                     {"activation_scheme", "dynamic"}};
  } else if (formats != checkpoint_formats{}) {
    config["quantization_config"] = {{"quant_method", "quark"}, {"note", formats.text()}};
  }
  return config;
}

namespace {

class random_writer {
 public:
  random_writer(u64 seed, std::vector<stored_tensor>& to) : seed_(seed), to_(to) {}

  /// A matrix whose product with inputs of order one is of order `gain`.
  void matrix(const std::string& base, long rows, long columns, weight_kind kind, double gain = 1) {
    namespace ref = reference;
    const std::string name = base + ".weight";
    const ref::matrix m =
        ref::random_matrix(int(rows), int(columns), ref::all_formats[int(kind)], seed_of(name), gain);
    const dtype types[] = {dtype::bf16, dtype::f8_e4m3, dtype::f8_e4m3, dtype::u8};
    to_.push_back(
        {name, types[int(kind)], {rows, kind == weight_kind::mxfp4 ? columns / 2 : columns}, m.data});
    if (kind == weight_kind::fp8_block)
      to_.push_back(
          {name + "_scale_inv", dtype::f32, {(rows + 127) / 128, (columns + 127) / 128}, bytes(m.scales)});
    if (kind == weight_kind::fp8_channel)
      to_.push_back({name + "_scale", dtype::f32, {rows, 1}, bytes(m.scales)});
    if (kind == weight_kind::mxfp4)
      to_.push_back({name + "_scale", dtype::u8, {rows, columns / 32}, m.scales_e8m0});
  }
  void norm(const std::string& base, int n) {
    to_.push_back({base + ".weight", dtype::bf16, {n}, reference::random_norm(n, seed_of(base)).data});
  }
  void small_values(const std::string& name, int n, dtype type) {
    reference::generator random(seed_of(name));
    std::vector<float> values;
    for (int i = 0; i < n; ++i) values.push_back(float(0.02 * random.normal()));
    to_.push_back({name,
                   type,
                   {n},
                   type == dtype::f32 ? bytes(values)
                                      : reference::quantise(values, 1, n, reference::format::bf16).data});
  }

 private:
  u64 seed_of(std::string_view name) const {
    return reference::derive_seed(seed_, checksum({reinterpret_cast<const u8*>(name.data()), name.size()}));
  }
  static std::vector<u8> bytes(const std::vector<float>& values) {
    std::vector<u8> data(values.size() * 4);
    std::memcpy(data.data(), values.data(), data.size());
    return data;
  }

  u64 seed_;
  std::vector<stored_tensor>& to_;
};

}  // namespace

random_checkpoint make_random_checkpoint(const glm5_model_config& c, const checkpoint_formats& formats,
                                         u64 seed) {
  random_checkpoint made{c, formats, {}};
  random_writer write(seed, made.tensors);
  const weight_kind bf16 = weight_kind::bf16;
  // Embeddings of order one, as the norms' outputs are.
  write.matrix("model.embed_tokens", c.vocab, c.hidden, bf16, std::sqrt(double(c.hidden)));
  write.norm("model.norm", c.hidden);
  if (!c.tied_embeddings) write.matrix("lm_head", c.vocab, c.hidden, bf16, 2);
  for (int i = 0; i < c.layers; ++i) {
    const std::string layer = "model.layers." + std::to_string(i) + ".", attention = layer + "self_attn.",
                      indexer = attention + "indexer.", mlp = layer + "mlp.";
    write.norm(layer + "input_layernorm", c.hidden);
    write.norm(layer + "post_attention_layernorm", c.hidden);
    write.norm(attention + "q_a_layernorm", c.q_lora);
    write.norm(attention + "kv_a_layernorm", c.kv_lora);
    write.matrix(attention + "q_a_proj", c.q_lora, c.hidden, formats.attention);
    write.matrix(attention + "kv_a_proj_with_mqa", c.kv_lora + c.rope, c.hidden, formats.attention);
    write.matrix(attention + "q_b_proj", c.heads * c.head_dim(), c.q_lora, formats.attention);
    write.matrix(attention + "kv_b_proj", c.heads * (c.nope + c.v_dim), c.kv_lora, formats.attention);
    write.matrix(attention + "o_proj", c.hidden, c.heads * c.v_dim, formats.attention);
    if (c.indexer[std::size_t(i)]) {
      write.matrix(indexer + "wq_b", c.index_heads * c.index_dim, c.q_lora, formats.index);
      write.matrix(indexer + "wk", c.index_dim, c.hidden, formats.index);
      write.matrix(indexer + "weights_proj", c.index_heads, c.hidden, bf16);
      write.norm(indexer + "k_norm", c.index_dim);
      write.small_values(indexer + "k_norm.bias", c.index_dim, dtype::bf16);
    }
    const auto expert = [&](const std::string& base, int width) {
      write.matrix(base + "gate_proj", width, c.hidden, formats.experts);
      write.matrix(base + "up_proj", width, c.hidden, formats.experts);
      write.matrix(base + "down_proj", c.hidden, width, formats.experts);
    };
    if (c.moe[std::size_t(i)]) {
      write.matrix(mlp + "gate", c.experts, c.hidden, bf16);
      write.small_values(mlp + "gate.e_score_correction_bias", c.experts, dtype::f32);
      expert(mlp + "shared_experts.", c.expert_width);
      for (int e = 0; e < c.experts; ++e) expert(mlp + "experts." + std::to_string(e) + ".", c.expert_width);
    } else {
      expert(mlp, c.dense_width);
    }
  }
  return made;
}

status write_checkpoint(const std::filesystem::path& directory, const random_checkpoint& made, int shards) {
  return write_checkpoint(directory, config_json(made.config, made.formats), made.tensors, shards);
}

}  // namespace monolayer::examples
