// Which tensors a layer has: their names and shapes.
#include "checkpoint/glm5_checkpoint.hpp"

namespace monolayer::examples {

std::string checkpoint_formats::text() const {
  return std::string("attention ") + name_of(attention) + ", index " + name_of(index) + ", experts " +
         name_of(experts);
}

result<glm5_checkpoint> glm5_checkpoint::open(const std::filesystem::path& directory) {
  auto config = read_config(directory / "config.json");
  if (!config) return config.why();
  auto files = tensor_files::open_directory(directory);
  if (!files) return files.why();
  glm5_checkpoint c(std::move(config.value()), std::move(files.value()));
  tensor_reader read(*c.files_, true);
  const long hidden = c.config_.hidden, vocab = c.config_.vocab;
  c.embeddings_ = read.bf16_values("model.embed_tokens.weight", {vocab, hidden});
  c.final_norm_ = read.bf16_values("model.norm.weight", {hidden});
  c.lm_head_ =
      c.config_.tied_embeddings ? c.embeddings_ : read.bf16_values("lm_head.weight", {vocab, hidden});
  if (!read.why) return read.why;
  c.owners_ = std::move(read.owners);
  for (int i = 0; i < c.config_.layers; ++i) {
    auto layer = c.read_layer(i, false);
    if (!layer) return layer.why();
    c.formats_.push_back(layer.value().formats);
  }
  return c;
}

result<glm5_layer_tensors> glm5_checkpoint::layer(int i) const {
  if (i < 0 || i >= config_.layers)
    return error(error_code::bad_value, "layer", std::to_string(i),
                 "0.." + std::to_string(config_.layers - 1));
  return read_layer(i, true);
}

result<checkpoint_formats> glm5_checkpoint::formats() const {
  checkpoint_formats all = formats_[0];  // layer 0 has an indexer
  for (int i = 1; i < config_.layers; ++i) {
    checkpoint_formats one = formats_of(i);
    if (!config_.indexer[std::size_t(i)]) one.index = all.index;
    if (one != all)
      return error(error_code::mismatch, "formats of layer " + std::to_string(i), one.text(),
                   all.text() + ", as layer 0");
  }
  return all;
}

glm5_checkpoint::glm5_checkpoint(glm5_model_config config, tensor_files files)
    : config_(std::move(config)), files_(std::make_shared<const tensor_files>(std::move(files))) {}

result<glm5_layer_tensors> glm5_checkpoint::read_layer(int i, bool look_at_values) const {
  const glm5_model_config& c = config_;
  const std::string layer = "model.layers." + std::to_string(i) + ".", attention = layer + "self_attn.",
                    indexer = attention + "indexer.", mlp = layer + "mlp.";
  tensor_reader read(*files_, look_at_values);
  format_group attention_group{"attention"}, index_group{"index"}, expert_group{"expert"};
  glm5_layer_tensors t;
  t.layer = i;
  t.moe = c.moe[std::size_t(i)];
  t.has_indexer = c.indexer[std::size_t(i)];

  t.input_norm = read.bf16_values(layer + "input_layernorm.weight", {c.hidden});
  t.post_norm = read.bf16_values(layer + "post_attention_layernorm.weight", {c.hidden});
  t.q_a_norm = read.bf16_values(attention + "q_a_layernorm.weight", {c.q_lora});
  t.kv_a_norm = read.bf16_values(attention + "kv_a_layernorm.weight", {c.kv_lora});
  const auto project = [&](const char* name, long rows, long columns) {
    return read.matrix(attention + name, rows, columns, attention_group);
  };
  t.q_a = project("q_a_proj", c.q_lora, c.hidden);
  t.kv_a = project("kv_a_proj_with_mqa", c.kv_lora + c.rope, c.hidden);
  t.q_b = project("q_b_proj", long(c.heads) * c.head_dim(), c.q_lora);
  t.kv_b = project("kv_b_proj", long(c.heads) * (c.nope + c.v_dim), c.kv_lora);
  t.o = project("o_proj", c.hidden, long(c.heads) * c.v_dim);
  if (t.has_indexer) {
    t.index_q = read.matrix(indexer + "wq_b", long(c.index_heads) * c.index_dim, c.q_lora, index_group);
    t.index_k = read.matrix(indexer + "wk", c.index_dim, c.hidden, index_group);
    t.index_weights = read.bf16_matrix(indexer + "weights_proj.weight", c.index_heads, c.hidden);
    t.index_k_norm_weight = read.f32_values(indexer + "k_norm.weight", {{c.index_dim}});
    t.index_k_norm_bias = read.f32_values(indexer + "k_norm.bias", {{c.index_dim}});
  }
  const auto expert = [&](const std::string& base, long width) {
    expert_tensors e;
    e.gate = read.matrix(base + "gate_proj", width, c.hidden, expert_group);
    e.up = read.matrix(base + "up_proj", width, c.hidden, expert_group);
    e.down = read.matrix(base + "down_proj", c.hidden, width, expert_group);
    return e;
  };
  if (t.moe) {
    t.router = read.bf16_matrix(mlp + "gate.weight", c.experts, c.hidden);
    t.router_bias = read.f32_values(mlp + "gate.e_score_correction_bias", {{c.experts}});
    t.shared = expert(mlp + "shared_experts.", c.expert_width);
    for (int e = 0; e < c.experts; ++e)
      t.experts.push_back(expert(mlp + "experts." + std::to_string(e) + ".", c.expert_width));
    t.expert = [all = t.experts](int e) { return all[std::size_t(e)]; };
  } else {
    t.dense = expert(mlp, c.dense_width);
  }
  if (!read.why) return read.why;
  t.formats = {*attention_group.kind, index_group.kind.value_or(weight_kind::bf16), *expert_group.kind};
  t.owners = std::move(read.owners);
  t.owners.push_back(files_);
  return t;
}

result<glm5_checkpoint> open_checkpoint(const std::filesystem::path& directory) {
  return glm5_checkpoint::open(directory);
}

}  // namespace monolayer::examples
