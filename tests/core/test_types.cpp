// Every code of every narrow format, against a decoder written here from the format's definition in double.
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "monolayer/core/types.hpp"

namespace ml = monolayer;
using ml::bits_to_float;
using ml::float_to_bits;
using ml::from_float;
using ml::mx_rounding;
using ml::mx_scale_exponent;
using ml::to_float;

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float quiet_nan = std::numeric_limits<float>::quiet_NaN();
constexpr float largest_f32 = std::numeric_limits<float>::max();
constexpr float smallest_f32 = std::numeric_limits<float>::denorm_min();

// ---- compile time: the conversions are constant expressions ----

static_assert(to_float(ml::bf16{0x3F80}) == 1.0f);
static_assert(to_float(ml::bf16{0xC049}) == -3.140625f);
static_assert(from_float<ml::bf16>(3.14159265f).bits == 0x4049);
static_assert(from_float<ml::bf16>(largest_f32).bits == 0x7F80);
static_assert(from_float<ml::bf16>(quiet_nan).bits == 0x7FC0);
static_assert(to_float(ml::e4m3fn{0x7E}) == 448.0f);
static_assert(to_float(ml::e4m3fn{0x01}) == 0x1p-9f);
static_assert(to_float(ml::e4m3fn{0x08}) == 0x1p-6f);
static_assert(float_to_bits(to_float(ml::e4m3fn{0x80})) == 0x80000000u);
static_assert(float_to_bits(to_float(ml::e4m3fn{0xFF})) == 0xFFC00000u);
static_assert(from_float<ml::e4m3fn>(1e9f).bits == 0x7E);
static_assert(from_float<ml::e4m3fn>(-0.0f).bits == 0x80);
static_assert(to_float(ml::e4m3fnuz{0x7F}) == 240.0f);
static_assert(to_float(ml::e4m3fnuz{0x01}) == 0x1p-10f);
static_assert(float_to_bits(to_float(ml::e4m3fnuz{0x80})) == 0x7FC00000u);
static_assert(from_float<ml::e4m3fnuz>(-1e9f).bits == 0xFF);
static_assert(from_float<ml::e4m3fnuz>(-0.0f).bits == 0x00);
static_assert(to_float(ml::e2m1x2{0xF2}, 0) == 1.0f);
static_assert(to_float(ml::e2m1x2{0xF2}, 1) == -6.0f);
static_assert(ml::e2m1x2_from_floats(1.0f, -6.0f).bits == 0xF2);
static_assert(to_float(ml::e8m0{127}) == 1.0f);
static_assert(to_float(ml::e8m0{0}) == 0x1p-127f);
static_assert(to_float(ml::e8m0{254}) == 0x1p127f);
static_assert(from_float<ml::e8m0>(0.25f).bits == 125);
static_assert(ml::reinterpret_as_fnuz(ml::e4m3fn{0x80}).bits == 0);
static_assert(ml::reinterpret_as_fn(ml::e4m3fnuz{0x80}).bits == 0x7F);
static_assert(mx_scale_exponent<ml::e2m1x2>(1.0f, mx_rounding::round_up).bits == 125);
static_assert(ml::format_traits<ml::e2m1x2>::reciprocal_max == 1.0f / 6.0f);
static_assert(ml::format_traits<ml::e4m3fn>::reciprocal_max == 1.0f / 448.0f);
static_assert(ml::format_traits<ml::e4m3fnuz>::reciprocal_max == 1.0f / 240.0f);

// ---- the reference ----

// A sign-magnitude float of 1 + exponent_bits + mantissa_bits bits, IEEE style below its special codes.
double reference_value(unsigned code, int exponent_bits, int mantissa_bits, int bias) {
  const int exponent = static_cast<int>(code >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const int mantissa = static_cast<int>(code) & ((1 << mantissa_bits) - 1);
  const bool negative = ((code >> (exponent_bits + mantissa_bits)) & 1u) != 0;
  const double magnitude = exponent == 0
                               ? std::ldexp(mantissa, 1 - bias - mantissa_bits)
                               : std::ldexp((1 << mantissa_bits) + mantissa, exponent - bias - mantissa_bits);
  return negative ? -magnitude : magnitude;
}

bool same_value_and_sign(float x, double y) {
  return static_cast<double>(x) == y && std::signbit(x) == std::signbit(y);
}

// Checks an encoder on each interval between the neighbouring magnitudes of codes 0..max_code: the ends,
// their neighbours in f32, the midpoint (exact in f32) and its neighbours, of both signs. Failures are
// counted, since an assertion for each would be slow.
template <typename Decode, typename Encode>
int count_rounding_errors(unsigned max_code, unsigned sign_bit, bool signed_zero, Decode decode,
                          Encode encode) {
  int errors = 0;
  const auto expect = [&](float x, unsigned code) {
    errors += encode(x) != code;
    errors += encode(-x) != ((code == 0 && !signed_zero) ? 0u : (code | sign_bit));
  };
  for (unsigned code = 0; code < max_code; ++code) {
    const double low = decode(code);
    const double high = decode(code + 1);
    const float middle = static_cast<float>((low + high) / 2);
    errors += static_cast<double>(middle) != (low + high) / 2;
    errors += !(low < high);
    expect(static_cast<float>(low), code);
    expect(std::nextafter(static_cast<float>(low), infinity), code);
    expect(std::nextafter(middle, 0.0f), code);
    expect(middle, code + (code & 1u));
    expect(std::nextafter(middle, infinity), code + 1);
    expect(std::nextafter(static_cast<float>(high), 0.0f), code + 1);
    expect(static_cast<float>(high), code + 1);
  }
  return errors;
}

// Across the whole f32 range in steps, an encoder must pick a code whose value is nearest.
template <typename Decode, typename Encode>
int count_sweep_errors(unsigned max_code, Decode decode, Encode encode) {
  int errors = 0;
  for (std::uint64_t bits = 0; bits <= 0x7F800000u; bits += 4093) {
    const float x = bits_to_float(static_cast<std::uint32_t>(bits));
    const unsigned code = encode(x);
    const double error = std::fabs(decode(code) - x);
    if (code > 0) errors += std::fabs(decode(code - 1) - x) < error;
    if (code < max_code) errors += std::fabs(decode(code + 1) - x) < error;
    errors += code > max_code;
  }
  return errors;
}

}  // namespace

// ---- bf16 ----

TEST_CASE("bf16: every code decodes exactly and comes back", "[types]") {
  int errors = 0;
  for (unsigned code = 0; code < 65536; ++code) {
    const ml::bf16 x{static_cast<std::uint16_t>(code)};
    const float value = to_float(x);
    const unsigned magnitude = code & 0x7FFFu;
    if (magnitude > 0x7F80u) {
      errors += !std::isnan(value);
      errors += float_to_bits(value) != code << 16;
      errors += from_float<ml::bf16>(value).bits != (code | 0x40u);  // quiet, the rest kept
    } else {
      if (magnitude == 0x7F80u) {
        errors += !(std::isinf(value) && std::signbit(value) == (code >> 15 != 0));
      } else {
        errors += !same_value_and_sign(value, reference_value(code, 8, 7, 127));
      }
      errors += from_float<ml::bf16>(value).bits != code;
    }
  }
  REQUIRE(errors == 0);
}

TEST_CASE("bf16: rounds to nearest even between all neighbours", "[types]") {
  const auto decode = [](unsigned code) { return reference_value(code, 8, 7, 127); };
  const auto encode = [](float x) -> unsigned { return from_float<ml::bf16>(x).bits; };
  REQUIRE(count_rounding_errors(0x7F7F, 0x8000, true, decode, encode) == 0);
}

TEST_CASE("bf16: overflow, infinity and NaN", "[types]") {
  // Halfway between the largest bf16 and 2^128: the largest is odd, so the tie goes to infinity.
  const float halfway = bits_to_float(0x7F7F8000u);
  REQUIRE(from_float<ml::bf16>(std::nextafter(halfway, 0.0f)).bits == 0x7F7F);
  REQUIRE(from_float<ml::bf16>(halfway).bits == 0x7F80);
  REQUIRE(from_float<ml::bf16>(-largest_f32).bits == 0xFF80);
  REQUIRE(from_float<ml::bf16>(infinity).bits == 0x7F80);
  REQUIRE(from_float<ml::bf16>(-infinity).bits == 0xFF80);
  // Payloads that sit in the dropped half, or that rounding would carry into the sign.
  for (const std::uint32_t bits : {0x7F800001u, 0x7F80FFFFu, 0x7FFFFFFFu, 0xFF800001u, 0xFFFFFFFFu}) {
    const unsigned code = from_float<ml::bf16>(bits_to_float(bits)).bits;
    CHECK(std::isnan(to_float(ml::bf16{static_cast<std::uint16_t>(code)})));
    CHECK((code & 0x40u) != 0);
    CHECK(code >> 15 == bits >> 31);
  }
}

// ---- FP8 ----

TEST_CASE("e4m3fn: every code decodes exactly and comes back", "[types]") {
  for (unsigned code = 0; code < 256; ++code) {
    CAPTURE(code);
    const ml::e4m3fn x{static_cast<std::uint8_t>(code)};
    if ((code & 0x7Fu) == 0x7Fu) {
      CHECK(std::isnan(to_float(x)));
    } else {
      CHECK(same_value_and_sign(to_float(x), reference_value(code, 4, 3, 7)));
    }
    CHECK(from_float<ml::e4m3fn>(to_float(x)).bits == code);
  }
}

TEST_CASE("e4m3fn: rounds to nearest even, saturates", "[types]") {
  const auto decode = [](unsigned code) { return reference_value(code, 4, 3, 7); };
  const auto encode = [](float x) -> unsigned { return from_float<ml::e4m3fn>(x).bits; };
  REQUIRE(count_rounding_errors(0x7E, 0x80, true, decode, encode) == 0);
  REQUIRE(count_sweep_errors(0x7E, decode, encode) == 0);
  for (const float x : {448.0f, 463.9f, 464.0f, 464.1f, 480.0f, 512.0f, 1e10f, largest_f32, infinity}) {
    CHECK(encode(x) == 0x7E);
    CHECK(encode(-x) == 0xFE);
  }
  CHECK(encode(smallest_f32) == 0);
  CHECK(encode(-smallest_f32) == 0x80);
  CHECK(encode(quiet_nan) == 0x7F);
  CHECK(encode(bits_to_float(0xFFC00000u)) == 0xFF);
  CHECK(encode(bits_to_float(0x7F800001u)) == 0x7F);
}

TEST_CASE("e4m3fnuz: every code decodes exactly and comes back", "[types]") {
  for (unsigned code = 0; code < 256; ++code) {
    CAPTURE(code);
    const ml::e4m3fnuz x{static_cast<std::uint8_t>(code)};
    if (code == 0x80u) {
      CHECK(std::isnan(to_float(x)));
    } else {
      CHECK(same_value_and_sign(to_float(x), reference_value(code, 4, 3, 8)));
    }
    CHECK(from_float<ml::e4m3fnuz>(to_float(x)).bits == code);
  }
}

TEST_CASE("e4m3fnuz: rounds to nearest even, saturates, has no -0", "[types]") {
  const auto decode = [](unsigned code) { return reference_value(code, 4, 3, 8); };
  const auto encode = [](float x) -> unsigned { return from_float<ml::e4m3fnuz>(x).bits; };
  REQUIRE(count_rounding_errors(0x7F, 0x80, false, decode, encode) == 0);
  REQUIRE(count_sweep_errors(0x7F, decode, encode) == 0);
  for (const float x : {240.0f, 247.9f, 248.0f, 248.1f, 256.0f, 448.0f, largest_f32, infinity}) {
    CHECK(encode(x) == 0x7F);
    CHECK(encode(-x) == 0xFF);
  }
  CHECK(encode(-0.0f) == 0);
  CHECK(encode(-smallest_f32) == 0);
  CHECK(encode(-0x1p-11f) == 0);  // the tie between 0 and the smallest, which would otherwise be the NaN code
  CHECK(encode(std::nextafter(-0x1p-11f, -1.0f)) == 0x81);
  CHECK(encode(quiet_nan) == 0x80);
  CHECK(encode(bits_to_float(0xFF800001u)) == 0x80);
}

TEST_CASE("e4m3fn bytes read as e4m3fnuz are halved, and back", "[types]") {
  for (unsigned code = 0; code < 256; ++code) {
    CAPTURE(code);
    const ml::e4m3fn x{static_cast<std::uint8_t>(code)};
    const ml::e4m3fnuz y = ml::reinterpret_as_fnuz(x);
    if ((code & 0x7Fu) == 0x7Fu) {
      CHECK(std::fabs(to_float(y)) == 240.0f);
    } else {
      CHECK(2.0f * to_float(y) == to_float(x));
      CHECK(to_float(ml::reinterpret_as_fn(y)) == to_float(x));
    }
    const ml::e4m3fnuz z{static_cast<std::uint8_t>(code)};
    const float back = to_float(ml::reinterpret_as_fn(z));
    if (code == 0x80u) {
      CHECK(std::isnan(back));
    } else if ((code & 0x7Fu) == 0x7Fu) {
      CHECK(back == std::copysign(448.0f, to_float(z)));
    } else {
      CHECK(back == 2.0f * to_float(z));
    }
  }
}

// ---- FP4 ----

TEST_CASE("e2m1: every byte decodes exactly and comes back", "[types]") {
  const double listed[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  for (unsigned code = 0; code < 16; ++code) {
    CAPTURE(code);
    const double value = (code & 8u) != 0 ? -listed[code & 7u] : listed[code & 7u];
    CHECK(same_value_and_sign(ml::e2m1_to_float(code), value));
    CHECK(same_value_and_sign(ml::e2m1_to_float(code), reference_value(code, 2, 1, 1)));
    CHECK(ml::e2m1_from_float(ml::e2m1_to_float(code)) == code);
  }
  for (unsigned byte = 0; byte < 256; ++byte) {
    CAPTURE(byte);
    const ml::e2m1x2 x{static_cast<std::uint8_t>(byte)};
    CHECK(same_value_and_sign(to_float(x, 0), reference_value(byte & 15u, 2, 1, 1)));
    CHECK(same_value_and_sign(to_float(x, 1), reference_value(byte >> 4, 2, 1, 1)));
    CHECK(ml::e2m1x2_from_floats(to_float(x, 0), to_float(x, 1)).bits == byte);
  }
}

TEST_CASE("e2m1: rounds to nearest even, saturates", "[types]") {
  const auto decode = [](unsigned code) { return reference_value(code, 2, 1, 1); };
  const auto encode = [](float x) { return static_cast<unsigned>(ml::e2m1_from_float(x)); };
  REQUIRE(count_rounding_errors(7, 8, true, decode, encode) == 0);
  REQUIRE(count_sweep_errors(7, decode, encode) == 0);
  for (const float x : {6.0f, 6.9f, 7.0f, 7.1f, 8.0f, 1e10f, largest_f32, infinity}) {
    CHECK(encode(x) == 7);
    CHECK(encode(-x) == 15);
  }
  CHECK(encode(smallest_f32) == 0);
  CHECK(encode(-smallest_f32) == 8);
  CHECK(encode(quiet_nan) == 7);
  CHECK(encode(bits_to_float(0xFFC00000u)) == 15);
}

// ---- e8m0 and the choice of MX scales ----

TEST_CASE("e8m0: every code", "[types]") {
  for (unsigned code = 0; code < 255; ++code) {
    CAPTURE(code);
    const ml::e8m0 x{static_cast<std::uint8_t>(code)};
    CHECK(static_cast<double>(to_float(x)) == std::ldexp(1.0, static_cast<int>(code) - 127));
    CHECK(from_float<ml::e8m0>(to_float(x)).bits == code);
    CHECK(from_float<ml::e8m0>(std::nextafter(to_float(x), infinity)).bits == 255);
    CHECK(from_float<ml::e8m0>(-to_float(x)).bits == 255);
  }
  CHECK(std::isnan(to_float(ml::e8m0{255})));
  for (const float x : {quiet_nan, infinity, -infinity, 0.0f, -0.0f, 3.0f, 0x1p-128f, smallest_f32}) {
    CHECK(from_float<ml::e8m0>(x).bits == 255);
  }
}

namespace {

struct scale_example {
  float amax;
  int fp4_up, fp4_down, fp4_even;
  int fp8_up, fp8_down, fp8_even;
};

// Derived from the definitions in AITER csrc/include/mx_quant_utils.h.
constexpr scale_example scale_examples[] = {
    {1.0f, 125, 125, 125, 119, 119, 119},   {3.4f, 127, 126, 126, 120, 120, 120},
    {3.5f, 127, 126, 127, 120, 120, 120},   {6.0f, 127, 127, 127, 121, 121, 121},
    {7.0f, 128, 127, 128, 121, 121, 121},   {7.5f, 128, 127, 128, 122, 121, 121},
    {449.0f, 134, 133, 134, 128, 127, 127}, {500.0f, 134, 133, 134, 128, 127, 128},
};

template <typename Element>
int scale_of(float amax, mx_rounding mode) {
  return mx_scale_exponent<Element>(amax, mode).bits;
}

// What the modes mean, in double: the largest magnitudes representable, and powers of two.
template <typename Element>
int count_scale_errors(double max, int max_power, int mantissa_bits) {
  int errors = 0;
  const auto floor_log2 = [](double x) { return std::ilogb(x); };
  const auto ceil_log2 = [](double x) { return std::ilogb(x) + (std::scalbn(1.0, std::ilogb(x)) < x); };
  const auto clamp = [](int exponent) { return exponent < -127 ? 0 : exponent + 127; };
  // From 2^-110 up, where no product is an f32 subnormal.
  for (std::uint64_t bits = float_to_bits(0x1p-110f); bits < 0x7F800000u; bits += 4099) {
    const float amax = bits_to_float(static_cast<std::uint32_t>(bits));
    const double x = amax;
    errors += scale_of<Element>(amax, mx_rounding::round_down) != clamp(floor_log2(x) - max_power);
    errors += scale_of<Element>(amax, mx_rounding::ceil) != clamp(ceil_log2(x) - max_power);
    const float quotient = amax * static_cast<float>(1.0 / max);
    errors += scale_of<Element>(amax, mx_rounding::round_up) != clamp(ceil_log2(quotient));
    const double half_step = std::ldexp(1.0, floor_log2(x) - mantissa_bits - 1);
    errors += scale_of<Element>(amax, mx_rounding::even) != clamp(floor_log2(x + half_step) - max_power);
    // round_up and ceil never saturate, but for the rounding of 1 / max.
    const double up = std::ldexp(1.0, scale_of<Element>(amax, mx_rounding::round_up) - 127);
    errors += x / up > max * (1 + 0x1p-22);
    errors += x / std::ldexp(1.0, scale_of<Element>(amax, mx_rounding::ceil) - 127) > max;
  }
  return errors;
}

}  // namespace

TEST_CASE("mx_scale_exponent: worked examples", "[types]") {
  for (const scale_example& example : scale_examples) {
    CAPTURE(example.amax);
    CHECK(scale_of<ml::e2m1x2>(example.amax, mx_rounding::round_up) == example.fp4_up);
    CHECK(scale_of<ml::e2m1x2>(example.amax, mx_rounding::round_down) == example.fp4_down);
    CHECK(scale_of<ml::e2m1x2>(example.amax, mx_rounding::even) == example.fp4_even);
    CHECK(scale_of<ml::e4m3fn>(example.amax, mx_rounding::round_up) == example.fp8_up);
    CHECK(scale_of<ml::e4m3fn>(example.amax, mx_rounding::round_down) == example.fp8_down);
    CHECK(scale_of<ml::e4m3fn>(example.amax, mx_rounding::even) == example.fp8_even);
  }
  CHECK(scale_of<ml::e2m1x2>(4.0f, mx_rounding::ceil) == 127);
  CHECK(scale_of<ml::e2m1x2>(4.1f, mx_rounding::ceil) == 128);
  CHECK(scale_of<ml::e4m3fn>(256.0f, mx_rounding::ceil) == 127);
  CHECK(scale_of<ml::e4m3fn>(257.0f, mx_rounding::ceil) == 128);
  CHECK(scale_of<ml::e4m3fnuz>(240.0f, mx_rounding::round_up) == 127);
  CHECK(scale_of<ml::e4m3fnuz>(241.0f, mx_rounding::round_up) == 128);
}

TEST_CASE("mx_scale_exponent: definitions over the f32 range", "[types]") {
  REQUIRE(count_scale_errors<ml::e2m1x2>(6.0, 2, 1) == 0);
  REQUIRE(count_scale_errors<ml::e4m3fn>(448.0, 8, 3) == 0);
  REQUIRE(count_scale_errors<ml::e4m3fnuz>(240.0, 7, 3) == 0);
}

TEST_CASE("mx_scale_exponent: zero, tiny, infinite and NaN", "[types]") {
  for (const mx_rounding mode :
       {mx_rounding::round_down, mx_rounding::round_up, mx_rounding::even, mx_rounding::ceil}) {
    CAPTURE(static_cast<int>(mode));
    CHECK(scale_of<ml::e2m1x2>(0.0f, mode) == 0);
    CHECK(scale_of<ml::e4m3fn>(0.0f, mode) == 0);
    CHECK(scale_of<ml::e2m1x2>(infinity, mode) == 255);
    CHECK(scale_of<ml::e4m3fn>(quiet_nan, mode) == 255);
    CHECK(scale_of<ml::e2m1x2>(largest_f32, mode) >= 252);
    CHECK(scale_of<ml::e2m1x2>(largest_f32, mode) <= 253);
  }
  // AITER's HIP kernels start amax at 1e-10.
  CHECK(scale_of<ml::e2m1x2>(1e-10f, mx_rounding::round_up) == 92);
  CHECK(scale_of<ml::e4m3fn>(1e-10f, mx_rounding::round_up) == 85);
  // A subnormal product keeps a mantissa, so `ceil` counts it up to 2^-126, even where it is 2^-127 exactly.
  CHECK(scale_of<ml::e2m1x2>(0x1p-125f, mx_rounding::ceil) == 1);
  CHECK(scale_of<ml::e2m1x2>(0x1p-125f, mx_rounding::round_down) == 0);
  // ... and may round up to the smallest normal number.
  CHECK(scale_of<ml::e2m1x2>(std::nextafter(0x1p-124f, 0.0f), mx_rounding::round_down) == 1);
}
