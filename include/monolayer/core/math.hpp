// f32 functions that give the same bits on every target: host g++ or clang, HIP clang and nvcc.
//
// That holds because they are made only of operations whose result IEEE 754 fixes: +, -, *, /, square root,
// fused multiply-add and integer operations on the bits, in one fixed order. Three rules keep it so.
//
// 1. No expression here may be written a * b + c. GPU compilers contract it to a fused multiply-add by
// default, host compilers do not, and the results differ. A product that feeds a sum is fma(a, b, c), or goes
// through mul() and add(), which are not contracted. Callers who want equal bits follow the same rule.
//
// 2. No library function: libm, libdevice and the ROCm device library each round in their own way.
//
// 3. Divisions and square roots are correctly rounded on the device: in nvcc through __fdiv_rn and __fsqrt_rn
// (whatever -prec-div and -prec-sqrt say), in HIP clang by default
// (-fhip-fp32-correctly-rounded-divide-sqrt, which must stay on).
//
// Build without -ffast-math, HIP -ffp-contract=fast (it overrides the pragma in mul() and add()), HIP
// -fgpu-flush-denormals-to-zero and nvcc -ftz=true or --use_fast_math. Build g++ host code with
// -ffp-contract=off: g++ has no pragma for it.
//
// The bits of a NaN result are the one exception: which NaN an operation returns is the machine's own choice.
#pragma once

#include <cstdint>

#include "monolayer/core/macros.hpp"
#include "monolayer/core/types.hpp"

// clang obeys this at the head of a block; nvcc has intrinsics instead, g++ an option.
#if defined(__clang__) && !defined(__NVCC__)
#define MONOLAYER_NO_CONTRACT _Pragma("clang fp contract(off)")
#else
#define MONOLAYER_NO_CONTRACT
#endif

namespace monolayer {

/// a * b + c with one rounding.
MONOLAYER_HOST_DEVICE float fma(float a, float b, float c) {
#if defined(__CUDA_ARCH__)
  return __fmaf_rn(a, b, c);
#else
  return __builtin_fmaf(a, b, c);
#endif
}

/// a * b, rounded, never merged into a fused multiply-add.
MONOLAYER_HOST_DEVICE float mul(float a, float b) {
  MONOLAYER_NO_CONTRACT
#if defined(__CUDA_ARCH__)
  return __fmul_rn(a, b);
#else
  return a * b;
#endif
}

/// a + b, rounded, never merged into a fused multiply-add.
MONOLAYER_HOST_DEVICE float add(float a, float b) {
  MONOLAYER_NO_CONTRACT
#if defined(__CUDA_ARCH__)
  return __fadd_rn(a, b);
#else
  return a + b;
#endif
}

/// a - b, rounded, never merged into a fused multiply-add.
MONOLAYER_HOST_DEVICE float sub(float a, float b) {
  MONOLAYER_NO_CONTRACT
#if defined(__CUDA_ARCH__)
  return __fsub_rn(a, b);
#else
  return a - b;
#endif
}

/// a / b, correctly rounded.
MONOLAYER_HOST_DEVICE float div(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fdiv_rn(a, b);
#else
  return a / b;
#endif
}

/// The square root, correctly rounded; NaN below 0, -0 for -0.
MONOLAYER_HOST_DEVICE float sqrt(float x) {
#if defined(__CUDA_ARCH__)
  return __fsqrt_rn(x);
#else
  return __builtin_sqrtf(x);
#endif
}

/// e^x within 0.9 ulp wherever e^x is a normal f32 (x from -87.336540 to 88.722832; every such f32 was
/// tried). Smaller results are flushed to 0, larger ones are infinity. exp(0) is exactly 1, exp(-inf) is 0,
/// exp(inf) is inf, and a NaN is returned as it came.
MONOLAYER_HOST_DEVICE float exp(float x) {
  // x = n ln 2 + r with |r| <= 0.3466. Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits.
  constexpr float shifter = 0x1.8p23f;
  const float shifted = fma(x, 0x1.715476p+0f, shifter);
  const float n = sub(shifted, shifter);
  // ln 2 in two parts. The upper has 15 bits, so n times it is exact and so is the first difference.
  float r = fma(n, -0x1.62e4p-1f, x);
  r = fma(n, -0x1.7f7d1cp-20f, r);
  // e^r = 1 + r + r^2 q(r), minimax in relative error of e^r (3.1e-9 before the coefficients' rounding).
  float p = 0x1.6a2432p-10f;
  p = fma(p, r, 0x1.1239e4p-7f);
  p = fma(p, r, 0x1.5558f2p-5f);
  p = fma(p, r, 0x1.555492p-3f);
  p = fma(p, r, 0x1.fffffcp-2f);
  p = fma(p, r, 1.0f);
  p = fma(p, r, 1.0f);
  // Times 2^n by its exponent field: p is in [0.7, 1.42], and the limits below keep the field in 1..254.
  const std::uint32_t exponent = float_to_bits(shifted) - float_to_bits(shifter);
  float result = bits_to_float(float_to_bits(p) + (exponent << 23));
  result = x < -0x1.5d589ep+6f ? 0.0f : result;
  result = x > 0x1.62e42ep+6f ? bits_to_float(detail::f32_infinity_bits) : result;
  return x != x ? x : result;
}

/// 1 / (1 + e^-x) within 2.5 ulp where that is a normal f32; 0 below -88.722832, 1 above 16.64; NaN for NaN.
MONOLAYER_HOST_DEVICE float sigmoid(float x) { return div(1.0f, add(1.0f, exp(-x))); }

/// x * sigmoid(x) within 3 ulp for x >= -87.336540. Below -88.722832 it is -0, where the true value is above
/// -2.7e-37. silu(inf) = inf; silu(-inf) is NaN (-inf * 0), as x / (1 + e^-x) is; NaN for NaN.
MONOLAYER_HOST_DEVICE float silu(float x) { return mul(x, sigmoid(x)); }

/// 1 / sqrt(x) within 1.5 ulp: a correctly rounded root and a correctly rounded quotient.
/// inf for 0, -inf for -0, 0 for inf, NaN below 0 and for NaN.
MONOLAYER_HOST_DEVICE float reciprocal_sqrt(float x) { return div(1.0f, sqrt(x)); }

/// A key with the order of the floats: ordered_key(a) < ordered_key(b) exactly if a < b. -0 and +0 share the
/// key 0x80000000, -inf has 0x00800000 and inf 0xFF800000; a NaN has 0, below all others, so that a search
/// for the largest never picks it. Integer operations only.
MONOLAYER_HOST_DEVICE constexpr std::uint32_t ordered_key(float x) {
  const std::uint32_t bits = float_to_bits(x);
  const std::uint32_t magnitude = bits & ~detail::f32_sign_mask;
  if (magnitude > detail::f32_infinity_bits) return 0;
  return (bits & detail::f32_sign_mask) != 0 ? 0x80000000u - magnitude : 0x80000000u + magnitude;
}

}  // namespace monolayer

#undef MONOLAYER_NO_CONTRACT
