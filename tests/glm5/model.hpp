// A stack of whole GLM-5 layers: the reference's tensors, and their packed form for every rank.
#pragma once

#include "monolayer/host/glm5.hpp"
#include "reference/glm5.hpp"
#include "slices/model.hpp"

namespace monolayer::test {

/// The whole model's geometry behind a rank's config.
template <class C>
reference::glm5_geometry glm5_geometry_of() {
  reference::glm5_geometry g{C::hidden, C::q_lora, C::kv_lora, C::nope, C::rope, C::v_dim, C::heads * C::ranks,
                             C::index_heads, C::index_dim, C::index_topk, C::experts, C::top_k,
                             C::expert_width * C::ranks, C::expert_width * C::ranks * C::dense_slices};
  g.routed_scaling = C::routed_scaling;
  g.eps_input = C::input_eps;
  g.eps_q_a = C::q_a_eps;
  g.eps_kv_a = C::kv_a_eps;
  g.eps_post = C::post_eps;
  return g;
}

/// The formats that a config's checkpoints have.
template <class C>
reference::glm5_layer_options glm5_formats_of() {
  reference::glm5_layer_options o;
  o.attention = format_of<typename C::attention_weights>();
  o.index = format_of<typename C::index_weights>();
  o.routed = o.shared = o.dense_mlp = format_of<typename C::expert_weights>();
  return o;
}

template <class C>
constexpr reference::cache_format kv_format_of() {
  return C::kv_cache::element_bytes == 1 ? reference::cache_format::fp8 : reference::cache_format::bf16;
}
template <class C>
constexpr reference::cache_format key_format_of() {
  return C::index_cache::fp8 ? reference::cache_format::fp8 : reference::cache_format::bf16;
}

/// A reference layer as the packers take it. Holds the vectors that the tensors point to.
struct glm5_tensor_store {
  std::vector<u16> input_norm, post_norm, q_a_norm, kv_a_norm;
  std::vector<float> key_norm, key_bias;
  glm5_tensors tensors;

  explicit glm5_tensor_store(const reference::glm5_layer& l)
      : input_norm(reference::bf16_bits(l.input_norm)),
        post_norm(reference::bf16_bits(l.post_norm)),
        q_a_norm(reference::bf16_bits(l.q_a_norm)),
        kv_a_norm(reference::bf16_bits(l.kv_a_norm)) {
    glm5_tensors& t = tensors;
    t.input_norm = input_norm.data();
    t.post_norm = post_norm.data();
    t.q_a_norm = q_a_norm.data();
    t.kv_a_norm = kv_a_norm.data();
    t.q_a = view(l.q_a);
    t.kv_a = view(l.kv_a);
    t.q_b = view(l.q_b);
    t.kv_b = view(l.kv_b);
    t.o = view(l.o);
    if (l.indexer) {
      t.index_q = view(l.indexer->wq_b);
      t.index_k = view(l.indexer->wk);
      t.index_weights = view(l.indexer->weights_proj);
      key_norm = floats(l.indexer->k_norm);
      key_bias = floats(l.indexer->k_norm_bias);
      t.index_k_norm_weight = key_norm.data();
      t.index_k_norm_bias = key_bias.data();
    }
    if (l.dense) {
      t.dense = view(*l.dense);
    } else {
      t.router = view(l.router);
      t.router_bias = l.bias.data();
      t.shared = view(l.experts.shared());
      t.expert = [&l](int e) { return view(l.experts.get(e)); };
    }
  }
  glm5_tensor_store(const glm5_tensor_store&) = delete;

 private:
  static std::vector<float> floats(const reference::matrix& m) {
    std::vector<double> row(std::size_t(m.cols));
    m.decode_row(0, row.data());
    return {row.begin(), row.end()};
  }
};

/// Layers packed for all ranks of target T and config C.
template <class T, class C>
struct glm5_model {
  using P = glm5<C>;
  struct layer {
    reference::glm5_layer weights;
    std::vector<packed_glm5<C>> packed;  // by rank
    bool dense() const { return weights.dense.has_value(); }
    bool has_indexer() const { return weights.indexer.has_value(); }
    /// The layer's own kind, or the one that attends to a given list.
    u64 kind(bool listed) const {
      const bool own = has_indexer() && !listed;
      return dense() ? (own ? P::dense : P::dense_listed) : (own ? P::moe : P::moe_listed);
    }
  };
  reference::glm5_geometry g = glm5_geometry_of<C>();
  std::vector<layer> layers;

  /// With `experts` only these routed experts are made and packed, and the others' biases keep them from being chosen.
  explicit glm5_model(std::vector<reference::glm5_layer> weights, const std::vector<int>& experts = {}) {
    for (reference::glm5_layer& w : weights) {
      layers.push_back({std::move(w), {}});
      layer& l = layers.back();
      if (!experts.empty() && !l.dense())
        for (int e = 0; e < C::experts; ++e)
          if (std::find(experts.begin(), experts.end(), e) == experts.end()) l.weights.bias[std::size_t(e)] -= 8;
      const glm5_tensor_store store(l.weights);
      for (int r = 0; r < C::ranks; ++r)
        l.packed.push_back(must(glm5_host<T, C>::pack_layer(l.kind(false), store.tensors, r, experts)));
    }
  }
};

}  // namespace monolayer::test
