// A whole GLM-5 decoder layer's tensors as a checkpoint stores them, made from a seed or by a loader, and the
// part of them that a rank holds.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "reference/checkpoint.hpp"
#include "reference/matrix.hpp"
#include "reference/random.hpp"
#include "reference/synthesis.hpp"

namespace monolayer::reference {

struct glm5_geometry {
  int hidden, q_lora, kv_lora, nope, rope, v_dim, heads;
  int index_heads, index_dim, index_topk;
  int experts, top_k, expert_width, dense_width;  // widths: of all ranks together
  int shared_experts = 1;
  float routed_scaling = 2.5f;
  float eps_input = 1e-5f, eps_q_a = 1e-6f, eps_kv_a = 1e-6f, eps_post = 1e-5f, eps_index = 1e-6f;
  double rope_theta = 1e6;

  int head_dim() const { return nope + rope; }
  int cache_width() const { return kv_lora + rope; }
  int kv_b_rows() const { return heads * (nope + v_dim); }

  // What the functions of the two slices need: router, experts, q_b.
  geometry slices() const {
    geometry g{hidden, q_lora, heads, head_dim(), experts, top_k, expert_width};
    g.shared_experts = shared_experts;
    g.routed_scaling = routed_scaling;
    g.eps_input = eps_input;
    g.eps_q_a = eps_q_a;
    g.eps_post = eps_post;
    return g;
  }
};

inline glm5_geometry glm5_full() {
  return {6144, 2048, 512, 192, 64, 256, 64, 32, 128, 2048, 256, 8, 2048, 12288};
}
// The geometries of the golden traces.
inline glm5_geometry micro() { return {256, 128, 512, 64, 64, 64, 8, 8, 128, 64, 8, 2, 256, 512}; }
inline glm5_geometry tiny() { return {512, 256, 512, 192, 64, 256, 8, 8, 128, 96, 16, 8, 256, 1024}; }
// GLM-5's own head and latent sizes and an expert wide enough to be cut for eight ranks.
inline glm5_geometry mini() { return {512, 256, 512, 192, 64, 256, 8, 8, 128, 96, 16, 8, 1024, 2048}; }

struct glm5_indexer {
  matrix wq_b;          // index_heads * index_dim x q_lora
  matrix wk;            // index_dim x hidden
  matrix weights_proj;  // index_heads x hidden, bf16
  matrix k_norm;        // 1 x index_dim, bf16
  matrix k_norm_bias;   // 1 x index_dim, bf16
};

// Experts are made when first asked for and kept. Copies share what was made so far. Not for use by several
// threads at once.
class expert_store {
 public:
  using maker = std::function<expert(int)>;
  static constexpr int shared_id = layer_b::shared_id;

  expert_store() = default;
  expert_store(int experts, bool has_shared, maker make)
      : experts_(experts), has_shared_(has_shared), make_(std::move(make)) {}

  const expert& get(int e) const { return *slot(e); }
  const expert& shared() const { return get(shared_id); }

  // For tests that plant values; other copies keep theirs. release() undoes the change.
  expert& edit(int e) {
    auto& made = slot(e);
    if (made.use_count() > 1) made = std::make_shared<expert>(*made);
    return *made;
  }

  void release() const { made_.clear(); }
  std::size_t made() const { return made_.size(); }
  bool has_shared() const { return has_shared_; }

 private:
  std::shared_ptr<expert>& slot(int e) const {
    require(e == shared_id ? has_shared_ : e >= 0 && e < experts_, "no such expert");
    auto& made = made_[e];
    if (!made) made = std::make_shared<expert>(make_(e));
    return made;
  }

  int experts_ = 0;
  bool has_shared_ = false;
  maker make_;
  mutable std::map<int, std::shared_ptr<expert>> made_;
};

struct glm5_layer {
  matrix input_norm;  // 1 x hidden, bf16
  matrix q_a;         // q_lora x hidden
  matrix q_a_norm;    // 1 x q_lora, bf16
  matrix q_b;         // heads * (nope + rope) x q_lora
  matrix kv_a;        // kv_lora + rope x hidden
  matrix kv_a_norm;   // 1 x kv_lora, bf16
  matrix kv_b;  // heads * (nope + v_dim) x kv_lora: of each head nope rows of keys, then v_dim of values
  matrix o;     // hidden x heads * v_dim
  std::optional<glm5_indexer> indexer;  // none where the layer reuses an earlier layer's picks
  matrix post_norm;                     // 1 x hidden, bf16

  std::optional<expert> dense;  // where set, the layer has neither router nor experts
  matrix router;                // experts x hidden, bf16
  std::vector<float> bias;      // experts
  expert_store experts;
};

struct glm5_layer_options {
  format attention = format::fp8_block128;
  format index = format::fp8_block128;
  format routed = format::fp8_block128;
  format shared = format::fp8_block128;
  format dense_mlp = format::fp8_block128;
  style how = {};
  bool dense = false;
  bool indexer = true;
  bool bias_near_34 = false;  // as in real checkpoints: bf16 (spacing 0.25 there) would destroy it
  double router_gain = 1.5;
  // 1e-3 for the first three makes the eps of q_a's, kv_a's and the index key's norm visible (they see
  // inputs of that size); for the two layer norms the residual must be that small, and o_gain too.
  double q_a_gain = 1, kv_a_gain = 1, index_k_gain = 1;
  double q_b_gain = 2;  // attention scores deviate by about this: less and every token weighs the same
  double o_gain = 3;    // makes up for the averaging over tokens
};

inline glm5_layer make_glm5_layer(const glm5_geometry& g, std::uint64_t seed,
                                  const glm5_layer_options& o = {}) {
  const auto part = [&](int number) { return derive_seed(seed, static_cast<std::uint64_t>(number)); };
  glm5_layer layer;
  layer.input_norm = random_norm(g.hidden, part(201));
  layer.q_a = random_matrix(g.q_lora, g.hidden, o.attention, part(202), o.q_a_gain, o.how);
  layer.q_a_norm = random_norm(g.q_lora, part(203));
  layer.q_b = random_matrix(g.heads * g.head_dim(), g.q_lora, o.attention, part(204), o.q_b_gain, o.how);
  layer.kv_a = random_matrix(g.cache_width(), g.hidden, o.attention, part(205), o.kv_a_gain, o.how);
  layer.kv_a_norm = random_norm(g.kv_lora, part(206));
  layer.kv_b = random_matrix(g.kv_b_rows(), g.kv_lora, o.attention, part(207), 1, o.how);
  layer.o = random_matrix(g.hidden, g.heads * g.v_dim, o.attention, part(208), o.o_gain, o.how);
  layer.post_norm = random_norm(g.hidden, part(209));
  if (o.indexer) {
    glm5_indexer x;
    x.wq_b = random_matrix(g.index_heads * g.index_dim, g.q_lora, o.index, part(211), 1, o.how);
    x.wk = random_matrix(g.index_dim, g.hidden, o.index, part(212), o.index_k_gain, o.how);
    x.weights_proj = random_matrix(g.index_heads, g.hidden, format::bf16, part(213));
    x.k_norm = random_norm(g.index_dim, part(214));
    generator random(part(215));
    std::vector<float> bias(static_cast<std::size_t>(g.index_dim));
    for (auto& b : bias) b = static_cast<float>(0.125 * random.normal());
    x.k_norm_bias = quantise(bias, 1, g.index_dim, format::bf16);
    layer.indexer = std::move(x);
  }
  const auto mlp = [g, o](int width, format fmt, std::uint64_t from) {
    return expert{random_matrix(width, g.hidden, fmt, derive_seed(from, 1), 1, o.how),
                  random_matrix(width, g.hidden, fmt, derive_seed(from, 2), 1, o.how),
                  random_matrix(g.hidden, width, fmt, derive_seed(from, 3), 1, o.how)};
  };
  if (o.dense) {
    layer.dense = mlp(g.dense_width, o.dense_mlp, part(220));
    return layer;
  }
  layer.router = random_matrix(g.experts, g.hidden, format::bf16, part(221), o.router_gain);
  layer.bias.resize(static_cast<std::size_t>(g.experts));
  generator random(part(222));
  for (auto& b : layer.bias) b = static_cast<float>((o.bias_near_34 ? 34.0 : 0.0) + 0.02 * random.normal());
  layer.experts = expert_store(g.experts, g.shared_experts > 0, [g, o, mlp, seed](int e) {
    if (e == expert_store::shared_id) {
      return mlp(g.shared_experts * g.expert_width, o.shared, derive_seed(seed, 299));
    }
    return mlp(g.expert_width, o.routed, derive_seed(seed, 300 + static_cast<std::uint64_t>(e)));
  });
  return layer;
}

// ---- tensor parallelism: q_b and kv_b by the rows of a rank's heads, o by columns, MLPs by width ----

// Throws where a rank's rows of kv_b begin inside a scale block and end outside it (an odd number of heads).
inline glm5_layer layer_of_rank(const glm5_geometry& g, const glm5_layer& whole, int rank, int tp) {
  const range heads = range_of_rank(g.heads, rank, tp);
  const auto rows_of_heads = [&](const matrix& m, int rows) {
    return row_slice(m, heads.begin * rows, heads.count * rows);
  };
  glm5_layer part = whole;
  part.q_b = rows_of_heads(whole.q_b, g.head_dim());
  part.kv_b = rows_of_heads(whole.kv_b, g.nope + g.v_dim);
  part.o = column_slice(whole.o, heads.begin * g.v_dim, heads.count * g.v_dim);
  if (whole.dense) {
    part.dense = expert_of_rank(*whole.dense, rank, tp);
  } else {
    const expert_store from = whole.experts;
    part.experts = expert_store(g.experts, from.has_shared(),
                                [from, rank, tp](int e) { return expert_of_rank(from.get(e), rank, tp); });
  }
  return part;
}

}  // namespace monolayer::reference
