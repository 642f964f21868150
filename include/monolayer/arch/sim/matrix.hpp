// The matrix step, executed once a wave on gathered operands: products and sums in double (products of bf16
// are exact there), rounded to f32 once a machine instruction. wave64: one instruction over 32 k. wave32: two
// over 16 k each.
#pragma once

#include <bit>
#include <cstring>

#include "monolayer/arch/wave_layouts.hpp"

namespace monolayer::sim::detail {

inline double low_half(u32 pair) { return std::bit_cast<float>(pair << 16); }
inline double high_half(u32 pair) { return std::bit_cast<float>(pair & 0xffff0000u); }
inline bool not_finite(u32 pair) {
  return (pair & 0x7f80u) == 0x7f80u || (pair & 0x7f800000u) == 0x7f800000u;
}

using two_doubles = double __attribute__((vector_size(16)));

/// d[i][j] = f32(sum over k of a[i][k] * b[k][j] + d[i][j]) for `columns` columns, a multiple of 4.
template <int K, int Stride>
inline void multiply(const double (*a)[K], const double (*b)[Stride], double (*d)[Stride], int columns) {
  constexpr int rows = 4;  // at a time, so that additions of different sums overlap
  for (int j = 0; j < columns; j += 4)
    for (int i = 0; i < 16; i += rows) {
      two_doubles sum[rows][2] = {};
      for (int k = 0; k < K; ++k) {
        two_doubles low, high;
        std::memcpy(&low, &b[k][j], sizeof low);
        std::memcpy(&high, &b[k][j + 2], sizeof high);
#pragma GCC unroll 4
        for (int r = 0; r < rows; ++r) {
          const double w = a[i + r][k];
          sum[r][0] += two_doubles{w, w} * low;
          sum[r][1] += two_doubles{w, w} * high;
        }
      }
      for (int r = 0; r < rows; ++r)
        for (int t = 0; t < 4; ++t)
          d[i + r][j + t] = static_cast<float>(sum[r][t / 2][t % 2] + d[i + r][j + t]);
    }
}

/// Columns whose B is all zero only add +0 (unless A holds infinities or NaN), so they are not multiplied.
template <class L, int Steps>
inline void multiply_wave(const u32 (*a)[8], const u32 (*b)[4], float (*d)[4]) {
  constexpr int k_step = 32 / Steps, words = 4 / Steps;
  bool finite = true;
  u32 nonzero = 0;
  for (int l = 0; l < L::wave_size; ++l) {
    for (int h = 0; h < L::lane_rows; ++h)
      for (int t = 0; t < 4; ++t) finite &= !not_finite(a[l][4 * h + t]);
    if (b[l][0] | b[l][1] | b[l][2] | b[l][3]) nonzero |= 1u << L::b_column(l);
  }
  int position[L::columns], used = 0;
  for (int j = 0; j < L::columns; ++j) position[j] = (nonzero >> j & 1) || !finite ? used++ : -1;
  alignas(64) double da[16][k_step], db[k_step][L::columns], dd[16][L::columns];
  const int padded = (used + 3) & ~3;
  if (padded != used)
    for (int k = 0; k < k_step; ++k)
      for (int j = used; j < padded; ++j) db[k][j] = 0;
  for (int i = 0; i < 16; ++i)
    for (int j = used; j < padded; ++j) dd[i][j] = 0;
  for (int l = 0; l < L::wave_size; ++l)
    for (int r = 0; r < 4; ++r) {
      const int p = position[L::d_column(l, r)];
      if (p >= 0) dd[L::d_row(l, r)][p] = d[l][r];
    }
  for (int step = 0; used && step < Steps; ++step) {
    for (int l = 0; l < L::wave_size; ++l) {
      const int first = L::k_group(l) * 2 * words, p = position[L::b_column(l)];
      for (int t = 0; t < words; ++t) {
        for (int h = 0; h < L::lane_rows; ++h) {
          const u32 pair = a[l][4 * h + step * words + t];
          double* row = da[L::a_row(l, h)];
          row[first + 2 * t] = low_half(pair), row[first + 2 * t + 1] = high_half(pair);
        }
        if (p < 0) continue;
        const u32 pair = b[l][step * words + t];
        db[first + 2 * t][p] = low_half(pair), db[first + 2 * t + 1][p] = high_half(pair);
      }
    }
    multiply<k_step, L::columns>(da, db, dd, padded);
  }
  for (int l = 0; l < L::wave_size; ++l)
    for (int r = 0; r < 4; ++r) {
      const int p = position[L::d_column(l, r)];
      d[l][r] = p >= 0 ? static_cast<float>(dd[L::d_row(l, r)][p]) : 0.0f + d[l][r];
    }
}

inline void multiply_wave64(const u32 (*a)[8], const u32 (*b)[4], float (*d)[4]) {
  multiply_wave<wave64_layout, 1>(a, b, d);
}
inline void multiply_wave32(const u32 (*a)[8], const u32 (*b)[4], float (*d)[4]) {
  multiply_wave<wave32_layout, 2>(a, b, d);
}

}  // namespace monolayer::sim::detail
