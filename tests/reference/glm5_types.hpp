// What goes into a step of the whole-layer reference and what comes out of it.
#pragma once

#include <vector>

#include "reference/batch.hpp"
#include "reference/glm5_cache.hpp"
#include "reference/glm5_parts.hpp"
#include "reference/slices.hpp"

namespace monolayer::reference {

// The places where the library's values lose bits: bf16 but for the caches. A default one rounds as the
// library does, except for the result, whose last rounding a test's tolerance covers.
struct glm5_rounding {
  bool input = true;                              // the residual row
  bool norm = true;                               // both normalised rows, after the norm's weight
  bool q_a = true;                                // output of q_a
  bool q_a_norm = true;                           // output of q_a's norm
  bool q = true;                                  // queries, after RoPE
  bool q_with_factors = false;                    // q_nope times kv_b's factors by row (fp8_channel)
  bool index_q = true;                            // index queries, after RoPE
  cache_format cache = cache_format::bf16;        // attention rows, after norm and RoPE
  cache_format index_cache = cache_format::bf16;  // index keys, after norm and RoPE
  bool bf16_before_fp8 = false;  // engines that keep a row in bf16 before they cast it to the cache's fp8
  bool ql = true;                // queries times the keys' up-projection
  bool p = true;                 // exp(score - largest score), and so in their sum
  // A list is softened in ranges of `range` entries, and these `step` entries at a time: p is rounded against the largest
  // score of its range up to its own step. 0: the whole list at once.
  int range = 0, step = 0;
  bool ol = true;                // attention's latents, divided by the sum
  bool o = true;                 // attention's output before o_proj
  bool wire = true;              // a rank's partial sum, its own included, at any number of ranks
  bool mid = true;               // the residual row after attention
  bool act = true;               // an expert's silu(gate) * up * routing weight
  bool out = false;              // the new residual row

  static glm5_rounding exact() {
    glm5_rounding r;
    r.input = r.norm = r.q_a = r.q_a_norm = r.q = r.index_q = false;
    r.cache = r.index_cache = cache_format::exact;
    r.ql = r.p = r.ol = r.o = r.wire = r.mid = r.act = r.out = false;
    return r;
  }

  static glm5_rounding with_out() {
    glm5_rounding r;
    r.out = true;
    return r;
  }
};

// ---- a step ----

// Rows of one launch. Row r is token positions[r] of request requests[r] and sees that request's tokens
// 0 .. positions[r]: those that are rows here by their own values, the others by the request's cache.
struct query_rows {
  batch h;  // [rows][hidden]
  std::vector<int> positions;
  std::vector<int> requests;
};

// Values to go on with in place of the reference's own, which stay in the result. With another computation's
// values here each of its stages is checked from the very inputs it had. Without them a whole layer can't be
// checked tightly: the last bit of a float decides a bf16 rounding here and there, each such row changes the
// next roundings, and after three or four of them two right computations differ by as much as bf16 itself.
struct given_values {
  const batch* q_a = nullptr;
  const batch* q = nullptr;
  const batch* rows = nullptr;
  const batch* index_keys = nullptr;
  const batch* index_q = nullptr;
  const batch* ql = nullptr;
  const batch* o = nullptr;
  const batch* mid = nullptr;
};

struct step_options {
  int tp = 1;
  int dense_slices = 1;  // each is cut among the ranks, which decides what a rank's partial sum holds
  glm5_rounding points = {};
  const token_lists* lists = nullptr;   // what to attend to in place of the row's own picks; -1 is skipped
  const pick_table* experts = nullptr;  // experts in place of the router's picks
  given_values given = {};
};

struct layer_result {
  batch x, q_a, c_q;  // [rows][hidden], [rows][q_lora]
  batch q;            // [rows][heads * (nope + rope)], rotated
  batch rows;         // own cache rows, [rows][kv_lora + rope]
  batch ql, ol, o;    // [rows][heads * kv_lora], the same, [rows][heads * v_dim]
  batch attn;         // [rows][hidden], sum of the ranks' partial sums
  batch mid;          // [rows][hidden]

  batch index_keys;     // own, [rows][index_dim]; this and the next four only where the layer has an indexer
  batch index_q;        // [rows][index_heads * index_dim], rotated
  batch index_weights;  // [rows][index_heads], factors included
  std::vector<std::vector<double>> scores;  // [rows][position + 1]
  std::vector<double> list_margin;
  token_lists lists;  // the row's own picks, or the forced ones where the layer has no indexer

  batch y;                                   // [rows][hidden]
  batch logits;                              // [rows][experts]; this and the next three only with a router
  pick_table experts;                        // as in slice_b: the router's, or the forced
  std::vector<std::vector<double>> weights;  // in the order of experts
  std::vector<double> expert_margin;         // of the router's own choice
  batch sum, out;                            // [rows][hidden]: what the MLP adds, and mid + sum
};

}  // namespace monolayer::reference
