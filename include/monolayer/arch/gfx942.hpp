// gfx942: MI300X, MI325X (CDNA 3). The same stages, without CDNA 4's conversions and wide load-to-LDS. Its
// FP8 unit knows the FNUZ formats only: weights stay OCP e4m3fn bytes and become bf16 by bit operations.
#pragma once

#include "monolayer/arch/gfx9/target.hpp"

namespace monolayer {

struct gfx942 : gfx9::common<4> {
  static constexpr const char* name = "gfx942";
  static constexpr u32 lds_bytes = 65536;
  // The share of an MI300X. Load-to-LDS moves only 4 bytes a lane here, 256 an instruction, and vmcnt counts
  // to 63, at which the wave stalls: 16 KB is what really flies. 16-byte loads to registers and LDS writes
  // could use the rest.
  static constexpr u32 in_flight_bytes = 24576;

  static constexpr int mxfp4_largest_scale = 252;
  /// Low nibbles: codes 0..3, one a byte; high nibbles: codes 4..7.
  MONOLAYER_HOST_DEVICE static constexpr u32 arrange_e2m1x8(u32 codes) {
    u32 arranged = 0;
    for (int i = 0; i < 8; ++i) arranged |= (codes >> (4 * i) & 15u) << (8 * (i % 4) + 4 * (i / 4));
    return arranged;
  }
  /// In each word: the first two codes in bytes 1 and 3, the next two in bytes 0 and 2.
  MONOLAYER_HOST_DEVICE static constexpr u64 arrange_e4m3x8(u64 codes) {
    constexpr int place[4] = {1, 3, 0, 2};
    u64 arranged = 0;
    for (int i = 0; i < 8; ++i) arranged |= (codes >> (8 * i) & 255u) << (8 * (i / 4 * 4 + place[i % 4]));
    return arranged;
  }

#if MONOLAYER_AMD_DEVICE && defined(__gfx942__)
  MONOLAYER_DEVICE static fragment_b widen_e2m1x8(u32 codes, u32 e8m0) {
    const float scale = __builtin_bit_cast(float, e8m0 == 0 ? 0x00400000u : e8m0 << 23);
    fragment_b result;
    for (int i = 0; i < 2; ++i) {
      const u32 four = codes >> (4 * i), magnitude = four & 0x07070707u;
      // bf16 of 0, 0.5, 1, 1.5, 2, 3, 4, 6: high bytes with the sign, low bytes
      const u32 high = gfx9::isa::permute_bytes(0x40404040u, 0x3f3f3f00u, magnitude) | (four & 0x08080808u)
                                                                                           << 4;
      const u32 low = gfx9::isa::permute_bytes(0xc0804000u, 0xc0800000u, magnitude);
      result.v[2 * i] = scaled(gfx9::isa::permute_bytes(high, low, 0x05010400u), scale);
      result.v[2 * i + 1] = scaled(gfx9::isa::permute_bytes(high, low, 0x07030602u), scale);
    }
    return result;
  }
  MONOLAYER_DEVICE static fragment_b widen_e4m3x8(u32x2 codes) {
    fragment_b result;
    for (int i = 0; i < 2; ++i) {
      result.v[2 * i] = widen_e4m3x2(codes.v[i]);
      result.v[2 * i + 1] = widen_e4m3x2(codes.v[i] << 8);
    }
    return result;
  }
  MONOLAYER_DEVICE static void mma(const fragment_a<1>& a, const fragment_b& b, fragment_d& d) {
    // 16 k a step, four a lane group: which k they are is free as long as A and B agree.
    using operand = short __attribute__((ext_vector_type(4)));
    using sums = float __attribute__((ext_vector_type(4)));
    auto acc = __builtin_bit_cast(sums, d);
    for (int i = 0; i < 2; ++i) {
      const u32x2 left{{ a.v[0][2 * i], a.v[0][2 * i + 1] }}, right{{ b.v[2 * i], b.v[2 * i + 1] }};
      acc = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(__builtin_bit_cast(operand, left),
                                                      __builtin_bit_cast(operand, right), acc, 0, 0, 0);
    }
    d = __builtin_bit_cast(fragment_d, acc);
  }

 private:
  /// Two bf16 times a power of two; the products are bf16 again, so their upper halves are all of them.
  MONOLAYER_DEVICE static u32 scaled(u32 pair, float factor) {
    const float low = __builtin_bit_cast(float, pair << 16) * factor;
    const float high = __builtin_bit_cast(float, pair & 0xffff0000u) * factor;
    return gfx9::isa::permute_bytes(__builtin_bit_cast(u32, high), __builtin_bit_cast(u32, low), 0x07060302u);
  }
  /// Codes in bytes 1 and 3. Exponent and mantissa moved into bf16's fields are the value times 2^-120,
  /// subnormal codes included.
  MONOLAYER_DEVICE static u32 widen_e4m3x2(u32 codes) {
    return scaled((codes & 0x80008000u) | (codes & 0x7f007f00u) >> 4, 0x1p120f);
  }

 public:
#else
  MONOLAYER_DEVICE static fragment_b widen_e2m1x8(u32, u32) { return {}; }
  MONOLAYER_DEVICE static fragment_b widen_e4m3x8(u32x2) { return {}; }
  MONOLAYER_DEVICE static void mma(const fragment_a<1>&, const fragment_b&, fragment_d&) {}
#endif
};
static_assert(target<gfx942>);

}  // namespace monolayer
