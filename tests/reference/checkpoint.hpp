// Synthetic checkpoints of two slices of a GLM-5 decoder layer, as whole-model tensors and as a rank's part
// of them: slice A is norm, q_a, norm, q_b; slice B is norm, router, experts. Weights are scaled so that
// activations stay of order one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "reference/matrix.hpp"
#include "reference/random.hpp"
#include "reference/synthesis.hpp"

namespace monolayer::reference {

struct geometry {
  int hidden, q_lora, heads, head_dim, experts, top_k,
      expert_width;  // head_dim: q_b rows a head; width: all ranks
  int shared_experts = 1;
  float routed_scaling = 2.5f;
  float eps_input = 1e-5f, eps_q_a = 1e-6f, eps_post = 1e-5f;

  int q_rows() const { return heads * head_dim; }
  int shared_width() const { return shared_experts * expert_width; }
};

inline geometry glm5() { return {6144, 2048, 64, 256, 256, 8, 2048}; }
inline geometry small() { return {512, 256, 8, 64, 16, 4, 512}; }

// ---- slice A ----

struct layer_a {
  matrix input_norm;  // 1 x hidden, bf16
  matrix q_a;         // q_lora x hidden
  matrix q_a_norm;    // 1 x q_lora, bf16
  matrix q_b;         // heads * head_dim x q_lora
};

struct layer_a_options {
  format q_a = format::fp8_block128;
  format q_b = format::fp8_block128;
  style how = {};
  double q_a_gain = 1;  // 1e-3 makes the eps of q_a's norm visible
};

inline layer_a make_layer_a(const geometry& g, std::uint64_t seed, const layer_a_options& o = {}) {
  return {random_norm(g.hidden, derive_seed(seed, 1)),
          random_matrix(g.q_lora, g.hidden, o.q_a, derive_seed(seed, 2), o.q_a_gain, o.how),
          random_norm(g.q_lora, derive_seed(seed, 3)),
          random_matrix(g.q_rows(), g.q_lora, o.q_b, derive_seed(seed, 4), 1, o.how)};
}

// ---- slice B ----

struct expert {
  matrix gate, up;  // width x hidden
  matrix down;      // hidden x width
};

struct layer_b_options {
  format routed = format::fp8_block128;
  format shared = format::fp8_block128;
  style how = {};
  bool bias_near_34 = false;  // as in real checkpoints: bf16 (spacing 0.25 there) would destroy it
  double router_gain = 1.5;
};

// Experts are made when first asked for and kept; an expert's bits depend only on the seed and its number.
// Not for use by several threads at once.
class layer_b {
 public:
  matrix post_norm;         // 1 x hidden, bf16
  matrix router;            // experts x hidden, bf16
  std::vector<float> bias;  // experts

  layer_b(const geometry& g, std::uint64_t seed, const layer_b_options& o = {})
      : post_norm(random_norm(g.hidden, derive_seed(seed, 11))),
        router(random_matrix(g.experts, g.hidden, format::bf16, derive_seed(seed, 12), o.router_gain)),
        bias(static_cast<std::size_t>(g.experts)),
        geometry_(g),
        seed_(seed),
        options_(o) {
    generator random(derive_seed(seed, 13));
    for (auto& b : bias) b = static_cast<float>((o.bias_near_34 ? 34.0 : 0.0) + 0.02 * random.normal());
  }

  // The reference stays valid until release(), edit() of the same expert, or the end of the last copy of this
  // layer.
  const expert& get(int e) const { return *slot(e); }
  const expert& shared() const { return get(shared_id); }

  // For tests that plant values. Copies of a layer share the experts made so far; the edited one becomes its
  // own. release() undoes the change.
  expert& edit(int e) {
    auto& made = slot(e);
    if (made.use_count() > 1) made = std::make_shared<expert>(*made);
    return *made;
  }

  void release() const { made_.clear(); }
  std::size_t made() const { return made_.size(); }

  static constexpr int shared_id = -1;

 private:
  std::shared_ptr<expert>& slot(int e) const {
    require(e == shared_id ? geometry_.shared_experts > 0 : e >= 0 && e < geometry_.experts,
            "no such expert");
    auto& made = made_[e];
    if (!made) made = std::make_shared<expert>(make(e));
    return made;
  }

  expert make(int e) const {
    const bool is_shared = e == shared_id;
    const int width = is_shared ? geometry_.shared_width() : geometry_.expert_width;
    const format fmt = is_shared ? options_.shared : options_.routed;
    const std::uint64_t seed = derive_seed(seed_, is_shared ? 99 : 100 + static_cast<std::uint64_t>(e));
    return {random_matrix(width, geometry_.hidden, fmt, derive_seed(seed, 1), 1, options_.how),
            random_matrix(width, geometry_.hidden, fmt, derive_seed(seed, 2), 1, options_.how),
            random_matrix(geometry_.hidden, width, fmt, derive_seed(seed, 3), 1, options_.how)};
  }

  geometry geometry_;
  std::uint64_t seed_;
  layer_b_options options_;
  mutable std::map<int, std::shared_ptr<expert>> made_;
};

inline layer_b make_layer_b(const geometry& g, std::uint64_t seed, const layer_b_options& o = {}) {
  return layer_b(g, seed, o);
}

// ---- tensor parallelism ----

struct range {
  int begin, count;
};

inline range range_of_rank(int n, int rank, int tp) {
  require(tp > 0 && n % tp == 0, "the ranks don't divide this extent");
  require(rank >= 0 && rank < tp, "no such rank");
  return {rank * (n / tp), n / tp};
}

// Rows of q_b (and columns of q) of a rank's heads.
inline range q_rows_of_rank(const geometry& g, int rank, int tp) {
  const range heads = range_of_rank(g.heads, rank, tp);
  return {heads.begin * g.head_dim, heads.count * g.head_dim};
}

inline matrix q_b_of_rank(const geometry& g, const layer_a& layer, int rank, int tp) {
  const range rows = q_rows_of_rank(g, rank, tp);
  return row_slice(layer.q_b, rows.begin, rows.count);
}

// gate and up by rows, down by columns; for routed experts and for the shared one.
inline expert expert_of_rank(const expert& whole, int rank, int tp) {
  const range width = range_of_rank(whole.gate.rows, rank, tp);
  return {row_slice(whole.gate, width.begin, width.count), row_slice(whole.up, width.begin, width.count),
          column_slice(whole.down, width.begin, width.count)};
}

}  // namespace monolayer::reference
