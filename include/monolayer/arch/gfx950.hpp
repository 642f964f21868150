// gfx950: MI350X and MI355X (CDNA 4).
#pragma once

#include "monolayer/arch/gfx9/target.hpp"

namespace monolayer {

struct gfx950 : gfx9::common<16> {
  static constexpr const char* name = "gfx950";
  static constexpr u32 lds_bytes = 163840;
  static constexpr u32 in_flight_bytes = 40960;

  // v_cvt_scalef32_pk_bf16_fp4 takes the codes two a byte in checkpoint order, and a power of two as an f32,
  // of which it uses the exponent: e8m0 0 is 2^-127. Largest scale: 6 * 2^(252 - 127) is the last that bf16
  // holds.
  static constexpr int mxfp4_largest_scale = 252;
  MONOLAYER_HOST_DEVICE static constexpr u32 arrange_e2m1x8(u32 codes) { return codes; }
  MONOLAYER_HOST_DEVICE static constexpr u64 arrange_e4m3x8(u64 codes) { return codes; }

#if MONOLAYER_AMD_DEVICE && defined(__gfx950__)
  MONOLAYER_DEVICE static fragment_b widen_e2m1x8(u32 codes, u32 e8m0) {
    const float scale = __builtin_bit_cast(float, e8m0 << 23);
    return {
        { __builtin_bit_cast(u32, __builtin_amdgcn_cvt_scalef32_pk_bf16_fp4(codes, scale, 0)),
          __builtin_bit_cast(u32, __builtin_amdgcn_cvt_scalef32_pk_bf16_fp4(codes, scale, 1)),
          __builtin_bit_cast(u32, __builtin_amdgcn_cvt_scalef32_pk_bf16_fp4(codes, scale, 2)),
          __builtin_bit_cast(u32, __builtin_amdgcn_cvt_scalef32_pk_bf16_fp4(codes, scale, 3)) }};
  }
  MONOLAYER_DEVICE static fragment_b widen_e4m3x8(u32x2 codes) {
    return {
        { __builtin_bit_cast(u32, __builtin_amdgcn_cvt_scalef32_pk_bf16_fp8(codes.v[0], 1.0f, false)),
          __builtin_bit_cast(u32, __builtin_amdgcn_cvt_scalef32_pk_bf16_fp8(codes.v[0], 1.0f, true)),
          __builtin_bit_cast(u32, __builtin_amdgcn_cvt_scalef32_pk_bf16_fp8(codes.v[1], 1.0f, false)),
          __builtin_bit_cast(u32, __builtin_amdgcn_cvt_scalef32_pk_bf16_fp8(codes.v[1], 1.0f, true)) }};
  }
  MONOLAYER_DEVICE static void mma(const fragment_a<1>& a, const fragment_b& b, fragment_d& d) {
    using operand = __bf16 __attribute__((ext_vector_type(8)));
    using sums = float __attribute__((ext_vector_type(4)));
    d = __builtin_bit_cast(fragment_d, __builtin_amdgcn_mfma_f32_16x16x32_bf16(
                                           __builtin_bit_cast(operand, a), __builtin_bit_cast(operand, b),
                                           __builtin_bit_cast(sums, d), 0, 0, 0));
  }
#else
  MONOLAYER_DEVICE static fragment_b widen_e2m1x8(u32, u32) { return {}; }
  MONOLAYER_DEVICE static fragment_b widen_e4m3x8(u32x2) { return {}; }
  MONOLAYER_DEVICE static void mma(const fragment_a<1>&, const fragment_b&, fragment_d&) {}
#endif
};
static_assert(target<gfx950>);

}  // namespace monolayer
