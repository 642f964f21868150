// Random weight matrices in each checkpoint format, of a chosen size, made from a seed: either codes drawn
// directly (fast enough for whole GLM-5 experts) or normal values quantised by the format's rule.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "reference/formats.hpp"
#include "reference/matrix.hpp"
#include "reference/random.hpp"

namespace monolayer::reference {

// How the elements of a matrix are made, and what is planted in them.
struct style {
  bool quantised =
      false;  // true: normal floats, quantised by the format's rule; false: codes drawn directly (fast)
  bool zero_blocks = false;  // one block of seventeen is all zero
  bool outlier_blocks =
      false;  // one block of seventeen has one element 16 times up (codes: its scale 8 times up)
};

namespace detail {

enum class block_kind { plain, zero, outlier };

// 17 is coprime to every power of two, so that the planted blocks don't fall into one column of blocks; any
// matrix of 11 or more blocks has both kinds.
inline block_kind kind_of_block(std::size_t index, std::uint64_t seed, const style& how) {
  const std::size_t phase = seed % 4;
  if (how.zero_blocks && index % 17 == 3 + phase) return block_kind::zero;
  if (how.outlier_blocks && index % 17 == 7 + phase) return block_kind::outlier;
  return block_kind::plain;
}

// Codes of normally distributed values, to be indexed by 12 random bits, and their root mean square. For e4m3
// the table begins with every finite code once, so that large matrices use them all.
struct code_table {
  std::array<std::uint8_t, 4096> codes{};
  double rms = 0;
};

inline code_table make_code_table(bool fp4) {
  code_table table;
  generator random(fp4 ? 4 : 8);
  for (std::size_t i = 0; i < table.codes.size(); ++i) {
    std::uint8_t code = 0;
    if (fp4) {
      code = static_cast<std::uint8_t>(e2m1_encode(2.5 * random.normal()));
    } else if (i < 256 && (i & 0x7f) != 0x7f) {
      code = static_cast<std::uint8_t>(i);
    } else {
      code = e4m3_encode(100 * random.normal());
    }
    table.codes[i] = code;
    const double value = fp4 ? e2m1_decode(code) : e4m3_decode(code);
    table.rms += value * value / static_cast<double>(table.codes.size());
  }
  table.rms = std::sqrt(table.rms);
  return table;
}

inline const code_table& codes_of(format fmt) {
  static const code_table fp4 = make_code_table(true), fp8 = make_code_table(false);
  return fmt == format::mxfp4 ? fp4 : fp8;
}

inline void draw_codes(matrix& m, generator& random) {
  const auto& codes = codes_of(m.fmt).codes;
  std::uint64_t bits = 0;
  int left = 0;
  const auto draw = [&] {
    if (left == 0) {
      bits = random.next();
      left = 5;
    }
    const unsigned code = codes[bits & 4095];
    bits >>= 12;
    --left;
    return code;
  };
  for (auto& byte : m.data) {
    unsigned code = draw();
    if (m.fmt == format::mxfp4) code |= draw() << 4;
    byte = static_cast<std::uint8_t>(code);
  }
}

// Uniform values, by a table of the 65536 draws: faster than rounding each element.
inline void draw_bf16(matrix& m, double deviation, generator& random) {
  const double reach = deviation * std::sqrt(3.0) * 0x1p-15;
  std::vector<std::uint16_t> codes(65536);
  for (std::size_t i = 0; i < codes.size(); ++i)
    codes[i] = bf16_encode(reach * (static_cast<double>(i) - 32767.5));
  std::uint64_t bits = 0;
  for (std::size_t i = 0; 2 * i < m.data.size(); ++i, bits >>= 16) {
    if (i % 4 == 0) bits = random.next();
    const std::uint16_t code = codes[bits & 0xffff];
    m.data[2 * i] = static_cast<std::uint8_t>(code);
    m.data[2 * i + 1] = static_cast<std::uint8_t>(code >> 8);
  }
}

// Visits (index of block, first row, first column) in the order of the scale grid.
template <class visitor>
void for_each_block(int rows, int cols, format fmt, visitor visit) {
  const extent block = block_of(fmt, cols);
  std::size_t index = 0;
  for (int r = 0; r < rows; r += block.rows) {
    for (int c = 0; c < cols; c += block.cols) visit(index++, r, c);
  }
}

inline void clear_block(matrix& m, int r0, int c0) {
  const extent block = block_of(m.fmt, m.cols);
  const std::size_t from = matrix::row_bytes(m.fmt, c0);
  const std::size_t to = matrix::row_bytes(m.fmt, std::min(m.cols, c0 + block.cols));
  for (int r = r0; r < std::min(m.rows, r0 + block.rows); ++r)
    std::memset(m.row_data(r) + from, 0, to - from);
}

inline matrix random_codes(int rows, int cols, format fmt, double deviation, std::uint64_t seed,
                           const style& how) {
  matrix m = blank_matrix(rows, cols, fmt);
  generator random(seed);
  if (fmt == format::bf16) {
    draw_bf16(m, deviation, random);
  } else {
    draw_codes(m, random);
  }
  const double unit = fmt == format::bf16 ? 1 : deviation / codes_of(fmt).rms;
  for_each_block(rows, cols, fmt, [&](std::size_t index, int r, int c) {
    const block_kind kind = kind_of_block(index, seed, how);
    if (kind == block_kind::zero) clear_block(m, r, c);
    if (fmt == format::mxfp4) {
      // Exponents nearest - 1, nearest, nearest + 1; ilogb of 1.5 x rounds log2 well enough.
      const int exponent = std::ilogb(unit * 1.5) + static_cast<int>(random.next() % 3) - 1;
      const int raised = exponent + (kind == block_kind::outlier ? 3 : 0) + 127;
      m.scales_e8m0[index] =
          static_cast<std::uint8_t>(kind == block_kind::zero ? 0 : std::clamp(raised, 0, 254));
    } else if (fmt != format::bf16) {
      const auto s = static_cast<float>(unit * (0.5 + random.uniform()));
      m.scales[index] = kind == block_kind::zero ? 1.0f : kind == block_kind::outlier ? 8 * s : s;
    } else if (kind == block_kind::outlier) {
      // Three up in the exponent field, unless the element is zero or subnormal.
      for (int k = c; k < std::min(cols, c + 32); ++k) {
        const auto code = bf16_encode(8 * m.at(r, k));
        m.row_data(r)[2 * k] = static_cast<std::uint8_t>(code);
        m.row_data(r)[2 * k + 1] = static_cast<std::uint8_t>(code >> 8);
      }
    }
  });
  return m;
}

inline std::vector<float> random_values(int rows, int cols, format fmt, double deviation, std::uint64_t seed,
                                        const style& how) {
  std::vector<float> values(static_cast<std::size_t>(rows) * cols);
  generator random(seed);
  for (auto& v : values) v = static_cast<float>(deviation * random.normal());
  const extent block = block_of(fmt, cols);
  for_each_block(rows, cols, fmt, [&](std::size_t index, int r0, int c0) {
    const block_kind kind = kind_of_block(index, seed, how);
    if (kind == block_kind::plain) return;
    const int r1 = std::min(rows, r0 + block.rows), c1 = std::min(cols, c0 + block.cols);
    if (kind == block_kind::outlier) {
      const int r = r0 + static_cast<int>(random.next() % static_cast<unsigned>(r1 - r0));
      const int c = c0 + static_cast<int>(random.next() % static_cast<unsigned>(c1 - c0));
      values[static_cast<std::size_t>(r) * cols + c] *= 16;
      return;
    }
    for (int r = r0; r < r1; ++r) {
      for (int c = c0; c < c1; ++c) values[static_cast<std::size_t>(r) * cols + c] = 0;
    }
  });
  return values;
}

}  // namespace detail

// A matrix whose product with inputs of order one is of order gain: elements deviate by about gain /
// sqrt(cols).
inline matrix random_matrix(int rows, int cols, format fmt, std::uint64_t seed, double gain = 1,
                            style how = {}) {
  const double deviation = gain / std::sqrt(static_cast<double>(cols));
  if (!how.quantised) return detail::random_codes(rows, cols, fmt, deviation, seed, how);
  return quantise(detail::random_values(rows, cols, fmt, deviation, seed, how), rows, cols, fmt);
}

// A norm's weight, 1 x n in bf16, near one.
inline matrix random_norm(int n, std::uint64_t seed) {
  generator random(seed);
  std::vector<float> values(static_cast<std::size_t>(n));
  for (auto& v : values) v = static_cast<float>(1 + 0.125 * random.normal());
  return quantise(values, 1, n, format::bf16);
}

inline std::vector<std::uint16_t> bf16_bits(const matrix& m) {
  require(m.fmt == format::bf16, "bf16_bits: not a bf16 matrix");
  std::vector<std::uint16_t> bits(m.data.size() / 2);
  for (std::size_t i = 0; i < bits.size(); ++i) {
    bits[i] = static_cast<std::uint16_t>(m.data[2 * i] | m.data[2 * i + 1] << 8);
  }
  return bits;
}

}  // namespace monolayer::reference
