// A GLM-5 checkpoint (Hugging Face's glm_moe_dsa) as the tensors that the library packs.
//
//   auto checkpoint = open_checkpoint("/models/GLM-5");  // checks every layer's names, types and shapes
//   if (!checkpoint) return report(checkpoint.why().text());
//   auto layer = checkpoint.value().layer(3);            // views of the mapped files
//   glm5_host<T, C>::pack_layer(kind, layer.value(), rank);
#pragma once

#include "checkpoint/config.hpp"
#include "checkpoint/tensor_reader.hpp"
#include "monolayer/host/tensors.hpp"

namespace monolayer::examples {

/// What a driver chooses a compiled configuration by.
struct checkpoint_formats {
  weight_kind attention = weight_kind::bf16;  // q_a, kv_a, q_b, kv_b, o
  weight_kind index = weight_kind::bf16;      // wq_b, wk; bf16 where the layer runs no indexer
  weight_kind experts = weight_kind::bf16;    // routed, shared and dense MLPs

  friend bool operator==(const checkpoint_formats&, const checkpoint_formats&) = default;
  std::string text() const;
};

/// One layer's tensors as the library packs them. They stay valid as long as a copy of this struct lives.
struct glm5_layer_tensors : glm5_tensors {
  int layer = 0;
  bool moe = false, has_indexer = false;
  checkpoint_formats formats;
  std::vector<expert_tensors> experts;  // of an MoE layer, what `expert` returns
  std::vector<std::shared_ptr<const void>> owners;
};

class glm5_checkpoint {
 public:
  /// Opens a directory with config.json and safetensors, and checks every layer but its values.
  static result<glm5_checkpoint> open(const std::filesystem::path& directory);

  const glm5_model_config& config() const { return config_; }
  const u16* embeddings() const { return embeddings_; }  // bf16 [vocab][hidden]
  const u16* final_norm() const { return final_norm_; }  // bf16 [hidden]
  const u16* lm_head() const { return lm_head_; }        // bf16 [vocab][hidden]
  const tensor_files& files() const { return *files_; }

  /// The tensors of a layer. Errors: no such layer; values that no packer may take: NaN or infinite scales,
  /// f32 values of a bf16 tensor that bf16 cannot hold.
  result<glm5_layer_tensors> layer(int i) const;

  const checkpoint_formats& formats_of(int layer) const { return formats_[std::size_t(layer)]; }

  /// The formats of all layers. An error where they differ, as in checkpoints that quantise the routed
  /// experts alone: one compiled program has one format for each group.
  result<checkpoint_formats> formats() const;

 private:
  glm5_checkpoint(glm5_model_config config, tensor_files files);

  result<glm5_layer_tensors> read_layer(int i, bool look_at_values) const;

  glm5_model_config config_;
  std::shared_ptr<const tensor_files> files_;
  std::vector<std::shared_ptr<const void>> owners_;
  std::vector<checkpoint_formats> formats_;
  const u16 *embeddings_ = nullptr, *final_norm_ = nullptr, *lm_head_ = nullptr;
};

result<glm5_checkpoint> open_checkpoint(const std::filesystem::path& directory);

}  // namespace monolayer::examples
