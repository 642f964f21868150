// Self-tests of the reference: formats against lists written out by hand, and properties that the two slices
// must have.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstdint>
#include <limits>
#include <set>
#include <stdexcept>
#include <vector>

#include "reference/slices.hpp"

namespace ref = monolayer::reference;

namespace {

// The values of a small float by counting up: 2^mantissa_bits codes at each step size, the first size twice.
std::vector<double> counted_values(double first_step, int mantissa_bits, int count) {
  std::vector<double> values;
  double value = 0, step = first_step;
  for (int code = 0; code < count; ++code) {
    values.push_back(value);
    if (code >= 2 << mantissa_bits && code % (1 << mantissa_bits) == 0) step *= 2;
    value += step;
  }
  return values;
}

// The nearest of the listed values, ties to the even code, by search.
unsigned nearest_code(const std::vector<double>& values, double x) {
  unsigned best = 0;
  for (unsigned code = 1; code < values.size(); ++code) {
    const double now = std::fabs(values[code] - x), before = std::fabs(values[best] - x);
    if (now < before || (now == before && code % 2 == 0)) best = code;
  }
  return best;
}

ref::layer_b plain_layer_b(std::uint64_t seed, ref::format fmt = ref::format::fp8_block128) {
  return ref::make_layer_b(ref::small(), seed, {.routed = fmt, .shared = fmt});
}

double root_mean_square(const ref::batch& b) {
  double sum = 0;
  for (const double v : b.values) sum += v * v;
  return std::sqrt(sum / static_cast<double>(b.values.size()));
}

double root_mean_square(const ref::matrix& m) {
  ref::batch row(1, m.cols);
  double sum = 0;
  for (int r = 0; r < m.rows; ++r) {
    m.decode_row(r, row.row(0));
    sum += root_mean_square(row) * root_mean_square(row);
  }
  return std::sqrt(sum / m.rows);
}

}  // namespace

TEST_CASE("every code decodes to the value counted by hand", "[reference]") {
  const std::vector<double> fp4{0, 0.5, 1, 1.5, 2, 3, 4, 6};
  const std::vector<double> fp8 = counted_values(std::ldexp(1.0, -9), 3, 127);
  REQUIRE(fp8[8] == std::ldexp(1.0, -6));
  REQUIRE(fp8[0x38] == 1.0);
  REQUIRE(fp8[0x7e] == 448.0);
  for (unsigned code = 0; code < 8; ++code) {
    REQUIRE(ref::e2m1_decode(code) == fp4[code]);
    REQUIRE(ref::e2m1_decode(code | 8) == -fp4[code]);
    REQUIRE(ref::e2m1_encode(fp4[code]) == code);
    REQUIRE(ref::e2m1_encode(-fp4[code]) == (code | 8));
  }
  for (unsigned code = 0; code < 127; ++code) {
    REQUIRE(ref::e4m3_decode(static_cast<std::uint8_t>(code)) == fp8[code]);
    REQUIRE(ref::e4m3_decode(static_cast<std::uint8_t>(code | 0x80)) == -fp8[code]);
    REQUIRE(ref::e4m3_encode(fp8[code]) == code);
    REQUIRE(ref::e4m3_encode(-fp8[code]) == (code | 0x80));
  }
  REQUIRE(std::isnan(ref::e4m3_decode(0x7f)));
  REQUIRE(std::isnan(ref::e4m3_decode(0xff)));
  REQUIRE(std::signbit(ref::e4m3_decode(0x80)));

  double power = std::ldexp(1.0, -127);
  for (int code = 0; code < 255; ++code, power *= 2) {
    REQUIRE(ref::e8m0_decode(static_cast<std::uint8_t>(code)) == power);
  }
  REQUIRE(std::isnan(ref::e8m0_decode(255)));
  REQUIRE(ref::e8m0_decode(127) == 1.0);
}

TEST_CASE("bf16 decodes by its formula and survives a round trip", "[reference]") {
  for (unsigned bits = 0; bits < 65536; ++bits) {
    const int field = static_cast<int>(bits >> 7 & 0xff), mantissa = static_cast<int>(bits & 0x7f);
    const double sign = (bits & 0x8000) != 0 ? -1 : 1;
    const double value = ref::bf16_decode(static_cast<std::uint16_t>(bits));
    if (field == 255) {
      REQUIRE((mantissa == 0 ? std::isinf(value) : std::isnan(value)));
      if (mantissa != 0) continue;
    } else {
      const double magnitude =
          field == 0 ? std::ldexp(mantissa, -133) : std::ldexp(128 + mantissa, field - 134);
      REQUIRE(value == sign * magnitude);
    }
    REQUIRE(ref::bf16_encode(value) == bits);
    REQUIRE(ref::bf16_round(value) == value);
  }
}

TEST_CASE("encoders round to nearest, ties to even, and saturate", "[reference]") {
  const std::vector<double> fp4{0, 0.5, 1, 1.5, 2, 3, 4, 6};
  const std::vector<double> fp8 = counted_values(std::ldexp(1.0, -9), 3, 127);
  ref::generator random(1);
  for (int i = 0; i < 20000; ++i) {
    const double x4 = 8 * random.uniform(),
                 x8 = std::ldexp(random.uniform(), static_cast<int>(random.next() % 22) - 12);
    REQUIRE(ref::e2m1_encode(x4) == nearest_code(fp4, x4));
    REQUIRE(ref::e4m3_encode(x8) == nearest_code(fp8, x8));
  }
  for (unsigned code = 0; code + 1 < fp4.size(); ++code) {
    const double middle = (fp4[code] + fp4[code + 1]) / 2;
    REQUIRE(ref::e2m1_encode(middle) == nearest_code(fp4, middle));
  }
  for (unsigned code = 0; code + 1 < fp8.size(); ++code) {
    const double middle = (fp8[code] + fp8[code + 1]) / 2;
    REQUIRE(ref::e4m3_encode(middle) == nearest_code(fp8, middle));
  }
  REQUIRE(ref::e4m3_encode(1e9) == 0x7e);
  REQUIRE(ref::e2m1_encode(-1e9) == 15);
  REQUIRE(ref::e4m3_encode(std::numeric_limits<double>::infinity()) == 0x7e);

  REQUIRE(ref::bf16_round(1 + 0x1p-8) == 1);                     // a tie, to even
  REQUIRE(ref::bf16_round(1 + 3 * 0x1p-8) == 1 + 2 * 0x1p-7);    // a tie, up to even
  REQUIRE(ref::bf16_round(1 + 0x1p-8 + 0x1p-50) == 1 + 0x1p-7);  // float first would make it a tie
  REQUIRE(ref::bf16_round(0x1.5p-133) == 0x1p-133);
  REQUIRE(std::isinf(ref::bf16_round(3.4e38)));
  REQUIRE(ref::bf16_round(34.02) == 34.0);  // what becomes of a router's bias
}

TEST_CASE("the generator's bits are fixed", "[reference]") {
  // First outputs of splitmix64 from state 0, as published with the algorithm.
  std::uint64_t state = 0;
  REQUIRE(ref::splitmix(state) == 0xe220a8397b1dcdafu);
  REQUIRE(ref::splitmix(state) == 0x6e789e6aa1b965f4u);
  REQUIRE(ref::derive_seed(1, 2) != ref::derive_seed(2, 1));
  ref::generator random(5);
  double mean = 0, square = 0;
  constexpr int n = 100000;
  for (int i = 0; i < n; ++i) {
    const double x = random.normal();
    mean += x / n;
    square += x * x / n;
  }
  REQUIRE(std::fabs(mean) < 0.02);
  REQUIRE(std::fabs(square - 1) < 0.02);
}

TEST_CASE("quantised matrices stay near their values in every format", "[reference]") {
  const int rows = 200, cols = 288;  // neither is a multiple of 128
  const ref::style planted{.quantised = true, .zero_blocks = true, .outlier_blocks = true};
  for (const ref::format fmt : ref::all_formats) {
    INFO(ref::name_of(fmt));
    const auto values = ref::detail::random_values(rows, cols, fmt, 0.05, 3, planted);
    const ref::matrix m = ref::quantise(values, rows, cols, fmt);
    std::vector<double> row(cols);
    const ref::extent block = ref::block_of(fmt, cols);
    for (int r = 0; r < rows; ++r) {
      m.decode_row(r, row.data());
      for (int c = 0; c < cols; ++c) {
        const double x = static_cast<double>(values[static_cast<std::size_t>(r) * cols + c]);
        const double got = m.at(r, c);
        REQUIRE(got == row[c]);
        REQUIRE((x != 0 || got == 0));
        if (fmt == ref::format::bf16) {
          REQUIRE(std::fabs(got - x) <= std::fabs(x) * 0x1p-8);
        } else if (fmt == ref::format::mxfp4) {
          // Under the floor rule the largest element lies in [4, 8) scales; 6 is the largest code.
          REQUIRE(std::fabs(got - x) <= 2 * m.scale(r, c));
        } else {
          REQUIRE(std::fabs(got - x) <= std::fabs(x) * 0x1p-4 * 1.001 + m.scale(r, c) * 0x1p-10);
        }
      }
    }
    REQUIRE(m.scales.size() == (fmt == ref::format::fp8_block128  ? 6u
                                : fmt == ref::format::fp8_channel ? 200u
                                                                  : 0u));
    REQUIRE(m.scales_e8m0.size() == (fmt == ref::format::mxfp4 ? 200u * 9 : 0u));
    REQUIRE(m.data.size() == m.row_bytes() * rows);
    REQUIRE(block.rows * block.cols > 0);
  }
}

TEST_CASE("zero and outlier blocks are planted, and codes are drawn to size", "[reference]") {
  const int rows = 640, cols = 512;
  for (const ref::format fmt : ref::all_formats) {
    for (const bool quantised : {false, true}) {
      INFO(ref::name_of(fmt) << (quantised ? " quantised" : " drawn"));
      const ref::matrix plain = ref::random_matrix(rows, cols, fmt, 7, 1, {.quantised = quantised});
      const double size = root_mean_square(plain) * std::sqrt(double(cols));
      REQUIRE(size > 0.65);
      REQUIRE(size < 1.5);
      const ref::matrix again = ref::random_matrix(rows, cols, fmt, 7, 1, {.quantised = quantised});
      REQUIRE((again.data == plain.data && again.scales == plain.scales &&
               again.scales_e8m0 == plain.scales_e8m0));

      const ref::matrix planted = ref::random_matrix(rows, cols, fmt, 7, 1, {quantised, true, true});
      int zero_blocks = 0;
      double largest = 0, largest_plain = 0;
      ref::detail::for_each_block(rows, cols, fmt, [&](std::size_t, int r0, int c0) {
        const ref::extent block = ref::block_of(fmt, cols);
        bool zero = true;
        for (int r = r0; r < std::min(rows, r0 + block.rows); ++r) {
          for (int c = c0; c < std::min(cols, c0 + block.cols); ++c) {
            REQUIRE(std::isfinite(planted.at(r, c)));
            zero = zero && planted.at(r, c) == 0;
            largest = std::max(largest, std::fabs(planted.at(r, c)));
            largest_plain = std::max(largest_plain, std::fabs(plain.at(r, c)));
          }
        }
        zero_blocks += zero ? 1 : 0;
      });
      REQUIRE(zero_blocks >= 1);
      REQUIRE(largest > 2 * largest_plain);
    }
  }
  const ref::matrix fp8 = ref::random_matrix(rows, cols, ref::format::fp8_block128, 9);
  REQUIRE(std::set<std::uint8_t>(fp8.data.begin(), fp8.data.end()).size() == 254);
}

TEST_CASE("a rank's part holds the same elements as the whole", "[reference]") {
  const ref::geometry g = ref::small();
  const auto same = [](const ref::matrix& part, const ref::matrix& whole, int row0, int col0) {
    for (int r = 0; r < part.rows; ++r) {
      for (int c = 0; c < part.cols; ++c) {
        if (part.at(r, c) != whole.at(row0 + r, col0 + c) ||
            part.code(r, c) != whole.code(row0 + r, col0 + c)) {
          return false;
        }
      }
    }
    return true;
  };
  for (const ref::format fmt : ref::all_formats) {
    INFO(ref::name_of(fmt));
    const ref::layer_a a = ref::make_layer_a(g, 21, {.q_a = fmt, .q_b = fmt});
    const ref::layer_b b = plain_layer_b(22, fmt);
    for (const int tp : {1, 2, 4, 8}) {
      for (int rank = 0; rank < tp; ++rank) {
        const ref::matrix q_b = ref::q_b_of_rank(g, a, rank, tp);
        REQUIRE(q_b.rows == g.q_rows() / tp);
        REQUIRE(same(q_b, a.q_b, rank * q_b.rows, 0));
        const int width = g.expert_width / tp;
        for (const auto* whole : {&b.get(5), &b.shared()}) {
          const ref::expert part = ref::expert_of_rank(*whole, rank, tp);
          REQUIRE((part.gate.rows == width && part.up.rows == width && part.down.cols == width));
          REQUIRE(same(part.gate, whole->gate, rank * width, 0));
          REQUIRE(same(part.up, whole->up, rank * width, 0));
          REQUIRE(same(part.down, whole->down, 0, rank * width));
        }
      }
    }
    REQUIRE_THROWS_AS(ref::q_b_of_rank(g, a, 0, 3), std::invalid_argument);
  }
  const ref::matrix m = ref::random_matrix(256, 256, ref::format::fp8_block128, 1);
  REQUIRE_THROWS_AS(ref::row_slice(m, 64, 128), std::invalid_argument);
  REQUIRE_THROWS_AS(ref::column_slice(m, 64, 128), std::invalid_argument);
}

TEST_CASE("slice A is its formula", "[reference]") {
  const ref::geometry g = ref::small();
  const ref::layer_a layer =
      ref::make_layer_a(g, 31, {.q_a = ref::format::mxfp4, .q_b = ref::format::fp8_channel});
  const ref::batch h = ref::random_activations(2, g.hidden, 32);
  const auto exact = ref::slice_a(g, layer, h, ref::rounding::exact());
  // Element by element through at(), sums from one end to the other.
  for (int r = 0; r < h.rows; ++r) {
    double square = 0;
    for (int c = 0; c < g.hidden; ++c) square += h(r, c) * h(r, c);
    std::vector<double> x(g.hidden), qa(g.q_lora, 0.0), c_q(g.q_lora);
    for (int c = 0; c < g.hidden; ++c) {
      x[c] = h(r, c) / std::sqrt(square / g.hidden + static_cast<double>(1e-5f)) * layer.input_norm.at(0, c);
    }
    double qa_square = 0;
    for (int n = 0; n < g.q_lora; ++n) {
      for (int c = 0; c < g.hidden; ++c) qa[n] += x[c] * layer.q_a.at(n, c);
      qa_square += qa[n] * qa[n];
    }
    for (int n = 0; n < g.q_lora; ++n) {
      c_q[n] = qa[n] / std::sqrt(qa_square / g.q_lora + static_cast<double>(1e-6f)) * layer.q_a_norm.at(0, n);
    }
    for (int n = 0; n < g.q_rows(); n += 37) {
      double q = 0;
      for (int c = 0; c < g.q_lora; ++c) q += c_q[c] * layer.q_b.at(n, c);
      REQUIRE(std::fabs(q - exact.q(r, n)) < 1e-11);
    }
  }
  const auto rounded = ref::slice_a(g, layer, h);
  const double error = ref::relative_l2(rounded.q, exact.q);
  REQUIRE(error > 1e-4);  // it did round
  REQUIRE(error < 1e-2);
  REQUIRE(ref::relative_l2(ref::rounded_to_bf16(rounded.c_q), rounded.c_q) == 0);
  REQUIRE(ref::relative_l2(ref::rounded_to_bf16(rounded.q_a), rounded.q_a) == 0);
  REQUIRE(root_mean_square(rounded.q) > 0.3);
  REQUIRE(root_mean_square(rounded.q) < 3);
}

TEST_CASE("small inputs make each norm's eps visible", "[reference]") {
  const ref::geometry g = ref::small();
  const ref::layer_a layer = ref::make_layer_a(g, 41, {.q_a_gain = 1e-3});
  const ref::layer_b moe = plain_layer_b(42);
  const ref::batch h = ref::random_activations(2, g.hidden, 43, 1e-3);
  ref::geometry other = g;
  other.eps_input = 1e-6f;
  REQUIRE(ref::relative_l2(ref::slice_a(other, layer, h).x, ref::slice_a(g, layer, h).x) > 0.5);
  other = g;
  other.eps_q_a = 1e-5f;
  REQUIRE(ref::relative_l2(ref::slice_a(other, layer, h).q, ref::slice_a(g, layer, h).q) > 0.3);
  other = g;
  other.eps_post = 1e-6f;
  REQUIRE(ref::relative_l2(ref::slice_b(other, moe, h).y, ref::slice_b(g, moe, h).y) > 0.5);
}
