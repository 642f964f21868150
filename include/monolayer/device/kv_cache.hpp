// Rows of the latent cache on the device: encoding, addresses, and bringing them back as bf16.
#pragma once

#include "monolayer/core/cache_layout.hpp"
#include "monolayer/device/index_cache.hpp"

namespace monolayer {

/// Encodes N (8 or 16) neighbouring values of a row that begin at value `first`, and stores them to a row in a slot and to
/// one in the caller's cache.
template <class T, kv_row_format F, int N>
MONOLAYER_DEVICE void store_kv_values(const float (&x)[N], int first, u8* slot_row, u8* cache_row) {
  static_assert(N == 8 || N == 16);
  constexpr int words = N * F::element_bytes / 4;
  u32 word[words] = {};
  MONOLAYER_UNROLL
  for (int i = 0; i < N; i += 2) {
    if constexpr (F::element_bytes == 2) {
      word[i / 2] = pack_bf16(x[i], x[i + 1]);
    } else {
      const u32 pair = u32(from_float<e4m3fn>(x[i]).bits) | u32(from_float<e4m3fn>(x[i + 1]).bits) << 8;
      word[i / 4] |= pair << (8 * (i % 4));
    }
  }
  u8 *own = slot_row + first * F::element_bytes, *cache = cache_row + first * F::element_bytes;
  if constexpr (words % 4 == 0) {
    MONOLAYER_UNROLL
    for (int i = 0; i < words; i += 4) {
      const u32x4 four{{word[i], word[i + 1], word[i + 2], word[i + 3]}};
      T::slot_store16(own + 4 * i, four);
      T::store16(cache + 4 * i, four);
    }
  } else {
    MONOLAYER_UNROLL
    for (int i = 0; i < words; ++i) {
      T::slot_store4(own + 4 * i, word[i]);
      T::store4(cache + 4 * i, word[i]);
    }
  }
}

/// One 16-byte word of a row as bf16 words: one of bf16 rows, two of fp8 rows. put(word number, word).
template <class T, kv_row_format F, class Put>
MONOLAYER_DEVICE void widen_kv_word(u32x4 word, Put put) {
  if constexpr (F::element_bytes == 2) {
    put(0, word);
  } else {
    MONOLAYER_UNROLL
    for (int i = 0; i < 2; ++i) {
      const fragment_b wide = widen_stored_e4m3x8<T>(u32x2{{word.v[2 * i], word.v[2 * i + 1]}});
      put(i, u32x4{{wide.v[0], wide.v[1], wide.v[2], wide.v[3]}});
    }
  }
}

/// The power of two that brings a matrix product with widened rows to its own scale, the other operand being held times
/// 2^activation_shift.
template <class T, kv_row_format F>
MONOLAYER_HOST_DEVICE constexpr float kv_result_factor() {
  return bits_to_float(u32(127 + (F::element_bytes == 2 ? T::bf16_shift : T::e4m3_shift)) << 23);
}

/// The latent cache's strides, as the caller gives them for the step.
template <class Block>
MONOLAYER_DEVICE cache_strides kv_strides(const Block& b) {
  const batch_view& v = b.params->batch;
  return {v.kv_block_stride, v.kv_row_stride, v.block_size};
}

/// Low word of the global slot of a live row's own token: slots fit 31 bits.
template <class Block>
MONOLAYER_DEVICE u32 own_token_slot(const Block& b, int row) {
  return Block::target::load8(b.params->row_slots + row).v[0];
}

}  // namespace monolayer
