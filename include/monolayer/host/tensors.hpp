// A checkpoint's tensors as the packers take them: whole matrices of all ranks, [out][in] as Hugging Face stores them.
#pragma once

#include <functional>

#include "monolayer/host/pack.hpp"

namespace monolayer {

struct expert_tensors {
  checkpoint_matrix gate, up;  // [width of the model][hidden]
  checkpoint_matrix down;      // [hidden][width of the model]
};

/// One layer of GLM-5 (glm_moe_dsa). Pointers must stay valid while the layer is packed. A layer leaves null or empty
/// what it does not have: the index tensors without an indexer of its own, router and experts where it is dense.
struct glm5_tensors {
  const u16 *input_norm = nullptr, *post_norm = nullptr;  // bf16 [hidden]
  const u16* q_a_norm = nullptr;                          // bf16 [q_lora]
  const u16* kv_a_norm = nullptr;                         // bf16 [kv_lora]
  checkpoint_matrix q_a;                                  // [q_lora][hidden]
  checkpoint_matrix kv_a;                                 // [kv_lora + rope][hidden]
  checkpoint_matrix q_b;                                  // [heads * (nope + rope)][q_lora]
  checkpoint_matrix kv_b;                                 // [heads * (nope + v_dim)][kv_lora]
  checkpoint_matrix o;                                    // [hidden][heads * v_dim]

  checkpoint_matrix index_q;        // wq_b [index_heads * index_dim][q_lora]
  checkpoint_matrix index_k;        // wk [index_dim][hidden]
  checkpoint_matrix index_weights;  // weights_proj, bf16 [index_heads][hidden]
  const float *index_k_norm_weight = nullptr, *index_k_norm_bias = nullptr;  // [index_dim]

  checkpoint_matrix router;            // bf16 [experts][hidden]
  const float* router_bias = nullptr;  // e_score_correction_bias [experts]
  expert_tensors shared;
  std::function<expert_tensors(int)> expert;

  expert_tensors dense;  // the whole MLP, as one expert of its width
};

/// Packed bytes with their header: one matrix, a run of experts' matrices, or a vector as it is.
struct packed_matrix {
  packed_header header;
  std::vector<u8> bytes;
};

/// Packs `features` features of one matrix, or of as many as Tile has subtiles, with the header that `rank` of `ranks`
/// must find. The matrices' windows start where the rank's share does. `splits` and errors: see pack().
template <class T, class Tile>
result<packed_matrix> pack_matrix(std::span<const checkpoint_matrix> m, long features, u32 ranks, u32 rank,
                                  const std::string& name, int splits = 1) {
  packed_matrix p{header_for<T, Tile>(features * splits, 1, ranks, rank), {}};
  p.bytes.resize(p.header.bytes);
  if (status s = pack<T, Tile>(p.bytes, m, features, name, splits); !s) return s;
  p.header.checksum = checksum(p.bytes);
  return p;
}

}  // namespace monolayer
