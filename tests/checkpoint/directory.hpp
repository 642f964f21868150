// What the tests of checkpoints share: a directory that goes away, and a small model to spoil.
#pragma once

#include <stdlib.h>

#include <functional>

#include "make_checkpoint/random_checkpoint.hpp"

namespace monolayer::examples {

class temporary_directory {
 public:
  temporary_directory() {
    std::string pattern = (std::filesystem::temp_directory_path() / "monolayer-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary directory");
    path_ = pattern;
  }
  ~temporary_directory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  temporary_directory(const temporary_directory&) = delete;
  temporary_directory& operator=(const temporary_directory&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

  /// An error's text without this directory's random name.
  std::string text(const status& why) const {
    std::string text = why.text();
    for (const std::string& name : {path_.string() + "/", path_.string()})
      for (std::size_t at; (at = text.find(name)) != std::string::npos;) text.replace(at, name.size(), "");
    return text;
  }

 private:
  std::filesystem::path path_;
};

/// The smallest model with everything in it: partial scale blocks in rows and columns, all kinds of layers.
inline glm5_model_config tiny_config() {
  glm5_model_config c = mini_config();
  c.hidden = 192;
  c.vocab = 40;
  c.heads = 2;
  c.q_lora = 96;
  c.nope = 64;
  c.v_dim = 64;
  c.index_heads = 2;
  c.index_topk = 16;
  c.experts = 4;
  c.top_k = 2;
  c.expert_width = 64;
  c.dense_width = 128;
  return c;
}

inline constexpr checkpoint_formats all_bf16{};
inline constexpr checkpoint_formats all_fp8{weight_kind::fp8_block, weight_kind::fp8_block,
                                            weight_kind::fp8_block};
inline constexpr checkpoint_formats mxfp4_attnfp8{weight_kind::fp8_channel, weight_kind::bf16,
                                                  weight_kind::mxfp4};

inline stored_tensor& tensor_of(random_checkpoint& c, const std::string& name) {
  for (stored_tensor& t : c.tensors)
    if (t.name == name) return t;
  throw std::invalid_argument("no tensor " + name);
}
inline void drop_tensor(random_checkpoint& c, const std::string& name) {
  tensor_of(c, name);
  std::erase_if(c.tensors, [&](const stored_tensor& t) { return t.name == name; });
}

}  // namespace monolayer::examples
