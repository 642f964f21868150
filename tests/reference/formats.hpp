// Number formats of the reference, decoded and encoded from their definitions in double.
// Nothing here comes from the library, so that its types are checked against a second reading of the formats.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace monolayer::reference {

// ---- bf16 ----

inline double bf16_decode(std::uint16_t bits) {
  return static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16));
}

// Rounds straight from double (nearest, ties to even): going through float would round twice.
inline double bf16_round(double x) {
  if (!std::isfinite(x)) return x;
  const double smallest_normal = std::ldexp(1.0, -126);
  if (std::fabs(x) < smallest_normal) {
    const double step = std::ldexp(1.0, -133);
    return std::copysign(std::nearbyint(std::fabs(x) / step) * step, x);
  }
  std::uint64_t bits = std::bit_cast<std::uint64_t>(x);
  constexpr int dropped = 52 - 7;
  bits += (std::uint64_t{1} << (dropped - 1)) - 1 + ((bits >> dropped) & 1);
  bits &= ~((std::uint64_t{1} << dropped) - 1);
  const double rounded = std::bit_cast<double>(bits);
  if (std::fabs(rounded) >= std::ldexp(1.0, 128)) {
    return std::copysign(std::numeric_limits<double>::infinity(), x);
  }
  return rounded;
}

inline std::uint16_t bf16_encode(double x) {
  if (std::isnan(x)) return 0x7fc0;
  return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(static_cast<float>(bf16_round(x))) >> 16);
}

// ---- small floats: a sign, an exponent field, a mantissa; no infinity ----

inline double small_float_magnitude(unsigned code, int bias, int mantissa_bits) {
  const int field = static_cast<int>(code >> mantissa_bits);
  const int mantissa = static_cast<int>(code & ((1u << mantissa_bits) - 1));
  if (field == 0) return std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return std::ldexp((1 << mantissa_bits) + mantissa, field - bias - mantissa_bits);
}

// Nearest code, ties to even, saturating at max_code. The sum carries into the exponent by itself.
inline unsigned small_float_code(double magnitude, int bias, int mantissa_bits, unsigned max_code) {
  if (magnitude >= small_float_magnitude(max_code, bias, mantissa_bits)) return max_code;
  if (magnitude == 0) return 0;
  const int lowest = 1 - bias;
  const int exponent = std::max(std::ilogb(magnitude), lowest);
  const double steps = std::nearbyint(std::ldexp(magnitude, mantissa_bits - exponent));
  const unsigned code =
      (static_cast<unsigned>(exponent - lowest) << mantissa_bits) + static_cast<unsigned>(steps);
  return std::min(code, max_code);
}

// OCP e4m3fn: bias 7, largest value 448 (0x7e), NaN 0x7f and 0xff, has -0.
inline double e4m3_decode(std::uint8_t code) {
  const unsigned magnitude = code & 0x7f;
  if (magnitude == 0x7f) return std::numeric_limits<double>::quiet_NaN();
  const double value = small_float_magnitude(magnitude, 7, 3);
  return (code & 0x80) != 0 ? -value : value;
}

inline std::uint8_t e4m3_encode(double x) {
  if (std::isnan(x)) return 0x7f;
  const unsigned sign = std::signbit(x) ? 0x80u : 0u;
  return static_cast<std::uint8_t>(sign | small_float_code(std::fabs(x), 7, 3, 0x7e));
}

// OCP e2m1: bias 1, values 0 0.5 1 1.5 2 3 4 6; code in the low four bits.
inline double e2m1_decode(unsigned code) {
  const double value = small_float_magnitude(code & 7, 1, 1);
  return (code & 8) != 0 ? -value : value;
}

inline unsigned e2m1_encode(double x) {
  return (std::signbit(x) ? 8u : 0u) | small_float_code(std::fabs(x), 1, 1, 7);
}

// e8m0: 2^(code - 127); 255 is NaN.
inline double e8m0_decode(std::uint8_t code) {
  if (code == 255) return std::numeric_limits<double>::quiet_NaN();
  return std::ldexp(1.0, static_cast<int>(code) - 127);
}

// OCP floor rule for a block of elements whose format reaches 2^top_exponent (2 for e2m1). A zero block gets
// 0.
inline std::uint8_t e8m0_floor_scale(double amax, int top_exponent) {
  if (amax == 0) return 0;
  return static_cast<std::uint8_t>(std::clamp(std::ilogb(amax) - top_exponent + 127, 0, 254));
}

}  // namespace monolayer::reference
