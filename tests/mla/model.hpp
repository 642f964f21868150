// What the tests of latent attention feed, and float64 numbers to compare with. Nothing here calls the library's
// conversions: codes are decoded by their definition.
#pragma once

#include <cmath>
#include <cstring>
#include <vector>

#include "reference/random.hpp"

namespace monolayer::test {

using reference::generator;
using bytes = std::vector<std::uint8_t>;

inline double of_bf16(std::uint16_t bits) { return double(std::bit_cast<float>(std::uint32_t(bits) << 16)); }
inline std::uint16_t to_bf16(double x) {
  const std::uint32_t b = std::bit_cast<std::uint32_t>(float(x));
  return std::uint16_t((b + 0x7fffu + (b >> 16 & 1)) >> 16);
}
inline double of_e4m3(std::uint8_t code) {
  const int e = code >> 3 & 15, m = code & 7;
  const double v = e == 0 ? m * std::ldexp(1.0, -9) : (8 + m) * std::ldexp(1.0, e - 10);
  return (code & 0x80) != 0 ? -v : v;
}

/// How far a value may be from a code that was rounded once, `slack` from the arithmetic before.
inline double half_step(double x, bool fp8, double slack) {
  int e = 0;
  std::frexp(x, &e);  // |x| in [2^(e-1), 2^e)
  const double step = fp8 ? std::ldexp(1.0, std::max(e - 4, -9)) : std::ldexp(1.0, e - 8);
  return step * 0.5 * (1 + 1e-6) + slack;
}

/// Element i of a row of the cache, 512 + 64 of them.
inline double row_value(const std::uint8_t* row, int i, bool fp8) {
  if (fp8) return of_e4m3(row[i]);
  std::uint16_t bits;
  std::memcpy(&bits, row + 2 * i, 2);
  return of_bf16(bits);
}

/// A matrix of a checkpoint in any of the three formats, with its values.
struct weight_matrix {
  enum kind_t { bf16, block, channel } kind;
  long rows, columns;
  bytes data;
  std::vector<float> scales;

  weight_matrix(kind_t k, long r, long c, std::uint64_t seed, double size) : kind(k), rows(r), columns(c) {
    generator g(seed);
    data.resize(std::size_t(r * c * (k == bf16 ? 2 : 1)));
    if (k == bf16) {
      for (long i = 0; i < r * c; ++i) {
        const std::uint16_t bits = to_bf16(g.normal() * size);
        std::memcpy(&data[std::size_t(2 * i)], &bits, 2);
      }
      return;
    }
    for (auto& code : data) {
      code = std::uint8_t(g.next());
      if ((code & 0x7f) == 0x7f) code ^= 1;
      if ((code >> 3 & 15) > 9) code = std::uint8_t(code & ~0x40);
    }
    scales.resize(std::size_t(k == channel ? r : (r + 127) / 128 * ((c + 127) / 128)));
    for (float& s : scales) s = float(size * (0.25 + g.uniform()));
  }
  double at(long r, long c, bool with_channel_scale = true) const {
    if (kind == bf16) {
      std::uint16_t bits;
      std::memcpy(&bits, &data[std::size_t(2 * (r * columns + c))], 2);
      return of_bf16(bits);
    }
    const double code = of_e4m3(data[std::size_t(r * columns + c)]);
    if (kind == block) return code * double(scales[std::size_t(r / 128 * ((columns + 127) / 128) + c / 128)]);
    return with_channel_scale ? code * double(scales[std::size_t(r)]) : code;
  }
};

/// [latent normalised and weighted | rotated] of raw kv.
inline std::vector<double> cache_row_of(const float* kv, const std::uint16_t* weight, const float* angles, double eps) {
  std::vector<double> y(576);
  double squares = 0;
  for (int i = 0; i < 512; ++i) squares += double(kv[i]) * double(kv[i]);
  const double scale = 1 / std::sqrt(squares / 512 + eps);
  for (int i = 0; i < 512; ++i) y[std::size_t(i)] = double(kv[i]) * scale * of_bf16(weight[i]);
  for (int i = 0; i < 32; ++i) {
    const double a = double(kv[512 + 2 * i]), b = double(kv[513 + 2 * i]), c = double(angles[i]), s = double(angles[32 + i]);
    y[std::size_t(512 + 2 * i)] = a * c - b * s;
    y[std::size_t(513 + 2 * i)] = b * c + a * s;
  }
  return y;
}
inline std::vector<double> index_key_of(const float* ik, const float* weight, const float* bias, const float* angles) {
  std::vector<double> y(128);
  double mean = 0, squares = 0;
  for (int i = 0; i < 128; ++i) mean += double(ik[i]) / 128;
  for (int i = 0; i < 128; ++i) squares += (double(ik[i]) - mean) * (double(ik[i]) - mean) / 128;
  for (int i = 0; i < 128; ++i)
    y[std::size_t(i)] = (double(ik[i]) - mean) / std::sqrt(squares + 1e-6) * double(weight[i]) + double(bias[i]);
  for (int i = 0; i < 32; ++i) {
    const double a = y[std::size_t(2 * i)], b = y[std::size_t(2 * i + 1)], c = double(angles[i]), s = double(angles[32 + i]);
    y[std::size_t(2 * i)] = a * c - b * s;
    y[std::size_t(2 * i + 1)] = b * c + a * s;
  }
  return y;
}

}  // namespace monolayer::test
