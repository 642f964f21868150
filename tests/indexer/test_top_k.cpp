// The exact top-k of a block against a sort.
#include "indexer/top_k_rig.hpp"

using namespace indexer_test;
using T = sim::TARGET;
constexpr scores_kind kinds[] = {scores_kind::normal,     scores_kind::uniform,      scores_kind::clustered,
                                 scores_kind::recent,     scores_kind::one_exponent, scores_kind::all_equal,
                                 scores_kind::few_values, scores_kind::zeros,        scores_kind::special};

template <int K, int Capacity = monolayer::top_k_capacity(K)>
void check(const std::vector<float>& scores, u64 seed) {
  const top_k_outcome got = run_top_k<T, K, Capacity>(scores, seed);
  INFO(got.report.text);
  REQUIRE(got.report.ok);
  const bool right = got.picks == reference_top_k(scores, K);
  CHECK(right);
}

TEST_CASE("The picks of 2048 are a sort's") {
  for (int n : {0, 1, 3, 5, 2047, 2048, 2049, 4096, 4097, 8192, 8193, 9000, 12000}) {
    CAPTURE(n);
    for (scores_kind kind : {scores_kind::normal, scores_kind::special}) check<2048>(make_scores(kind, n, 7), n + 1);
  }
}

TEST_CASE("Any distribution of scores, any order of the waves") {
  for (scores_kind kind : kinds)
    for (int n : {120, 129, 700, 3001, 40000})
      for (u64 seed = 1; seed <= (n < 3000 ? 3 : 1); ++seed) {
        CAPTURE(int(kind), n, seed);
        check<64, 128>(make_scores(kind, n, seed), seed);
      }
}

TEST_CASE("Where no more fit than are wanted") {
  for (scores_kind kind : kinds)
    for (int n : {128, 129, 5001}) {
      CAPTURE(int(kind), n);
      check<128, 128>(make_scores(kind, n, 2), 1);
      check<100, 128>(make_scores(kind, n, 3), 2);
      check<96>(make_scores(kind, n, 4), 3);
    }
}

TEST_CASE("Long contexts") {
  check<2048>(make_scores(scores_kind::normal, 70001, 3), 1);
  check<2048>(make_scores(scores_kind::recent, 70001, 3), 1);
  check<2048>(make_scores(scores_kind::all_equal, 70001, 3), 1);
  check<2048>(make_scores(scores_kind::one_exponent, 200000, 3), 1);
}

TEST_CASE("NaN everywhere, and fewer numbers than picks") {
  std::vector<float> v(30000, std::numeric_limits<float>::quiet_NaN());
  check<64, 128>(v, 1);
  v[3] = -std::numeric_limits<float>::infinity(), v[29999] = 1, v[17] = -0.0f;
  check<64, 128>(v, 2);
  for (int i = 0; i < 70; ++i) v[std::size_t(400 * i + 5)] = float(i % 3);
  check<64, 128>(v, 3);
}

TEST_CASE("Picks at both ends, in the bitmap's windows, and at the last index that fits") {
  std::vector<float> v(200000, 0.0f);
  for (u32 i : {0u, 65535u, 65536u, 131071u, 131072u, 199999u}) v[i] = 1;
  check<64, 128>(v, 1);
  check<64, 128>(make_scores(scores_kind::few_values, monolayer::top_k<T, 64, 128>::max_n - 1, 1), 1);
}

// Where a thread clears the words of the bitmap that it has read (wave64), no barrier stands between two windows' worth
// of indices for a reason; so only wave32 gets a second window.
template <int K, int Capacity>
void check_barriers(scores_kind kind) {
  const std::vector<float> scores = make_scores(kind, T::wave_size == 64 ? 60000 : 70000, 1);
  const int syncs = run_top_k<T, K, Capacity>(scores).syncs;
  for (int skip = 0; skip < syncs; ++skip) {
    bool found = false;
    for (u64 seed = 1; seed <= 10 && !found; ++seed) {
      const top_k_outcome got = run_top_k<T, K, Capacity>(scores, seed, skip);
      found = !got.report.ok || got.picks != reference_top_k(scores, K);
    }
    CAPTURE(int(kind), skip, syncs);
    CHECK(found);
  }
}
TEST_CASE("No barrier can be left out") {
  check_barriers<64, 128>(scores_kind::normal);  // too many survive the guess
  check_barriers<512, 2048>(scores_kind::normal);
  check_barriers<512, 2048>(scores_kind::all_equal);
}
