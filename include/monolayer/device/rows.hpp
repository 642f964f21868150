// Staging: the rows that a tile multiplies, brought into LDS as bf16, normalised on the way where a norm precedes the
// projection. The consumer waves do it together; a row's bits depend on the target's wave layout alone.
#pragma once

#include "monolayer/device/sync.hpp"

namespace monolayer {

MONOLAYER_HOST_DEVICE constexpr u32 pack_bf16(float low, float high) {
  return u32(from_float<bf16>(low).bits) | u32(from_float<bf16>(high).bits) << 16;
}
MONOLAYER_HOST_DEVICE constexpr float low_bf16(u32 pair) { return bits_to_float(pair << 16); }
MONOLAYER_HOST_DEVICE constexpr float high_bf16(u32 pair) { return bits_to_float(pair & 0xffff0000u); }

/// Sum over the lanes of a wave, in a fixed tree.
template <class T>
MONOLAYER_DEVICE float wave_sum(float x) {
  for (int mask = T::wave_size / 2; mask > 0; mask /= 2)
    x = add(x, bits_to_float(T::shuffle_xor(float_to_bits(x), mask)));
  return x;
}

/// 8 bf16 times 2^activation_shift, as staged rows are held.
template <class T>
MONOLAYER_DEVICE u32x4 shifted(u32x4 v) {
  if constexpr (T::activation_shift != 0) {
    constexpr float factor = bits_to_float(u32(127 + T::activation_shift) << 23);
    for (u32& pair : v.v) pair = pack_bf16(mul(low_bf16(pair), factor), mul(high_bf16(pair), factor));
  }
  return v;
}

/// Brings the live rows into LDS, as they are. `load(row, column)` returns 8 bf16 of the source. Columns K .. PaddedK - 1 are zero.
template <int K, int PaddedK, class Block, class Load>
MONOLAYER_DEVICE void copy_rows(Block& b, Load load) {
  using T = typename Block::target;
  static_assert(K % 8 == 0);
  MONOLAYER_NO_UNROLL
  for (int j = 0; j < b.live; ++j) {
    const int row = b.row(j);
    const lds_address to = Block::staged_row(j, PaddedK * 2);
    for (int c = Block::thread() * 8; c < PaddedK; c += Block::threads * 8)
      T::lds_store16(to + u32(c) * 2, c < K ? load(row, c) : u32x4{});
  }
}

/// RMSNorm in place over the staged rows: x -> bf16(x / sqrt(mean(x^2) + eps) * weight), f32 inside, held times
/// 2^activation_shift. `weight` is bf16 [K]. copy_rows comes before, a sync() must follow. False: the block leaves.
template <int K, int PaddedK, class Block>
MONOLAYER_DEVICE bool normalise_rows(Block& b, const void* weight, float eps) {
  using T = typename Block::target;
  constexpr int step = Block::threads * 8;
  // A thread reads back exactly the columns that it stored, so no barrier stands between copy and squares.
  MONOLAYER_NO_UNROLL
  for (int j = 0; j < b.live; ++j) {
    const lds_address at = Block::staged_row(j, PaddedK * 2);
    float squares = 0.0f;
    for (int c = Block::thread() * 8; c < K; c += step) {
      const u32x4 v = T::lds_load16(at + u32(c) * 2);
      for (int i = 0; i < 4; ++i) {
        squares = fma(low_bf16(v.v[i]), low_bf16(v.v[i]), squares);
        squares = fma(high_bf16(v.v[i]), high_bf16(v.v[i]), squares);
      }
    }
    squares = wave_sum<T>(squares);
    if (T::lane() == 0)
      T::lds_store4(Block::layout::sums + 4u * u32(j * T::consumer_waves + T::wave()), float_to_bits(squares));
  }
  if (!b.sync()) return false;
  MONOLAYER_NO_UNROLL
  for (int j = 0; j < b.live; ++j) {
    float total = 0.0f;
    for (int w = 0; w < T::consumer_waves; w += 4) {
      const u32x4 v = T::lds_load16(Block::layout::sums + 4u * u32(j * T::consumer_waves + w));
      for (int i = 0; i < 4; ++i) total = add(total, bits_to_float(v.v[i]));
    }
    // The power of two commutes with every rounding below.
    constexpr float factor = bits_to_float(u32(127 + T::activation_shift) << 23);
    const float scale = mul(reciprocal_sqrt(add(mul(total, 1.0f / K), eps)), factor);
    const lds_address at = Block::staged_row(j, PaddedK * 2);
    for (int c = Block::thread() * 8; c < K; c += step) {
      u32x4 v = T::lds_load16(at + u32(c) * 2);
      const u32x4 g = T::load16(static_cast<const u8*>(weight) + u64(c) * 2);
      for (int i = 0; i < 4; ++i)
        v.v[i] = pack_bf16(mul(mul(low_bf16(v.v[i]), scale), low_bf16(g.v[i])),
                           mul(mul(high_bf16(v.v[i]), scale), high_bf16(g.v[i])));
      T::lds_store16(at + u32(c) * 2, v);
    }
  }
  return true;
}

/// Eight neighbouring lanes that hold one feature each (features 0..7 or 8..15 of one column) gather them as bf16; the
/// first of the eight returns them all. Every lane of the wave calls it.
template <class T>
MONOLAYER_DEVICE u32x4 gather8(float value) {
  const u32 own = from_float<bf16>(value).bits;
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
