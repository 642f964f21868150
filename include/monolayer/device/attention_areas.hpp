// How an attention tile uses the place of the staged rows, and how its work is cut.
#pragma once

#include "monolayer/core/cache_layout.hpp"
#include "monolayer/core/weight_layout.hpp"

namespace monolayer {

namespace detail {

/// Cache rows that an attention tile stages at a time where the config does not say: a split's, at most 64, and so many
/// that they and the queries take at most two fifths of the LDS: the ring needs the rest.
template <class C, class T>
constexpr int default_kv_step() {
  const u32 row = (C::kv_cache::latent + C::kv_cache::rope) * 2 + 64, span = C::index_topk / C::kv_splits;
  u32 step = 64;
  while (step > 16 && (step / 2 >= span || (step + C::heads_at_once) * row > T::lds_bytes / 5 * 2)) step /= 2;
  return int(step);
}

}  // namespace detail

/// Where the parts of an attention tile lie in the place of the staged rows; bytes from layout::rows.
template <class C, class T>
struct attention_areas {
  using format = typename C::kv_cache;
  static constexpr int heads = C::heads_at_once, span = C::index_topk / C::kv_splits;
  static constexpr int step = [] {
    if constexpr (requires { C::kv_step; }) return int(C::kv_step);
    else return detail::default_kv_step<C, T>();
  }();
  static_assert(step % 16 == 0 && step <= 128, "attention: kv_step must be a multiple of 16, at most 128");
  static constexpr int waves = T::consumer_waves;
  static constexpr int row_columns = format::latent + format::rope;
  static constexpr int row_steps = row_columns / step_k;  // steps of the matrix unit over a row
  static constexpr int slot_tiles = step / 16;
  static constexpr int value_steps = (step + step_k - 1) / step_k;
  /// The scores' k is cut into parts, so that more waves have work; they are added in order.
  static constexpr int score_parts = [] {
    int n = 1;
    for (int i = 1; i * slot_tiles <= waves; ++i)
      if (row_steps % i == 0) n = i;
    return n;
  }();
  // Rows of LDS lie so that the lanes of a 16-byte load fall into different banks.
  static constexpr u32 pad = T::lane_rows == 2 ? 64 : 16;
  static constexpr u32 row_stride = row_columns * 2 + pad;
  static constexpr u32 score_stride = step * 4 + 16;
  static constexpr u32 weight_stride = value_steps * step_k * 2 + 16;
  static constexpr u32 queries = 0;                                         // bf16 [heads][row_stride]
  static constexpr u32 rows = queries + heads * row_stride;                 // bf16 [step][row_stride]
  static constexpr u32 scores = rows + step * row_stride;                   // f32 [score_parts][heads][score_stride]
  static constexpr u32 softmax = scores + score_parts * heads * score_stride;  // bf16 [heads][weight_stride]
  static constexpr u32 rescale = softmax + heads * weight_stride;           // f32 [16]
  static constexpr u32 maxima = rescale + 64;                               // f32 [16], then the sums f32 [16]
  static constexpr u32 places = maxima + 128;                               // token_place [span up to a step]
  static constexpr u32 bytes = places + (span + step - 1) / step * step * 8;
  // The sums, on their way out: over queries and rows.
  static constexpr u32 sum_stride = format::latent * 4 + 16;
  static_assert(heads * sum_stride <= scores);
  static_assert(score_parts * heads * score_stride >= 32u * waves);  // also scratch of own_tokens
};

}  // namespace monolayer
