// The matrix step against plain products, and the weights' way to bf16.
#include <bit>
#include <cmath>
#include <random>

#include "sim/run.hpp"

using namespace sim_test;
using monolayer::fragment_a;
using monolayer::fragment_b;
using monolayer::fragment_d;

static_assert(monolayer::target<sim::gfx950>);
static_assert(monolayer::target<sim::sm90>);

namespace {

float bf16(u32 bits) { return std::bit_cast<float>(bits << 16); }

struct problem {
  u32 a[16][32], b[32][16];  // bf16 bits
  float c[16][16], d[16][16];
};

template <class T>
void expected(problem& p) {
  for (int i = 0; i < 16; ++i)
    for (int j = 0; j < T::columns; ++j) {
      double sum = 0;
      if (T::wave_size == 64) {
        for (int k = 0; k < 32; ++k)
          sum += static_cast<double>(bf16(p.a[i][k])) * static_cast<double>(bf16(p.b[k][j]));
        p.d[i][j] = static_cast<float>(sum + static_cast<double>(p.c[i][j]));
        continue;
      }
      float c = p.c[i][j];
      for (int step = 0; step < 2; ++step, sum = 0) {
        for (int q = 0; q < 4; ++q)
          for (int e = 0; e < 4; ++e) {
            const int k = 8 * q + 4 * step + e;
            sum += static_cast<double>(bf16(p.a[i][k])) * static_cast<double>(bf16(p.b[k][j]));
          }
        c = static_cast<float>(sum + static_cast<double>(c));
      }
      p.d[i][j] = c;
    }
}

template <class T>
void multiply(const problem& p, float (&d)[16][16]) {
  if (T::wave() != 0) return;
  const int l = T::lane(), k = 8 * T::k_group(l);
  fragment_a<T::lane_rows> a;
  fragment_b b;
  fragment_d sums;
  for (int t = 0; t < 4; ++t) {
    for (int h = 0; h < T::lane_rows; ++h)
      a.v[h][t] = p.a[T::a_row(l, h)][k + 2 * t] | p.a[T::a_row(l, h)][k + 2 * t + 1] << 16;
    b.v[t] = p.b[k + 2 * t][T::b_column(l)] | p.b[k + 2 * t + 1][T::b_column(l)] << 16;
  }
  for (int r = 0; r < 4; ++r) sums.v[r] = p.c[T::d_row(l, r)][T::d_column(l, r)];
  T::mma(a, b, sums);
  for (int r = 0; r < 4; ++r) d[T::d_row(l, r)][T::d_column(l, r)] = sums.v[r];
}

}  // namespace

TEMPLATE_TEST_CASE("The matrix step multiplies as its machine does", "", sim::gfx950, sim::sm90) {
  using T = TestType;
  std::mt19937 engine(5);
  const auto random = [&] { return static_cast<u32>(engine()); };
  for (int round = 0; round < 40; ++round) {
    static problem p;
    for (auto& row : p.a)
      for (u32& v : row)
        v = random() & 0xffff, v = (v & 0x7f80) == 0x7f80 ? 0 : (v & 0x807f) | (100 + random() % 55) << 7;
    const int used = round % 2 ? T::columns : 1 + round % T::columns;
    for (auto& row : p.b)
      for (int j = 0; j < 16; ++j)
        row[j] = j < used && random() % 4 ? (random() & 0x807f) | (100 + random() % 55) << 7 : 0;
    for (auto& row : p.c)
      for (float& v : row) v = static_cast<float>(static_cast<int>(random())) * 1e-6f;
    if (round == 7) p.a[3][9] = 0x7f80;  // infinity
    expected<T>(p);
    float d[16][16];
    REQUIRE(run_once<T>(1, [&] { multiply<T>(p, d); }, {.seed = static_cast<u64>(round)}).ok);
    int wrong = 0;
    for (int i = 0; i < 16; ++i)
      for (int j = 0; j < T::columns; ++j)
        wrong += std::isnan(d[i][j]) ? !std::isnan(p.d[i][j])
                                     : std::bit_cast<u32>(d[i][j]) != std::bit_cast<u32>(p.d[i][j]);
    CHECK(wrong == 0);
  }
}

TEMPLATE_TEST_CASE("Quantised weights widen exactly", "", sim::gfx950, sim::sm90) {
  using T = TestType;
  constexpr float e2m1[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  int wrong = 0;
  // Where MX scales multiply the sums, they are not in the weights; what is left is a constant power of two.
  const int e2m1_down = T::mxfp4_scales_sums ? T::mxfp4_shift + T::activation_shift : 127;
  for (u32 scale = 2; scale <= static_cast<u32>(T::mxfp4_largest_scale); ++scale)
    for (u32 half = 0; half < 2; ++half) {
      const fragment_b b = T::widen_e2m1x8(T::arrange_e2m1x8(half ? 0xfedcba98u : 0x76543210u), scale);
      for (int i = 0; i < 8; ++i) {
        const int power = (T::mxfp4_scales_sums ? 0 : static_cast<int>(scale)) - e2m1_down;
        const double want = std::ldexp(e2m1[i], power) * (half ? -1 : 1);
        const double seen = bf16(b.v[i / 2] >> (i % 2 * 16) & 0xffff);
        wrong += seen != want || std::signbit(seen) != std::signbit(want);
      }
    }
  CHECK(wrong == 0);
  for (u32 code = 0; code < 256; ++code) {
    if ((code & 0x7f) == 0x7f) continue;
    const u32 e = code >> 3 & 15, m = code & 7;
    const double want = std::ldexp(e ? 8.0 + m : m,
                                   (e ? static_cast<int>(e) : 1) - 10 - T::e4m3_shift - T::activation_shift) *
                        (code & 128 ? -1 : 1);
    const u64 codes = T::arrange_e4m3x8(u64{code} << 24);
    const fragment_b b = T::widen_e4m3x8({{static_cast<u32>(codes), static_cast<u32>(codes >> 32)}});
    wrong += bf16(b.v[1] >> 16) != want || b.v[0] != 0 || b.v[2] != 0;
  }
  CHECK(wrong == 0);
}
