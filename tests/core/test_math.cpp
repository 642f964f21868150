// The f32 functions: accuracy against long double, special values, and the exact bits every target must give.
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstdint>
#include <limits>

#include "monolayer/core/math.hpp"

namespace ml = monolayer;
using ml::bits_to_float;
using ml::float_to_bits;
using ml::ordered_key;

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float quiet_nan = std::numeric_limits<float>::quiet_NaN();

static_assert(ordered_key(0.0f) == 0x80000000u);
static_assert(ordered_key(-0.0f) == 0x80000000u);
static_assert(ordered_key(1.0f) == 0xBF800000u);
static_assert(ordered_key(-1.0f) == 0x40800000u);
static_assert(ordered_key(quiet_nan) == 0);

// The distance of two f32 neighbours at a value, with the subnormal spacing below 2^-126.
long double unit_in_last_place(long double x) {
  int exponent = 0;
  std::frexp(x, &exponent);
  return std::ldexp(1.0L, (exponent < -125 ? -125 : exponent) - 24);
}

// The worst error in ulp over every `step`-th f32 from `first` to `last`, which have one sign and |first| <
// |last|.
template <typename Function, typename Reference>
double worst_error(float first, float last, std::uint32_t step, Function function, Reference reference) {
  long double worst = 0;
  const std::uint64_t end = float_to_bits(last);
  for (std::uint64_t bits = float_to_bits(first); bits <= end; bits += step) {
    const float x = bits_to_float(static_cast<std::uint32_t>(bits));
    const long double exact = reference(static_cast<long double>(x));
    const long double error =
        std::fabs(static_cast<long double>(function(x)) - exact) / unit_in_last_place(exact);
    if (!(error <= worst)) worst = error;  // a NaN is taken, and fails the test
  }
  return static_cast<double>(worst);
}

float exp_f32(float x) { return ml::exp(x); }
float sigmoid_f32(float x) { return ml::sigmoid(x); }
float silu_f32(float x) { return ml::silu(x); }
float reciprocal_sqrt_f32(float x) { return ml::reciprocal_sqrt(x); }
long double exp_exact(long double x) { return std::exp(x); }
long double sigmoid_exact(long double x) { return 1.0L / (1.0L + std::exp(-x)); }
long double silu_exact(long double x) { return x / (1.0L + std::exp(-x)); }
long double reciprocal_sqrt_exact(long double x) { return 1.0L / std::sqrt(x); }

// The least and greatest arguments with a normal, finite result of exp.
constexpr float exp_lowest = -0x1.5d589ep+6f;
constexpr float exp_highest = 0x1.62e42ep+6f;

// A hash of a function's results over the arguments with the bits first + i * step, i < count. It is a sum,
// so that a device may take the arguments in any order.
template <typename Function>
std::uint64_t result_hash(std::uint32_t first, std::uint32_t step, std::uint32_t count, Function function) {
  std::uint64_t hash = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint32_t argument = first + i * step;
    std::uint64_t z = (std::uint64_t{argument} << 32) | float_to_bits(function(bits_to_float(argument)));
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    hash += z ^ (z >> 31);
  }
  return hash;
}

}  // namespace

TEST_CASE("the arithmetic helpers round once each", "[math]") {
  // (1 + u)^2 - (1 + 2u) is u^2 fused and 0 with a rounded product, u = 2^-13.
  const float a = 1.0f + 0x1p-13f;
  CHECK(ml::fma(a, a, -(1.0f + 0x1p-12f)) == 0x1p-26f);
  CHECK(ml::add(ml::mul(a, a), -(1.0f + 0x1p-12f)) == 0.0f);
  CHECK(ml::sub(ml::mul(a, a), 1.0f + 0x1p-12f) == 0.0f);
  CHECK(ml::div(1.0f, 3.0f) == 0x1.555556p-2f);
  CHECK(ml::sqrt(2.0f) == 0x1.6a09e6p+0f);
  CHECK(std::isnan(ml::sqrt(-1.0f)));
}

TEST_CASE("exp: within 1 ulp wherever the result is normal", "[math]") {
  CHECK(worst_error(0x1p-30f, exp_highest, 331, exp_f32, exp_exact) <= 0.9);
  CHECK(worst_error(-0x1p-30f, exp_lowest, 331, exp_f32, exp_exact) <= 0.9);
  // Near the limits, every argument.
  CHECK(worst_error(88.7f, exp_highest, 1, exp_f32, exp_exact) <= 0.9);
  CHECK(worst_error(-87.3f, exp_lowest, 1, exp_f32, exp_exact) <= 0.9);
}

TEST_CASE("exp: limits and special values", "[math]") {
  CHECK(ml::exp(0.0f) == 1.0f);
  CHECK(ml::exp(-0.0f) == 1.0f);
  CHECK(ml::exp(std::numeric_limits<float>::denorm_min()) == 1.0f);
  CHECK(ml::exp(1.0f) == 0x1.5bf0a8p+1f);
  CHECK(ml::exp(exp_highest) < infinity);
  CHECK(ml::exp(std::nextafter(exp_highest, infinity)) == infinity);
  CHECK(ml::exp(1e30f) == infinity);
  CHECK(ml::exp(infinity) == infinity);
  CHECK(ml::exp(exp_lowest) >= std::numeric_limits<float>::min());
  for (const float x : {std::nextafter(exp_lowest, -infinity), -88.0f, -100.0f, -1e30f, -infinity}) {
    CHECK(float_to_bits(ml::exp(x)) == 0);
  }
  for (const std::uint32_t bits : {0x7FC00000u, 0xFFC00000u, 0x7FC12345u}) {
    CHECK(float_to_bits(ml::exp(bits_to_float(bits))) == bits);
  }
}

TEST_CASE("sigmoid: accuracy and special values", "[math]") {
  CHECK(worst_error(0x1p-30f, 200.0f, 331, sigmoid_f32, sigmoid_exact) <= 1.5);
  CHECK(worst_error(-0x1p-30f, exp_lowest, 331, sigmoid_f32, sigmoid_exact) <= 2.5);
  CHECK(ml::sigmoid(0.0f) == 0.5f);
  CHECK(ml::sigmoid(16.64f) == 1.0f);
  CHECK(ml::sigmoid(infinity) == 1.0f);
  CHECK(ml::sigmoid(-infinity) == 0.0f);
  CHECK(ml::sigmoid(-89.0f) == 0.0f);
  CHECK(std::isnan(ml::sigmoid(quiet_nan)));
}

TEST_CASE("silu: accuracy and special values", "[math]") {
  CHECK(worst_error(0x1p-30f, 200.0f, 331, silu_f32, silu_exact) <= 3.0);
  CHECK(worst_error(-0x1p-30f, exp_lowest, 331, silu_f32, silu_exact) <= 3.0);
  CHECK(float_to_bits(ml::silu(0.0f)) == 0);
  CHECK(float_to_bits(ml::silu(-0.0f)) == 0x80000000u);
  CHECK(float_to_bits(ml::silu(-89.0f)) == 0x80000000u);
  CHECK(ml::silu(1e30f) == 1e30f);
  CHECK(ml::silu(infinity) == infinity);
  CHECK(std::isnan(ml::silu(-infinity)));
  CHECK(std::isnan(ml::silu(quiet_nan)));
}

TEST_CASE("reciprocal_sqrt: within 1.5 ulp", "[math]") {
  // Two octaves hold every case of the significand and the exponent's parity; the rest is scaling.
  CHECK(worst_error(1.0f, 4.0f, 5, reciprocal_sqrt_f32, reciprocal_sqrt_exact) <= 1.5);
  CHECK(worst_error(std::numeric_limits<float>::denorm_min(), std::numeric_limits<float>::max(), 1021,
                    reciprocal_sqrt_f32, reciprocal_sqrt_exact) <= 1.5);
  CHECK(ml::reciprocal_sqrt(4.0f) == 0.5f);
  CHECK(ml::reciprocal_sqrt(0.0f) == infinity);
  CHECK(ml::reciprocal_sqrt(-0.0f) == -infinity);
  CHECK(ml::reciprocal_sqrt(infinity) == 0.0f);
  CHECK(std::isnan(ml::reciprocal_sqrt(-1.0f)));
  CHECK(std::isnan(ml::reciprocal_sqrt(quiet_nan)));
}

// A test on a device runs the same arguments and must get the same seven numbers.
TEST_CASE("the bits of the results are fixed", "[math]") {
  constexpr std::uint32_t step = 521;
  constexpr std::uint32_t count = 0x7F800000u / step;  // every 521st f32 from 0 up to infinity
  constexpr std::uint32_t negative = 0x80000000u;
  CHECK(result_hash(0, step, count, exp_f32) == 0x90C2995E85CC9198u);
  CHECK(result_hash(negative, step, count, exp_f32) == 0xAC841FBD196C0C64u);
  CHECK(result_hash(0, step, count, sigmoid_f32) == 0xB76B233C393EDE8Eu);
  CHECK(result_hash(negative, step, count, sigmoid_f32) == 0x23339BC62CA62517u);
  CHECK(result_hash(0, step, count, silu_f32) == 0x5934C7F7F5EF0EC9u);
  CHECK(result_hash(negative, step, count, silu_f32) == 0x0A506F3073ED38CFu);
  CHECK(result_hash(0, step, count, reciprocal_sqrt_f32) == 0xAA89FDCE3334CD19u);
}

TEST_CASE("ordered_key: the order of the floats", "[math]") {
  // Down from -0 to -inf, then up from +0 to +inf, in steps.
  std::uint32_t last = ordered_key(-0.0f);
  int errors = 0;
  for (std::uint64_t bits = 0x80000001u; bits <= 0xFF800000u; bits += 127) {
    const std::uint32_t key = ordered_key(bits_to_float(static_cast<std::uint32_t>(bits)));
    errors += !(key < last) || key == 0;
    last = key;
  }
  last = ordered_key(0.0f);
  for (std::uint64_t bits = 0x00000001u; bits <= 0x7F800000u; bits += 127) {
    const std::uint32_t key = ordered_key(bits_to_float(static_cast<std::uint32_t>(bits)));
    errors += !(key > last);
    last = key;
  }
  CHECK(errors == 0);

  const float listed[] = {-infinity,
                          -std::numeric_limits<float>::max(),
                          -1.0f,
                          -std::numeric_limits<float>::denorm_min(),
                          0.0f,
                          std::numeric_limits<float>::denorm_min(),
                          std::numeric_limits<float>::min(),
                          1.0f,
                          std::numeric_limits<float>::max(),
                          infinity};
  for (const float a : listed) {
    for (const float b : listed) {
      CHECK((ordered_key(a) < ordered_key(b)) == (a < b));
    }
    CHECK(ordered_key(a) > ordered_key(quiet_nan));
  }
  CHECK(ordered_key(-infinity) == 0x00800000u);
  CHECK(ordered_key(infinity) == 0xFF800000u);
  for (const std::uint32_t bits : {0x7F800001u, 0x7FFFFFFFu, 0xFF800001u, 0xFFFFFFFFu}) {
    CHECK(ordered_key(bits_to_float(bits)) == 0);
  }
}
