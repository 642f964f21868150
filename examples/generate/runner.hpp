// A compiled model behind an interface without types: what the driver chooses from and what it runs.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/glm5_checkpoint.hpp"

namespace monolayer::examples {

struct run_options {
  int blocks = 0;          // of a launch on one rank; 0: the backend's choice
  u64 seed = 1;            // of the simulator's schedule
  bool checks = true;      // of the simulator: races, scopes, words never written
  std::string trace_file;  // where each wait of the simulated machine goes; empty: nowhere
  int tokens = 0;          // most tokens of the request: the caches' size
};

/// How often a tile had to wait.
struct stage_waits {
  u64 for_others = 0;   // for what another block or rank had not written yet
  u64 for_weights = 0;  // for a chunk that had not landed yet
};

/// One stage over all layers of the model.
struct stage_line {
  std::string name;
  int layers = 0;  // that have it
  int tiles = 0;   // of one layer; of a routed stage the most that there can be
  bool routed = false;
  double weight_bytes = 0;  // held by a rank
  int reads = 0;            // slots that a tile may have to wait for
  stage_waits waits{};      // of the whole run
};

/// What a layer chose for one token, as sets in ascending order; empty where it chose nothing.
struct layer_picks {
  std::vector<int> tokens;   // by the indexer
  std::vector<int> experts;  // by the router
};

/// The layers of a model with their caches, for one request.
class runner {
 public:
  virtual ~runner() = default;
  /// One launch over all layers: rows bf16 [n][hidden] of the request's tokens first, first + 1, ..; the
  /// residual stream after the last layer comes back. Errors: what the launch reports; ranks whose results
  /// differ.
  virtual result<std::vector<u16>> run(int first, std::span<const u16> rows) = 0;
  /// What each layer chooses for the token at a position, whose row was run before: the layers are launched
  /// again, as spans that end with each layer that chooses.
  virtual result<std::vector<layer_picks>> picks(int position, std::span<const u16> row) = 0;
  virtual std::vector<stage_line> stages() const = 0;
  /// "4 ranks of 2 blocks on ..."
  virtual std::string text() const = 0;
  virtual bool counts_waits() const = 0;
};

/// The numbers of a model that its layers are compiled with.
struct geometry {
  int hidden, q_lora, kv_lora, heads, nope, rope, v_dim, index_heads, index_dim, index_topk, experts, top_k,
      expert_width, dense_slices;
  float routed_scaling, input_eps, q_a_eps, kv_a_eps;

  friend bool operator==(const geometry&, const geometry&) = default;
};

/// A line of configs.hpp on one target.
struct compiled_model {
  geometry size;
  checkpoint_formats formats;
  int ranks, max_rows, max_context;
  bool fp8_caches;
  std::string target;
  result<std::unique_ptr<runner>> (*make)(const glm5_checkpoint&, const run_options&);
};

inline geometry geometry_of(const glm5_model_config& c) {
  return {c.hidden,
          c.q_lora,
          c.kv_lora,
          c.heads,
          c.nope,
          c.rope,
          c.v_dim,
          c.index_heads,
          c.index_dim,
          c.index_topk,
          c.experts,
          c.top_k,
          c.expert_width,
          c.dense_slices(),
          float(c.routed_scaling),
          float(c.layer_norm_eps),
          float(c.q_a_eps),
          float(c.kv_a_eps)};
}

/// The whole model's geometry behind a rank's config.
template <class C>
constexpr geometry geometry_of() {
  static_assert(C::input_eps == C::post_eps);
  return {C::hidden,
          C::q_lora,
          C::kv_lora,
          C::heads * C::ranks,
          C::nope,
          C::rope,
          C::v_dim,
          C::index_heads,
          C::index_dim,
          C::index_topk,
          C::experts,
          C::top_k,
          C::expert_width * C::ranks,
          C::dense_slices,
          C::routed_scaling,
          C::input_eps,
          C::q_a_eps,
          C::kv_a_eps};
}

template <class Format>
constexpr weight_kind kind_of() {
  if constexpr (std::is_same_v<Format, bf16_weights>)
    return weight_kind::bf16;
  else if constexpr (std::is_same_v<Format, fp8_block<128, 128>>)
    return weight_kind::fp8_block;
  else if constexpr (std::is_same_v<Format, fp8_channel>)
    return weight_kind::fp8_channel;
  else
    return weight_kind::mxfp4;
}
template <class C>
constexpr checkpoint_formats formats_of() {
  return {kind_of<typename C::attention_weights>(), kind_of<typename C::index_weights>(),
          kind_of<typename C::expert_weights>()};
}

}  // namespace monolayer::examples
