// A weight matrix as a checkpoint stores it: encoded bytes, scales, and the exact value of every element.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "reference/formats.hpp"

namespace monolayer::reference {

enum class format { bf16, fp8_block128, fp8_channel, mxfp4 };

inline const char* name_of(format fmt) {
  switch (fmt) {
    case format::bf16:
      return "bf16";
    case format::fp8_block128:
      return "fp8_block128";
    case format::fp8_channel:
      return "fp8_channel";
    case format::mxfp4:
      return "mxfp4";
  }
  return "?";
}

inline constexpr format all_formats[] = {format::bf16, format::fp8_block128, format::fp8_channel,
                                         format::mxfp4};

inline void require(bool condition, const char* what) {
  if (!condition) throw std::invalid_argument(std::string("monolayer::reference: ") + what);
}

inline int ceil_div(int a, int b) { return (a + b - 1) / b; }

// Elements that share a scale; for bf16, which has none, the extent on which zero and outlier blocks are
// placed.
struct extent {
  int rows, cols;
};

inline extent block_of(format fmt, int cols) {
  switch (fmt) {
    case format::fp8_block128:
      return {128, 128};
    case format::fp8_channel:
      return {1, cols};
    default:
      return {1, 32};
  }
}

inline const std::array<double, 256>& e4m3_table() {
  static const std::array<double, 256> table = [] {
    std::array<double, 256> t{};
    for (int code = 0; code < 256; ++code) t[code] = e4m3_decode(static_cast<std::uint8_t>(code));
    return t;
  }();
  return table;
}

inline const std::array<double, 16>& e2m1_table() {
  static const std::array<double, 16> table = [] {
    std::array<double, 16> t{};
    for (unsigned code = 0; code < 16; ++code) t[code] = e2m1_decode(code);
    return t;
  }();
  return table;
}

// Row-major [rows = outputs][cols = inputs].
struct matrix {
  int rows = 0;
  int cols = 0;
  format fmt = format::bf16;
  std::vector<std::uint8_t>
      data;                   // bf16: 2 bytes, little endian; fp8: 1; mxfp4: 1/2, low nibble = even column
  std::vector<float> scales;  // fp8_block128: ceil(rows/128) x ceil(cols/128); fp8_channel: rows
  std::vector<std::uint8_t> scales_e8m0;  // mxfp4: rows x cols/32

  std::size_t row_bytes() const { return row_bytes(fmt, cols); }

  static std::size_t row_bytes(format fmt, int cols) {
    const auto n = static_cast<std::size_t>(cols);
    return fmt == format::bf16 ? 2 * n : fmt == format::mxfp4 ? n / 2 : n;
  }

  const std::uint8_t* row_data(int r) const {
    return data.data() + static_cast<std::size_t>(r) * row_bytes();
  }
  std::uint8_t* row_data(int r) { return data.data() + static_cast<std::size_t>(r) * row_bytes(); }

  std::size_t scale_index(int r, int c) const {
    if (fmt == format::fp8_channel) return static_cast<std::size_t>(r);
    const extent block = block_of(fmt, cols);
    return static_cast<std::size_t>(r / block.rows) * ceil_div(cols, block.cols) + c / block.cols;
  }

  double scale(int r, int c) const {
    if (fmt == format::bf16) return 1;
    if (fmt == format::mxfp4) return e8m0_decode(scales_e8m0[scale_index(r, c)]);
    return static_cast<double>(scales[scale_index(r, c)]);
  }

  // The encoded element: 16 bits of bf16, 8 of e4m3, 4 of e2m1.
  unsigned code(int r, int c) const {
    const std::uint8_t* row = row_data(r);
    if (fmt == format::bf16) return row[2 * c] | static_cast<unsigned>(row[2 * c + 1]) << 8;
    if (fmt == format::mxfp4) return (row[c / 2] >> (c % 2 * 4)) & 15u;
    return row[c];
  }

  // The dequantised element; exact, since a double holds the product of any element and scale.
  double at(int r, int c) const {
    if (fmt == format::bf16) return bf16_decode(static_cast<std::uint16_t>(code(r, c)));
    if (fmt == format::mxfp4) return e2m1_decode(code(r, c)) * scale(r, c);
    return e4m3_decode(static_cast<std::uint8_t>(code(r, c))) * scale(r, c);
  }

  // The whole row r, in out[0 .. cols): the same values as at(), by table.
  void decode_row(int r, double* out) const {
    const std::uint8_t* row = row_data(r);
    if (fmt == format::bf16) {
      for (int c = 0; c < cols; ++c) {
        out[c] = bf16_decode(static_cast<std::uint16_t>(row[2 * c] | row[2 * c + 1] << 8));
      }
      return;
    }
    const int width = block_of(fmt, cols).cols;
    for (int begin = 0; begin < cols; begin += width) {
      const int end = std::min(cols, begin + width);
      const double s = scale(r, begin);
      if (fmt == format::mxfp4) {
        const auto& table = e2m1_table();
        for (int c = begin; c < end; c += 2) {
          const unsigned pair = row[c / 2];
          out[c] = table[pair & 15] * s;
          out[c + 1] = table[pair >> 4] * s;
        }
      } else {
        const auto& table = e4m3_table();
        for (int c = begin; c < end; ++c) out[c] = table[row[c]] * s;
      }
    }
  }
};

// An empty matrix with room for its bytes and scales.
inline matrix blank_matrix(int rows, int cols, format fmt) {
  require(rows > 0 && cols > 0, "a matrix needs rows and columns");
  require(fmt != format::mxfp4 || cols % 32 == 0, "mxfp4 needs a multiple of 32 columns");
  matrix m;
  m.rows = rows;
  m.cols = cols;
  m.fmt = fmt;
  m.data.resize(static_cast<std::size_t>(rows) * m.row_bytes());
  const extent block = block_of(fmt, cols);
  const std::size_t blocks =
      static_cast<std::size_t>(ceil_div(rows, block.rows)) * ceil_div(cols, block.cols);
  if (fmt == format::fp8_block128 || fmt == format::fp8_channel) m.scales.resize(blocks);
  if (fmt == format::mxfp4) m.scales_e8m0.resize(blocks);
  return m;
}

// Quantises row-major values. fp8: scale = amax / 448 in float (1 for a zero block); mxfp4: OCP floor.
inline matrix quantise(const std::vector<float>& values, int rows, int cols, format fmt) {
  matrix m = blank_matrix(rows, cols, fmt);
  require(values.size() == static_cast<std::size_t>(rows) * cols, "quantise: wrong number of values");
  const auto value = [&](int r, int c) {
    return static_cast<double>(values[static_cast<std::size_t>(r) * cols + c]);
  };
  const extent block = block_of(fmt, cols);
  for (int r0 = 0; r0 < rows; r0 += block.rows) {
    for (int c0 = 0; c0 < cols; c0 += block.cols) {
      const int r1 = std::min(rows, r0 + block.rows), c1 = std::min(cols, c0 + block.cols);
      double amax = 0;
      for (int r = r0; r < r1; ++r) {
        for (int c = c0; c < c1; ++c) amax = std::max(amax, std::fabs(value(r, c)));
      }
      if (fmt == format::mxfp4) m.scales_e8m0[m.scale_index(r0, c0)] = e8m0_floor_scale(amax, 2);
      if (!m.scales.empty()) {
        const float s = static_cast<float>(amax) / 448.0f;  // may be 0 for a tiny amax too
        m.scales[m.scale_index(r0, c0)] = s > 0 ? s : 1.0f;
      }
      const double s = m.scale(r0, c0);
      for (int r = r0; r < r1; ++r) {
        std::uint8_t* row = m.row_data(r);
        for (int c = c0; c < c1; ++c) {
          if (fmt == format::bf16) {
            const std::uint16_t bits = bf16_encode(value(r, c));
            row[2 * c] = static_cast<std::uint8_t>(bits);
            row[2 * c + 1] = static_cast<std::uint8_t>(bits >> 8);
          } else if (fmt == format::mxfp4) {
            row[c / 2] = static_cast<std::uint8_t>(row[c / 2] | e2m1_encode(value(r, c) / s) << (c % 2 * 4));
          } else {
            row[c] = e4m3_encode(value(r, c) / s);
          }
        }
      }
    }
  }
  return m;
}

// ---- tensor-parallel cuts ----

// A cut must keep whole scale blocks, or lie inside one block (64 rows of a 128-row block, say).
inline bool cut_is_legal(int begin, int count, int block) {
  return begin % block == 0 || begin % block + count <= block;
}

inline matrix row_slice(const matrix& m, int begin, int count) {
  require(begin >= 0 && count > 0 && begin + count <= m.rows, "row_slice: out of range");
  const extent block = block_of(m.fmt, m.cols);
  require(cut_is_legal(begin, count, block.rows), "row_slice: the cut splits a scale block");
  matrix part = blank_matrix(count, m.cols, m.fmt);
  std::memcpy(part.data.data(), m.row_data(begin), part.data.size());
  const std::size_t first = static_cast<std::size_t>(begin / block.rows) * ceil_div(m.cols, block.cols);
  for (std::size_t i = 0; i < part.scales.size(); ++i) part.scales[i] = m.scales[first + i];
  for (std::size_t i = 0; i < part.scales_e8m0.size(); ++i) part.scales_e8m0[i] = m.scales_e8m0[first + i];
  return part;
}

inline matrix column_slice(const matrix& m, int begin, int count) {
  require(begin >= 0 && count > 0 && begin + count <= m.cols, "column_slice: out of range");
  const extent block = block_of(m.fmt, m.cols);
  const bool scaled_by_column = m.fmt == format::fp8_block128 || m.fmt == format::mxfp4;
  require(!scaled_by_column || cut_is_legal(begin, count, block.cols),
          "column_slice: the cut splits a scale block");
  matrix part = blank_matrix(m.rows, count, m.fmt);
  for (int r = 0; r < m.rows; ++r) {
    std::memcpy(part.row_data(r), m.row_data(r) + matrix::row_bytes(m.fmt, begin), part.row_bytes());
  }
  if (m.fmt == format::fp8_channel) part.scales = m.scales;
  if (scaled_by_column) {
    for (int r = 0; r < m.rows; r += block.rows) {
      for (int c = 0; c < count; c += block.cols) {
        const std::size_t to = part.scale_index(r, c), from = m.scale_index(r, begin + c);
        if (m.fmt == format::mxfp4) part.scales_e8m0[to] = m.scales_e8m0[from];
        if (m.fmt == format::fp8_block128) part.scales[to] = m.scales[from];
      }
    }
  }
  return part;
}

}  // namespace monolayer::reference
