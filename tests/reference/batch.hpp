// Activations of some rows in double, their bf16 forms, and measures of error.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "reference/formats.hpp"
#include "reference/matrix.hpp"
#include "reference/random.hpp"

namespace monolayer::reference {

// Row-major [rows][cols].
struct batch {
  int rows = 0;
  int cols = 0;
  std::vector<double> values;

  batch() = default;
  batch(int rows_, int cols_) : rows(rows_), cols(cols_), values(static_cast<std::size_t>(rows_) * cols_) {}

  double* row(int r) { return values.data() + static_cast<std::size_t>(r) * cols; }
  const double* row(int r) const { return values.data() + static_cast<std::size_t>(r) * cols; }
  double& operator()(int r, int c) { return row(r)[c]; }
  double operator()(int r, int c) const { return row(r)[c]; }
};

inline batch rounded_to_bf16(batch b) {
  for (auto& v : b.values) v = bf16_round(v);
  return b;
}

inline batch from_bf16(const std::uint16_t* bits, int rows, int cols) {
  batch b(rows, cols);
  for (std::size_t i = 0; i < b.values.size(); ++i) b.values[i] = bf16_decode(bits[i]);
  return b;
}

inline batch from_float(const float* values, int rows, int cols) {
  batch b(rows, cols);
  for (std::size_t i = 0; i < b.values.size(); ++i) b.values[i] = static_cast<double>(values[i]);
  return b;
}

inline std::vector<std::uint16_t> to_bf16(const batch& b) {
  std::vector<std::uint16_t> bits(b.values.size());
  for (std::size_t i = 0; i < bits.size(); ++i) bits[i] = bf16_encode(b.values[i]);
  return bits;
}

// Normal values of deviation size, exact in bf16.
inline batch random_activations(int rows, int cols, std::uint64_t seed, double size = 1) {
  batch b(rows, cols);
  generator random(seed);
  for (auto& v : b.values) v = bf16_round(size * random.normal());
  return b;
}

inline batch column_slice(const batch& b, int begin, int count) {
  require(begin >= 0 && count >= 0 && begin + count <= b.cols, "column_slice: out of range");
  batch part(b.rows, count);
  for (int r = 0; r < b.rows; ++r) std::copy_n(b.row(r) + begin, count, part.row(r));
  return part;
}

// ---- errors: infinite as soon as one difference is not finite, so that a NaN never passes for a small error
// ----

// Norm of the difference over norm of the reference, all rows together.
inline double relative_l2(const batch& out, const batch& ref) {
  require(out.rows == ref.rows && out.cols == ref.cols, "relative_l2: different shapes");
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < ref.values.size(); ++i) {
    const double d = out.values[i] - ref.values[i];
    difference += d * d;
    size += ref.values[i] * ref.values[i];
  }
  if (!std::isfinite(difference) || !std::isfinite(size)) return std::numeric_limits<double>::infinity();
  return difference == 0 ? 0 : std::sqrt(difference / size);
}

// The worst row's largest difference over that row's largest reference value.
inline double max_abs_over_rowmax(const batch& out, const batch& ref) {
  require(out.rows == ref.rows && out.cols == ref.cols, "max_abs_over_rowmax: different shapes");
  double worst = 0;
  for (int r = 0; r < ref.rows; ++r) {
    double difference = 0, size = 0;
    for (int c = 0; c < ref.cols; ++c) {
      const double d = std::fabs(out(r, c) - ref(r, c));
      if (!std::isfinite(d)) return std::numeric_limits<double>::infinity();
      difference = std::max(difference, d);
      size = std::max(size, std::fabs(ref(r, c)));
    }
    if (difference > 0) worst = std::max(worst, difference / size);
  }
  return worst;
}

}  // namespace monolayer::reference
