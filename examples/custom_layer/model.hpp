// A model with random weights, and what its layers give in double precision, by the formulas alone. Nothing
// here knows of tiles, slots or ranks, but for two things: rounding to bf16 where the layer stores bf16, and
// one rounded partial sum a rank, because that is what travels between GPUs.
#pragma once

#include <cmath>
#include <random>
#include <vector>

#include "custom_layer/host.hpp"

namespace custom_layer {

inline double value(u16 bits) { return to_float(bf16{bits}); }
inline u16 bf16_bits(double v) { return from_float<bf16>(float(v)).bits; }
inline double rounded(double v) { return value(bf16_bits(v)); }
inline double silu_of(double v) { return v / (1 + std::exp(-v)); }

/// A matrix [rows][columns] as a checkpoint stores it, and its values.
struct matrix {
  long rows = 0, columns = 0;
  std::vector<u8> codes;
  std::vector<float> scales;  // fp8_block: [rows / 128][columns / 128]
  std::vector<double> values;

  checkpoint_matrix view() const {
    return {.data = codes.data(),
            .scales = scales.empty() ? nullptr : scales.data(),
            .rows = rows,
            .columns = columns};
  }
  /// sum over k of values[row][k] x[k], k from `first` on.
  double product(long row, const std::vector<double>& x, long first, long count) const {
    double sum = 0;
    for (long k = 0; k < count; ++k)
      sum += values[std::size_t(row * columns + first + k)] * x[std::size_t(first + k)];
    return sum;
  }
};

template <class C>
struct model {
  using P = program<C>;
  static constexpr int channels = C::channels * C::ranks, width = C::width * C::ranks;
  struct layer {
    u64 kind;
    std::vector<u16> norm, taps;
    matrix in, out, gate, up, down;
    tensors view() const {
      return {norm.data(), in.view(), taps.data(), out.view(), gate.view(), up.view(), down.view()};
    }
  };
  std::vector<layer> layers;
  std::mt19937_64 random;

  model(const std::vector<u64>& kinds, u64 seed) : random(seed) {
    for (u64 kind : kinds) {
      layer l{.kind = kind,
              .norm = vector(C::hidden, 0.2, 1),
              .taps = {},
              .in = {},
              .out = {},
              .gate = {},
              .up = {},
              .down = {}};
      if (kind == P::conv) {
        l.taps = vector(C::taps * channels, 0.5, 0);
        l.in = make<typename C::conv_weights>(channels, C::hidden);
        l.out = make<typename C::conv_weights>(C::hidden, channels);
      } else {
        l.gate = make<typename C::mlp_weights>(width, C::hidden);
        l.up = make<typename C::mlp_weights>(width, C::hidden);
        l.down = make<typename C::mlp_weights>(C::hidden, width);
      }
      layers.push_back(std::move(l));
    }
  }
  std::vector<u16> vector(int n, double size, double mean) {
    std::vector<u16> v(std::size_t(n), 0);
    for (u16& bits : v) bits = bf16_bits(mean + size * normal());
    return v;
  }

 private:
  double normal() { return std::normal_distribution<double>()(random); }

  template <class Format>
  matrix make(long rows, long columns) {
    static_assert(std::is_same_v<Format, bf16_weights> || std::is_same_v<Format, fp8_block<128, 128>>);
    matrix m{.rows = rows,
             .columns = columns,
             .codes = {},
             .scales = {},
             .values = std::vector<double>(std::size_t(rows * columns))};
    const double size = 1 / std::sqrt(double(columns));
    if constexpr (std::is_same_v<Format, bf16_weights>) {
      for (double& v : m.values) {
        const u16 bits = bf16_bits(size * normal());
        v = value(bits);
        m.codes.insert(m.codes.end(), {u8(bits & 0xff), u8(bits >> 8)});
      }
    } else {
      const long grid = (columns + 127) / 128;
      for (long i = 0; i < (rows + 127) / 128 * grid; ++i)
        m.scales.push_back(float(size / 64 * (1 + 0.25 * double(i % 3))));
      for (long r = 0; r < rows; ++r)
        for (long c = 0; c < columns; ++c) {
          const float scale = m.scales[std::size_t(r / 128 * grid + c / 128)];
          const e4m3fn code = from_float<e4m3fn>(float(size * normal() / scale));
          m.values[std::size_t(r * columns + c)] = double(to_float(code)) * scale;
          m.codes.push_back(code.bits);
        }
    }
    return m;
  }
};

/// One request: its tokens go through the layers one after another.
template <class C>
struct reference {
  using P = program<C>;
  const model<C>& of;
  std::vector<std::vector<std::vector<double>>> past{of.layers.size()};  // by layer: x of each token
  long limited = 0;  // gate and up values that the limit changed

  /// bf16 in, bf16 out.
  std::vector<double> token(std::vector<double> h) {
    for (std::size_t i = 0; i < of.layers.size(); ++i) {
      const typename model<C>::layer& l = of.layers[i];
      std::vector<double> n = h, mixed;
      double squares = 0;
      for (double v : h) squares += v * v;
      for (std::size_t c = 0; c < h.size(); ++c)
        n[c] = rounded(h[c] / std::sqrt(squares / C::hidden + double(C::eps)) * value(l.norm[c]));
      if (l.kind == P::conv)
        mixed = convolve(l, n, past[i]);
      else
        mixed = activate(l, n);
      const matrix& back = l.kind == P::conv ? l.out : l.down;
      for (std::size_t c = 0; c < h.size(); ++c) {
        double sum = 0;
        const long share = back.columns / C::ranks;
        for (int r = 0; r < C::ranks; ++r) sum += rounded(back.product(long(c), mixed, r * share, share));
        h[c] = rounded(h[c] + sum);
      }
    }
    return h;
  }

 private:
  static std::vector<double> convolve(const typename model<C>::layer& l, const std::vector<double>& n,
                                      std::vector<std::vector<double>>& past) {
    std::vector<double> x(model<C>::channels), y(x.size());
    for (std::size_t c = 0; c < x.size(); ++c) x[c] = rounded(l.in.product(long(c), n, 0, C::hidden));
    past.push_back(x);
    for (std::size_t c = 0; c < x.size(); ++c) {
      double sum = 0;
      for (int back = 0; back < C::taps && back < int(past.size()); ++back)
        sum += value(l.taps[std::size_t(C::taps - 1 - back) * x.size() + c]) *
               past[past.size() - 1 - std::size_t(back)][c];
      y[c] = rounded(silu_of(sum));
    }
    return y;
  }
  std::vector<double> activate(const typename model<C>::layer& l, const std::vector<double>& n) {
    std::vector<double> act(model<C>::width);
    for (std::size_t f = 0; f < act.size(); ++f) {
      const double g = l.gate.product(long(f), n, 0, C::hidden), u = l.up.product(long(f), n, 0, C::hidden);
      limited += (g > C::limit) + (std::abs(u) > C::limit);
      act[f] = rounded(silu_of(std::min(g, double(C::limit))) *
                       std::clamp(u, -double(C::limit), double(C::limit)));
    }
    return act;
  }
};

}  // namespace custom_layer
