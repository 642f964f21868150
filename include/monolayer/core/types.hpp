// Narrow number formats as strong types over their raw bits, with exact conversions to and from f32.
//
// The conversions are integer code plus exact f32 multiplications, so a host compiler, nvcc and a HIP
// compiler give the same bits and every one of them can be evaluated at compile time. They are the reference;
// a kernel's inner loop uses the machine's conversion instructions where there are any.
//
// Sources: OCP Microscaling Formats (MX) v1.0 for e2m1 and e8m0, OCP 8-bit Floating Point v1.0 for e4m3fn,
// the CDNA3 instruction set manual for e4m3fnuz, AITER csrc/include/mx_quant_utils.h for the choice of MX
// scales.
//
// f32 subnormals must be on (the default of every compiler here; not nvcc -ftz=true): e8m0 code 0 is one.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "monolayer/core/macros.hpp"

namespace monolayer {

/// The upper half of an f32: 1 sign, 8 exponent (bias 127), 7 mantissa bits; infinities, NaNs and subnormals.
struct bf16 {
  std::uint16_t bits;
};

/// OCP FP8 E4M3: bias 7, largest 448 (0x7E), smallest subnormal 2^-9, no infinity, NaN 0x7F and 0xFF.
/// gfx950 and NVIDIA matrix units read this flavour.
struct e4m3fn {
  std::uint8_t bits;
};

/// FP8 E4M3 "FNUZ": bias 8, largest 240 (0x7F), smallest subnormal 2^-10, no infinity, no -0, NaN only 0x80.
/// gfx942 matrix units read this flavour.
struct e4m3fnuz {
  std::uint8_t bits;
};

/// Two FP4 E2M1 values in a byte; the low nibble is the one with the even index along K.
/// Codes 0..7 are 0, 0.5, 1, 1.5, 2, 3, 4, 6; bit 3 of a nibble is the sign. No infinity, no NaN.
struct e2m1x2 {
  std::uint8_t bits;
};

/// MX block scale: 2^(bits - 127), so 0 is 2^-127 (an f32 subnormal) and 254 is 2^127; 255 is NaN. No zero.
struct e8m0 {
  std::uint8_t bits;
};

static_assert(sizeof(bf16) == 2 && sizeof(e4m3fn) == 1 && sizeof(e4m3fnuz) == 1);
static_assert(sizeof(e2m1x2) == 1 && sizeof(e8m0) == 1);

/// Constants of an element format. `max_power` is log2 of the largest power of two in the format and
/// `reciprocal_max` is f32(1 / max), rounded to nearest: the constant AITER multiplies by.
template <typename Format>
struct format_traits;

template <>
struct format_traits<e4m3fn> {
  static constexpr int mantissa_bits = 3;
  static constexpr int exponent_bias = 7;
  static constexpr int max_power = 8;
  static constexpr std::uint32_t max_code = 0x7E;
  static constexpr float max = 448.0f;
  static constexpr float reciprocal_max = std::bit_cast<float>(std::uint32_t{0x3B124925});
};

template <>
struct format_traits<e4m3fnuz> {
  static constexpr int mantissa_bits = 3;
  static constexpr int exponent_bias = 8;
  static constexpr int max_power = 7;
  static constexpr std::uint32_t max_code = 0x7F;
  static constexpr float max = 240.0f;
  static constexpr float reciprocal_max = std::bit_cast<float>(std::uint32_t{0x3B888889});
};

template <>
struct format_traits<e2m1x2> {
  static constexpr int mantissa_bits = 1;
  static constexpr int exponent_bias = 1;
  static constexpr int max_power = 2;
  static constexpr std::uint32_t max_code = 0x7;
  static constexpr float max = 6.0f;
  static constexpr float reciprocal_max = std::bit_cast<float>(std::uint32_t{0x3E2AAAAB});
};

/// The 32 bits of an f32.
MONOLAYER_HOST_DEVICE constexpr std::uint32_t float_to_bits(float x) {
  return std::bit_cast<std::uint32_t>(x);
}

/// The f32 with these 32 bits.
MONOLAYER_HOST_DEVICE constexpr float bits_to_float(std::uint32_t bits) { return std::bit_cast<float>(bits); }

namespace detail {

inline constexpr std::uint32_t f32_sign_mask = 0x80000000u;
inline constexpr std::uint32_t f32_infinity_bits = 0x7F800000u;
inline constexpr std::uint32_t f32_quiet_nan_bits = 0x7FC00000u;
inline constexpr std::uint32_t f32_mantissa_mask = 0x007FFFFFu;

// The f32 of a small float's magnitude code (no sign, no special codes). Exact: every such value is an f32.
template <typename Format>
MONOLAYER_HOST_DEVICE constexpr float decode_magnitude(std::uint32_t code) {
  constexpr int mantissa_bits = format_traits<Format>::mantissa_bits;
  constexpr int bias = format_traits<Format>::exponent_bias;
  if ((code >> mantissa_bits) != 0) {
    // A normal number: line the fields up and change the bias.
    return bits_to_float((code << (23 - mantissa_bits)) + (static_cast<std::uint32_t>(127 - bias) << 23));
  }
  // A subnormal: code times 2^(1 - bias - mantissa_bits); a product with a power of two is exact.
  constexpr std::uint32_t unit = static_cast<std::uint32_t>(127 + 1 - bias - mantissa_bits) << 23;
  return static_cast<float>(code) * bits_to_float(unit);
}

// The magnitude code nearest to a non-NaN f32 magnitude (ties to the even code), at most max_code.
template <typename Format>
MONOLAYER_HOST_DEVICE constexpr std::uint32_t encode_magnitude(std::uint32_t magnitude_bits) {
  constexpr int mantissa_bits = format_traits<Format>::mantissa_bits;
  constexpr int bias = format_traits<Format>::exponent_bias;
  constexpr std::uint32_t max_code = format_traits<Format>::max_code;
  const int exponent = static_cast<int>(magnitude_bits >> 23);
  if (exponent > 127 - bias) {
    // A normal number there: a carry out of the mantissa moves into the exponent, as it should.
    constexpr int dropped = 23 - mantissa_bits;
    const std::uint32_t odd = (magnitude_bits >> dropped) & 1u;
    const std::uint32_t rounded = (magnitude_bits + ((1u << (dropped - 1)) - 1u) + odd) >> dropped;
    const std::uint32_t code = rounded - (static_cast<std::uint32_t>(127 - bias) << mantissa_bits);
    return code < max_code ? code : max_code;
  }
  // A subnormal there: the 24-bit significand counts units of 2^(exponent - 150), the code units of
  // 2^(1 - bias - mantissa_bits).
  const int shift = 151 - bias - mantissa_bits - exponent;
  if (shift > 24) return 0;  // below half of the smallest subnormal; f32 subnormals end here too
  const std::uint32_t significand = (magnitude_bits & f32_mantissa_mask) | 0x00800000u;
  const std::uint32_t code = significand >> shift;
  const std::uint32_t rest = significand & ((1u << shift) - 1u);
  const std::uint32_t half = 1u << (shift - 1);
  return code + ((rest > half || (rest == half && (code & 1u) != 0)) ? 1u : 0u);
}

}  // namespace detail

// ---- to f32, exact for every code ----

/// Exact. NaN payloads and signs are kept as they are.
MONOLAYER_HOST_DEVICE constexpr float to_float(bf16 x) {
  return bits_to_float(static_cast<std::uint32_t>(x.bits) << 16);
}

/// Exact; 0x7F and 0xFF give a quiet NaN with that sign, 0x80 gives -0.
MONOLAYER_HOST_DEVICE constexpr float to_float(e4m3fn x) {
  const std::uint32_t code = x.bits & 0x7Fu;
  const std::uint32_t sign = static_cast<std::uint32_t>(x.bits & 0x80u) << 24;
  if (code == 0x7Fu) return bits_to_float(sign | detail::f32_quiet_nan_bits);
  return bits_to_float(sign | float_to_bits(detail::decode_magnitude<e4m3fn>(code)));
}

/// Exact; 0x80 gives a quiet NaN (sign clear).
MONOLAYER_HOST_DEVICE constexpr float to_float(e4m3fnuz x) {
  if (x.bits == 0x80u) return bits_to_float(detail::f32_quiet_nan_bits);
  const std::uint32_t sign = static_cast<std::uint32_t>(x.bits & 0x80u) << 24;
  return bits_to_float(sign | float_to_bits(detail::decode_magnitude<e4m3fnuz>(x.bits & 0x7Fu)));
}

/// Exact; `code` is one FP4 E2M1 code in its low 4 bits (the others are ignored), 8 gives -0.
MONOLAYER_HOST_DEVICE constexpr float e2m1_to_float(std::uint32_t code) {
  const std::uint32_t sign = (code & 8u) << 28;
  return bits_to_float(sign | float_to_bits(detail::decode_magnitude<e2m1x2>(code & 7u)));
}

/// Exact; `index` 0 is the low nibble (even K), 1 the high nibble (odd K).
MONOLAYER_HOST_DEVICE constexpr float to_float(e2m1x2 x, int index) {
  return e2m1_to_float(static_cast<std::uint32_t>(x.bits) >> (4 * (index & 1)));
}

/// Exact; 0 gives 2^-127, which is an f32 subnormal (not zero), 255 gives a quiet NaN.
MONOLAYER_HOST_DEVICE constexpr float to_float(e8m0 x) {
  if (x.bits == 255u) return bits_to_float(detail::f32_quiet_nan_bits);
  if (x.bits == 0u) return bits_to_float(0x00400000u);
  return bits_to_float(static_cast<std::uint32_t>(x.bits) << 23);
}

// ---- from f32 ----

/// One FP4 E2M1 code (0..15) nearest to x, ties to the even code; |x| > 6 and infinities saturate to 6 with
/// x's sign. The format has no NaN: a NaN saturates as an infinity with its sign would, so it is not lost as
/// a zero.
MONOLAYER_HOST_DEVICE constexpr std::uint32_t e2m1_from_float(float x) {
  const std::uint32_t bits = float_to_bits(x);
  const std::uint32_t magnitude = bits & ~detail::f32_sign_mask;
  const std::uint32_t sign = (bits >> 28) & 8u;
  if (magnitude > detail::f32_infinity_bits) return sign | 7u;
  return sign | detail::encode_magnitude<e2m1x2>(magnitude);
}

/// Two values to a byte, each as e2m1_from_float does: `even` into the low nibble, `odd` into the high one.
MONOLAYER_HOST_DEVICE constexpr e2m1x2 e2m1x2_from_floats(float even, float odd) {
  return e2m1x2{static_cast<std::uint8_t>(e2m1_from_float(even) | (e2m1_from_float(odd) << 4))};
}

/// from_float<Format>(x), round to nearest, ties to even:
/// - bf16: overflows to infinity; a NaN stays a (quiet) NaN with its sign and upper payload.
/// - e4m3fn: saturates at +-448, infinities too; NaN gives 0x7F or 0xFF by its sign; -0 is kept.
/// - e4m3fnuz: saturates at +-240, infinities too; NaN gives 0x80; -0 and negative underflow give 0.
/// - e8m0: exact only. x must be a power of two from 2^-127 to 2^127; anything else gives NaN (255).
///
/// To choose a scale for a block use mx_scale_exponent.
/// For FP4 see e2m1_from_float and e2m1x2_from_floats.
template <typename Format>
MONOLAYER_HOST_DEVICE constexpr Format from_float(float x) {
  static_assert(
      std::is_same_v<Format, bf16> || std::is_same_v<Format, e4m3fn> || std::is_same_v<Format, e4m3fnuz> ||
          std::is_same_v<Format, e8m0>,
      "from_float makes bf16, e4m3fn, e4m3fnuz and e8m0; FP4 comes in pairs, see e2m1x2_from_floats");
  const std::uint32_t bits = float_to_bits(x);
  const std::uint32_t magnitude = bits & ~detail::f32_sign_mask;
  const bool nan = magnitude > detail::f32_infinity_bits;
  if constexpr (std::is_same_v<Format, bf16>) {
    // Bit 6 of the mantissa set: a NaN whose payload is in the dropped half would become an infinity.
    if (nan) return bf16{static_cast<std::uint16_t>((bits >> 16) | 0x40u)};
    return bf16{static_cast<std::uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16)};
  } else if constexpr (std::is_same_v<Format, e4m3fn>) {
    const std::uint32_t sign = (bits >> 24) & 0x80u;
    const std::uint32_t code = nan ? 0x7Fu : detail::encode_magnitude<e4m3fn>(magnitude);
    return e4m3fn{static_cast<std::uint8_t>(sign | code)};
  } else if constexpr (std::is_same_v<Format, e4m3fnuz>) {
    if (nan) return e4m3fnuz{0x80u};
    const std::uint32_t code = detail::encode_magnitude<e4m3fnuz>(magnitude);
    const std::uint32_t sign = code != 0 ? (bits >> 24) & 0x80u : 0u;  // 0x80 would be the NaN
    return e4m3fnuz{static_cast<std::uint8_t>(sign | code)};
  } else {
    if (bits == 0x00400000u) return e8m0{0u};
    const bool power =
        bits != 0 && bits < detail::f32_infinity_bits && (bits & detail::f32_mantissa_mask) == 0;
    return e8m0{static_cast<std::uint8_t>(power ? bits >> 23 : 255u)};
  }
}

// ---- e4m3fn and e4m3fnuz ----

/// The FP8 weight rewrite that inference engines do when they load an OCP checkpoint on gfx942: the byte is
/// kept and read as FNUZ, which halves the value, and 0x80 (-0, the FNUZ NaN) becomes 0. THE CALLER MUST
/// DOUBLE THE SCALE: to_float(result) == to_float(x) / 2, exactly. An OCP NaN (0x7F, 0xFF) becomes +-240, as
/// it does in the engines: checkpoints hold none.
MONOLAYER_HOST_DEVICE constexpr e4m3fnuz reinterpret_as_fnuz(e4m3fn x) {
  return e4m3fnuz{static_cast<std::uint8_t>(x.bits == 0x80u ? 0u : x.bits)};
}

/// The way back: the byte is kept and read as OCP, which doubles the value. THE CALLER MUST HALVE THE SCALE:
/// to_float(result) == 2 * to_float(x), exactly, with two exceptions. The NaN 0x80 becomes the NaN 0x7F, and
/// +-240, whose double 480 OCP does not have, saturates to +-448.
MONOLAYER_HOST_DEVICE constexpr e4m3fn reinterpret_as_fn(e4m3fnuz x) {
  if (x.bits == 0x80u) return e4m3fn{0x7Fu};
  const bool largest = (x.bits & 0x7Fu) == 0x7Fu;
  return e4m3fn{static_cast<std::uint8_t>(largest ? x.bits - 1u : x.bits)};
}

// ---- MX block scales ----

/// How the power-of-two scale of a block is chosen; the values are AITER's MxScaleRoundMode.
enum class mx_rounding : int {
  round_down = 0,  ///< floor_pow2(amax) / 2^max_power (OCP MX; the largest values of a block may saturate)
  round_up = 1,    ///< ceil_pow2(amax / max), AITER's default (never saturates)
  even = 2,        ///< floor_pow2(amax rounded to the element's mantissa) / 2^max_power, Quark's default
  ceil = 3,        ///< ceil_pow2(amax) / 2^max_power (never saturates, coarser than round_up)
};

/// The scale for a block of `Element` (e2m1x2, e4m3fn or e4m3fnuz) whose largest magnitude is `amax` >= 0,
/// bit for bit as AITER's fp_f32_to_e8m0_scale for every finite amax, f32 underflow of amax / max included.
/// An amax of 0 gives byte 0; AITER's HIP kernels start amax at 1e-10 instead, and a caller who wants their
/// byte does likewise. Unlike AITER's `even`, which gives 255 - max_power or 0 there, an infinite or NaN amax
/// is NaN (255) in all modes.
template <typename Element>
MONOLAYER_HOST_DEVICE constexpr e8m0 mx_scale_exponent(float amax, mx_rounding mode) {
  using traits = format_traits<Element>;
  const std::uint32_t magnitude = float_to_bits(amax) & ~detail::f32_sign_mask;
  if (magnitude >= detail::f32_infinity_bits) return e8m0{255u};
  if (mode == mx_rounding::even) {
    // Half a unit of the element's last mantissa bit; ties go up, as in Quark, in spite of the name.
    constexpr std::uint32_t addend = 1u << (23 - traits::mantissa_bits - 1);
    const std::uint32_t exponent = (magnitude + addend) >> 23;
    constexpr std::uint32_t power = static_cast<std::uint32_t>(traits::max_power);
    return e8m0{static_cast<std::uint8_t>(exponent >= power ? exponent - power : 0u)};
  }
  // Products in f32, not exponent arithmetic: AITER's rounding of 1/max and of subnormal products is wanted.
  constexpr float power_reciprocal = bits_to_float(static_cast<std::uint32_t>(127 - traits::max_power) << 23);
  const float factor = mode == mx_rounding::round_up ? traits::reciprocal_max : power_reciprocal;
  const std::uint32_t scaled = float_to_bits(bits_to_float(magnitude) * factor);
  const bool next = mode != mx_rounding::round_down && (scaled & detail::f32_mantissa_mask) != 0;
  return e8m0{static_cast<std::uint8_t>((scaled >> 23) + (next ? 1u : 0u))};
}

}  // namespace monolayer
