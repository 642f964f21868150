// Weights to bf16, exactly, in plain C++.
#pragma once

#include <array>
#include <bit>

#include "monolayer/arch/target.hpp"

namespace monolayer::sim::detail {

/// The bf16 nearest to v (ties to even); exact wherever v is a bf16.
constexpr u32 bf16_bits(float v) {
  const u32 bits = std::bit_cast<u32>(v);
  return (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
}

/// e2m1 code times 2^(scale - 127 - shift).
constexpr u32 widen_e2m1(u32 code, int scale, int shift) {
  constexpr int exponents[8] = {0, -1, 0, 0, 1, 1, 2, 2};
  constexpr u32 halves[8] = {0, 0, 0, 1, 0, 1, 0, 1};
  const u32 sign = (code & 8) << 12, magnitude = code & 7;
  if (!magnitude) return sign;
  const int exponent = exponents[magnitude] + scale - shift;  // biased
  if (exponent >= 255) return sign | 0x7f80;
  if (exponent >= 1) return sign | static_cast<u32>(exponent) << 7 | halves[magnitude] << 6;
  const int down = 1 - exponent;  // subnormal: 1.m * 2^-126 >> down
  const u32 significand = 0x80u | halves[magnitude] << 6;
  if (down > 8) return sign;
  const u32 kept = significand >> down, rest = significand & ((1u << down) - 1), half = 1u << (down - 1);
  return sign | (kept + (rest > half || (rest == half && (kept & 1))));
}

constexpr std::array<u16, 256> make_e4m3_table() {
  std::array<u16, 256> table{};
  for (u32 code = 0; code < 256; ++code) {
    const u32 exponent = code >> 3 & 15, fraction = code & 7;
    float v = exponent ? static_cast<float>(8 + fraction) : static_cast<float>(fraction);
    for (u32 e = exponent ? exponent : 1; e < 10; ++e) v *= 0.5f;
    for (u32 e = 10; e < exponent; ++e) v *= 2.0f;
    const u32 bits = (code & 0x7f) == 0x7f ? 0x7fc0u : bf16_bits(v);
    table[code] = static_cast<u16>(bits | (code & 0x80) << 8);
  }
  return table;
}
inline constexpr std::array<u16, 256> e4m3_table = make_e4m3_table();

inline fragment_b widen_e2m1x8(u32 codes, u32 scale, int shift) {
  u32 table[16];
  for (u32 i = 0; i < 8; ++i)
    table[i] = widen_e2m1(i, static_cast<int>(scale), shift), table[i + 8] = table[i] | 0x8000;
  fragment_b out;
  for (int t = 0; t < 4; ++t, codes >>= 8) out.v[t] = table[codes & 15] | table[codes >> 4 & 15] << 16;
  return out;
}
inline fragment_b widen_e4m3x8(u32x2 codes) {
  fragment_b out;
  for (int t = 0; t < 4; ++t) {
    const u32 pair = codes.v[t / 2] >> (t % 2 * 16);
    out.v[t] = u32{e4m3_table[pair & 255]} | u32{e4m3_table[pair >> 8 & 255]} << 16;
  }
  return out;
}

/// The codes' bits at bf16's exponent and mantissa: the values times 2^-120.
inline fragment_b place_e4m3x8(u32x2 codes) {
  fragment_b out;
  for (int t = 0; t < 4; ++t) {
    const u32 pair = codes.v[t / 2] >> (t % 2 * 16), low = pair & 255, high = pair >> 8 & 255;
    out.v[t] = (low & 0x80) << 8 | (low & 0x7f) << 4 | ((high & 0x80) << 8 | (high & 0x7f) << 4) << 16;
  }
  return out;
}

}  // namespace monolayer::sim::detail
