// What a rendezvous and a matrix step cost, checks on. The bounds leave room for a busy machine; the figures
// printed are what the budget (5 us a 64-lane rendezvous, 12 us a matrix step) is held against.
#include <algorithm>
#include <chrono>
#include <cstdio>

#include "sim/run.hpp"

using namespace sim_test;

namespace {

constexpr int turns = 300;
constexpr double most_meet = 15, most_matrix = 36;

/// The least of up to five runs; one that is below the bound is enough.
template <class T, class F>
double microseconds(int blocks, double bound, F body) {
  double best = 1e9;
  for (u64 seed = 1; seed <= 5 && best >= bound; ++seed) {
    const auto start = std::chrono::steady_clock::now();
    REQUIRE(run_once<T>(blocks, [=] { body(); }, {.seed = seed}).ok);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    best = std::min(best, took.count() * 1e6 / (turns * blocks * (T::consumer_waves + 1)));
  }
  return best;
}

}  // namespace

TEMPLATE_TEST_CASE("Speed", "", sim::gfx950, sim::sm90) {
  using T = TestType;
  for (int blocks : {1, 16}) {
    const double meet = microseconds<T>(blocks, most_meet, [] {
      u32 v = static_cast<u32>(T::lane());
      for (int i = 0; i < turns; ++i) v = T::shuffle_xor(v, 1 + i % 15);
    });
    const auto matrix = [](int columns) {
      return [=] {
        monolayer::fragment_a<T::lane_rows> a;
        monolayer::fragment_b b{};
        monolayer::fragment_d d{};
        const u32 at = 16 * static_cast<u32>(thread<T>());
        for (auto& row : a.v) std::fill(std::begin(row), std::end(row), 0x3f803f81u);
        T::lds_store16(at, {{0x3f803f80u, 0x40004000u, 0x3f003f00u, 0x3f813f82u}});
        for (int i = 0; i < turns; ++i) {
          const monolayer::u32x4 v = T::lds_load16(at);
          for (int t = 0; t < 4; ++t) b.v[t] = T::b_column(T::lane()) < columns ? v.v[t] : 0;
          T::mma(a, b, d);
        }
      };
    };
    const double all = microseconds<T>(blocks, most_matrix, matrix(T::columns));
    const double four = microseconds<T>(blocks, most_matrix, matrix(4));
    std::printf(
        "%-12s %2d blocks: %.2f us a rendezvous, %.2f us an LDS load and matrix step of %d columns, %.2f of "
        "4\n",
        T::name, blocks, meet, all, T::columns, four);
    CHECK(meet < most_meet);
    CHECK(all < most_matrix);
  }
}
