// Golden decode traces: small checkpoints in Hugging Face's format and what transformers computed from them
// (float32, the whole sequence at once), as data for the reference and for the library's tests.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "reference/batch.hpp"
#include "reference/glm5_checkpoint.hpp"
#include "reference/json_lite.hpp"
#include "reference/matrix.hpp"
#include "reference/safetensors_lite.hpp"
#include "reference/slices.hpp"

namespace monolayer::reference {

struct golden_layer {
  glm5_layer weights;
  batch attn, out;                      // [tokens][hidden]: o_proj's output, and the layer's
  std::vector<std::vector<int>> lists;  // [tokens][<= index_topk], ascending, only tokens up to the row's own
  pick_table experts;                   // [tokens][top_k] in the trace's order; none in a dense layer
  std::vector<std::vector<double>> expert_weights;
};

struct golden_trace {
  std::string name;
  glm5_geometry g;
  double eps_final;
  std::vector<int> tokens;  // prompt and greedy continuation
  int prompt_len;
  batch embeddings;  // [tokens][hidden]: the input of the first layer
  std::vector<golden_layer> layers;
  matrix embedding_table, final_norm, lm_head;
  batch logits;  // [tokens][vocabulary]

  // The input of a layer in the trace.
  const batch& input_of(std::size_t layer) const { return layer == 0 ? embeddings : layers[layer - 1].out; }
};

namespace detail {

inline glm5_geometry geometry_of(const json& c) {
  const auto n = [&](const char* name) { return c.at(name).integer(); };
  require(c.at("rope_parameters").at("rope_type").text == "default", "golden: scaled RoPE");
  require(n("n_group") == 1 && c.at("norm_topk_prob").truth, "golden: another kind of router");
  glm5_geometry g{
      n("hidden_size"),           n("q_lora_rank"),      n("kv_lora_rank"),        n("qk_nope_head_dim"),
      n("qk_rope_head_dim"),      n("v_head_dim"),       n("num_attention_heads"), n("index_n_heads"),
      n("index_head_dim"),        n("index_topk"),       n("n_routed_experts"),    n("num_experts_per_tok"),
      n("moe_intermediate_size"), n("intermediate_size")};
  g.shared_experts = n("n_shared_experts");
  g.routed_scaling = static_cast<float>(c.at("routed_scaling_factor").number);
  // transformers gives q_a's and kv_a's norm its class default in place of the config's eps.
  g.eps_input = g.eps_post = static_cast<float>(c.at("rms_norm_eps").number);
  g.rope_theta = c.at("rope_parameters").at("rope_theta").number;
  return g;
}

// Experts are read when first asked for; the file stays in memory as long as a layer that may ask.
inline glm5_layer load_layer(const glm5_geometry& g, const std::shared_ptr<const safetensors_file>& file,
                             int index, bool dense, bool indexer) {
  const std::string name = "model.layers." + std::to_string(index) + ".";
  const std::string attention = name + "self_attn.", mlp = name + "mlp.";
  const auto weight = [&](const std::string& tensor) { return file->read_matrix(tensor + ".weight"); };
  const auto read_expert = [file](const std::string& from) {
    return expert{file->read_matrix(from + "gate_proj.weight"), file->read_matrix(from + "up_proj.weight"),
                  file->read_matrix(from + "down_proj.weight")};
  };
  glm5_layer layer;
  layer.input_norm = weight(name + "input_layernorm");
  layer.q_a = weight(attention + "q_a_proj");
  layer.q_a_norm = weight(attention + "q_a_layernorm");
  layer.q_b = weight(attention + "q_b_proj");
  layer.kv_a = weight(attention + "kv_a_proj_with_mqa");
  layer.kv_a_norm = weight(attention + "kv_a_layernorm");
  layer.kv_b = weight(attention + "kv_b_proj");
  layer.o = weight(attention + "o_proj");
  layer.post_norm = weight(name + "post_attention_layernorm");
  if (indexer) {
    glm5_indexer x;
    x.wq_b = weight(attention + "indexer.wq_b");
    x.wk = weight(attention + "indexer.wk");
    x.weights_proj = weight(attention + "indexer.weights_proj");
    x.k_norm = weight(attention + "indexer.k_norm");
    x.k_norm_bias = file->read_matrix(attention + "indexer.k_norm.bias");
    layer.indexer = std::move(x);
  }
  if (dense) {
    layer.dense = read_expert(mlp);
  } else {
    layer.router = weight(mlp + "gate");
    layer.bias = file->read<float>(mlp + "gate.e_score_correction_bias", "F32");
    layer.experts = expert_store(g.experts, g.shared_experts > 0, [read_expert, mlp](int e) {
      return read_expert(e == expert_store::shared_id ? mlp + "shared_experts."
                                                      : mlp + "experts." + std::to_string(e) + ".");
    });
  }
  return layer;
}

inline std::vector<std::vector<int>> read_table(const safetensors_file& file, const std::string& name) {
  const auto values = file.read<std::int32_t>(name, "I32");
  const int cols = file.at(name).cols();
  std::vector<std::vector<int>> table;
  for (auto row = values.begin(); row != values.end(); row += cols) table.emplace_back(row, row + cols);
  return table;
}

}  // namespace detail

inline golden_trace load_golden(const std::string& folder) {
  const json config = parse_json(read_file(folder + "/config.json"));
  const auto weights = std::make_shared<const safetensors_file>(folder + "/model.safetensors");
  const safetensors_file trace(folder + "/golden.safetensors");
  golden_trace t;
  t.name = std::filesystem::path(folder).filename().string();
  t.g = detail::geometry_of(config);
  t.eps_final = static_cast<double>(static_cast<float>(config.at("rms_norm_eps").number));
  t.tokens = trace.read<std::int32_t>("tokens", "I32");
  t.prompt_len = trace.read<std::int32_t>("prompt_len", "I32").at(0);
  t.embeddings = trace.read_floats("embeddings");
  t.logits = trace.read_floats("logits");
  t.embedding_table = weights->read_matrix("model.embed_tokens.weight");
  t.final_norm = weights->read_matrix("model.norm.weight");
  t.lm_head = weights->read_matrix("lm_head.weight");
  for (int i = 0; i < config.at("num_hidden_layers").integer(); ++i) {
    const auto n = static_cast<std::size_t>(i);
    const bool dense = config.at("mlp_layer_types").items.at(n).text == "dense";
    const bool indexer = config.at("indexer_types").items.at(n).text == "full";
    const std::string name = "layer" + std::to_string(i) + ".";
    golden_layer layer;
    layer.weights = detail::load_layer(t.g, weights, i, dense, indexer);
    layer.attn = trace.read_floats(name + "attn");
    layer.out = trace.read_floats(name + "out");
    layer.lists = detail::read_table(trace, name + "topk");
    for (std::size_t row = 0; row < layer.lists.size(); ++row) {
      // Rows with fewer visible tokens than picks hold masked ones too.
      auto& list = layer.lists[row];
      std::erase_if(list, [&](int token) { return token < 0 || token > static_cast<int>(row); });
      std::sort(list.begin(), list.end());
    }
    if (!dense) {
      layer.experts = detail::read_table(trace, name + "router_experts");
      const batch routed = trace.read_floats(name + "router_weights");
      for (int r = 0; r < routed.rows; ++r) {
        layer.expert_weights.emplace_back(routed.row(r), routed.row(r) + routed.cols);
      }
    }
    t.layers.push_back(std::move(layer));
  }
  return t;
}

// Final norm and lm_head of rows of the last layer's output.
inline batch logits_of(const golden_trace& t, const batch& h) {
  return project(rms_norm(h, t.final_norm, t.eps_final, false), t.lm_head, false);
}

// Folders with traces, sorted; none where there are none, and then tests skip. Looked for in the
// environment's MONOLAYER_GOLDEN_DIR, or else where the build's MONOLAYER_GOLDEN_DIR says; ':' separates
// several places.
inline std::vector<std::string> find_golden_folders() {
  namespace fs = std::filesystem;
  const char* from_environment = std::getenv("MONOLAYER_GOLDEN_DIR");
#ifdef MONOLAYER_GOLDEN_DIR
  const std::string places = from_environment != nullptr ? from_environment : MONOLAYER_GOLDEN_DIR;
#else
  const std::string places = from_environment != nullptr ? from_environment : "";
#endif
  std::vector<std::string> folders;
  for (std::size_t begin = 0; begin < places.size();) {
    const std::size_t end = std::min(places.find(':', begin), places.size());
    const fs::path place = places.substr(begin, end - begin);
    begin = end + 1;
    if (!fs::is_directory(place)) continue;
    for (const auto& entry : fs::directory_iterator(place)) {
      if (fs::exists(entry.path() / "golden.safetensors")) folders.push_back(entry.path().string());
    }
  }
  std::sort(folders.begin(), folders.end());
  return folders;
}

}  // namespace monolayer::reference
