// Staging: the rows that a tile multiplies, brought into LDS as bf16, normalised on the way where a norm precedes the
// projection. The consumer waves do it together; a row's bits depend on the target's wave layout alone.
#pragma once

#include "monolayer/device/sync.hpp"

namespace monolayer {

/// Two values as a pair of bf16: from_float<bf16> of each, but for a NaN's payload.
MONOLAYER_HOST_DEVICE u32 pack_bf16(float low, float high) {
#if defined(__CUDA_ARCH__)
  u32 pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
#else
  return u32(from_float<bf16>(low).bits) | u32(from_float<bf16>(high).bits) << 16;
#endif
}
MONOLAYER_HOST_DEVICE constexpr float low_bf16(u32 pair) { return bits_to_float(pair << 16); }
MONOLAYER_HOST_DEVICE constexpr float high_bf16(u32 pair) { return bits_to_float(pair & 0xffff0000u); }

/// Sum over the lanes of a wave, in a fixed tree.
template <class T>
MONOLAYER_DEVICE float wave_sum(float x) {
  MONOLAYER_UNROLL
  for (int mask = T::wave_size / 2; mask > 0; mask /= 2)
    x = add(x, bits_to_float(T::shuffle_xor(float_to_bits(x), mask)));
  return x;
}

/// 8 bf16 times 2^activation_shift, as staged rows are held.
template <class T>
MONOLAYER_DEVICE u32x4 shifted(u32x4 v) {
  if constexpr (T::activation_shift != 0) {
#if defined(__CUDA_ARCH__)
    constexpr u32 factors = u32(127 + T::activation_shift) * 0x00800080u;
    for (u32& pair : v.v) asm("mul.rn.bf16x2 %0, %0, %1;" : "+r"(pair) : "r"(factors));
#else
    constexpr float factor = bits_to_float(u32(127 + T::activation_shift) << 23);
    for (u32& pair : v.v) pair = pack_bf16(mul(low_bf16(pair), factor), mul(high_bf16(pair), factor));
#endif
  }
  return v;
}

/// Rows whose loads are in flight together while they are staged.
inline constexpr int rows_in_flight = 4;

/// An RMSNorm of rows of k columns, which are staged as padded_k.
struct norm_shape {
  int k, padded_k;
  float inverse_k, eps;

  template <int K, int PaddedK>
  MONOLAYER_HOST_DEVICE static constexpr norm_shape of(float eps) {
    static_assert(K % 8 == 0 && PaddedK % 8 == 0 && K <= PaddedK);
    return {K, PaddedK, 1.0f / K, eps};
  }
};

/// Brings the live rows into LDS under an RMSNorm: bf16(x / sqrt(mean(x^2) + eps) * weight), f32 inside, held times
/// 2^activation_shift; columns k .. padded_k - 1 are zero, and padded_k is at most MostColumns. `load(row, column)` returns
/// 8 bf16 of the source, `weight` is bf16 [k]. A sync() must follow. False: the block leaves.
template <int MostColumns, class Block, class Load>
MONOLAYER_DEVICE bool stage_normed_rows(Block& b, const norm_shape& shape, const u8* weight, Load load) {
  using T = typename Block::target;
  constexpr int step = Block::threads * 8;
  constexpr int mine = (MostColumns + step - 1) / step;  // pieces of 8 columns a thread
  const int k_end = shape.k;
  const u32 row_bytes = u32(shape.padded_k) * 2;
  u32x4 g[mine];
  MONOLAYER_UNROLL
  for (int i = 0; i < mine; ++i) {
    const int c = Block::thread() * 8 + i * step;
    g[i] = c < k_end ? T::load16(weight + u64(c) * 2) : u32x4{};
  }
  MONOLAYER_NO_UNROLL
  for (int first = 0; first < b.live; first += rows_in_flight) {
    u32x4 v[rows_in_flight][mine];
    MONOLAYER_UNROLL
    for (int r = 0; r < rows_in_flight; ++r) {
      const int row = first + r < b.live ? b.row(first + r) : 0;
      MONOLAYER_UNROLL
      for (int i = 0; i < mine; ++i) {
        const int c = Block::thread() * 8 + i * step;
        v[r][i] = first + r < b.live && c < k_end ? load(row, c) : u32x4{};
      }
    }
    float squares[rows_in_flight] = {};
    MONOLAYER_UNROLL
    for (int r = 0; r < rows_in_flight; ++r) {
      if (first + r >= b.live) continue;
      const lds_address to = Block::staged_row(first + r, row_bytes);
      MONOLAYER_UNROLL
      for (int i = 0; i < mine; ++i) {
        const int c = Block::thread() * 8 + i * step;
        MONOLAYER_UNROLL
        for (int k = 0; k < 4; ++k) {
          squares[r] = fma(low_bf16(v[r][i].v[k]), low_bf16(v[r][i].v[k]), squares[r]);
          squares[r] = fma(high_bf16(v[r][i].v[k]), high_bf16(v[r][i].v[k]), squares[r]);
        }
        if (c < shape.padded_k) T::lds_store16(to + u32(c) * 2, v[r][i]);
      }
    }
    MONOLAYER_UNROLL
    for (int r = 0; r < rows_in_flight; ++r) squares[r] = wave_sum<T>(squares[r]);
    MONOLAYER_UNROLL
    for (int r = 0; r < rows_in_flight; ++r)
      if (T::lane() == 0 && first + r < b.live)
        T::lds_store4(Block::layout::sums + 4u * u32((first + r) * T::consumer_waves + T::wave()),
                      float_to_bits(squares[r]));
  }
  if (!b.sync()) return false;
  // Lane j finds the factor of row j, and all waves find the same. The power of two commutes with every rounding below.
  constexpr float power = bits_to_float(u32(127 + T::activation_shift) << 23);
  u32 factor = 0;
  if (T::lane() < b.live) {
    float total = 0.0f;
    MONOLAYER_UNROLL
    for (int w = 0; w < T::consumer_waves; w += 4) {
      const u32x4 s = T::lds_load16(Block::layout::sums + 4u * u32(T::lane() * T::consumer_waves + w));
      MONOLAYER_UNROLL
      for (int i = 0; i < 4; ++i) total = add(total, bits_to_float(s.v[i]));
    }
    factor = float_to_bits(mul(reciprocal_sqrt(add(mul(total, shape.inverse_k), shape.eps)), power));
  }
  constexpr int at_once = 2;
  MONOLAYER_NO_UNROLL
  for (int first = 0; first < b.live; first += at_once) {
    MONOLAYER_UNROLL
    for (int r = 0; r < at_once; ++r) {
      // No factor is negative, so the largest of one lane's and zeros is that lane's.
      const float scale = bits_to_float(T::wave_max(T::lane() == first + r ? factor : 0u));
      if (first + r >= b.live) continue;
      const lds_address at = Block::staged_row(first + r, row_bytes);
      // A thread reads back exactly the columns that it stored.
      MONOLAYER_UNROLL
      for (int i = 0; i < mine; ++i) {
        const int c = Block::thread() * 8 + i * step;
        if (c >= k_end) continue;
        u32x4 v = T::lds_load16(at + u32(c) * 2);
        MONOLAYER_UNROLL
        for (int k = 0; k < 4; ++k)
          v.v[k] = pack_bf16(mul(mul(low_bf16(v.v[k]), scale), low_bf16(g[i].v[k])),
                             mul(mul(high_bf16(v.v[k]), scale), high_bf16(g[i].v[k])));
        T::lds_store16(at + u32(c) * 2, v);
      }
    }
  }
  return true;
}

/// Eight neighbouring lanes that hold one feature each (features 0..7 or 8..15 of one column) gather them as bf16; the
/// first of the eight returns them all. Every lane of the wave calls it.
template <class T>
MONOLAYER_DEVICE u32x4 gather8(float value) {
  const u32 own = pack_bf16(value, 0.0f);
  const u32 pair = own | T::shuffle_xor(own, 1) << 16;  // meaningful in even lanes
  const u32 next = T::shuffle_xor(pair, 2);
  u32x4 all;
  all.v[0] = pair;
  all.v[1] = next;
  all.v[2] = T::shuffle_xor(pair, 4);
  all.v[3] = T::shuffle_xor(next, 4);
  return all;
}

}  // namespace monolayer
