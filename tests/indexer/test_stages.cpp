// The stages `scores` and `top_k` of the indexer, in a program of their own, against float64.
#include "indexer/indexer_rig.hpp"

using namespace indexer_test;
using T = sim::TARGET;

/// What float64 says, with what the magnitudes of its terms allow an f32 sum to differ.
template <class P>
void reference_scores(const indexer_model<P>& model, const test_row& row, std::vector<double>& score,
                      std::vector<double>& tolerance) {
  std::vector<u16> q;
  std::vector<float> w;
  make_query<P>(row, q, w);
  score.clear(), tolerance.clear();
  for (int t = 0; t <= row.position; ++t) {
    double sum = 0, size = 0;
    for (int h = 0; h < P::heads; ++h) {
      double dot = 0, magnitude = 0;
      for (int d = 0; d < 128; ++d) {
        const double term = reference::bf16_decode(q[h * 128 + d]) * model.meaning[row.request][t][d];
        dot += term, magnitude += std::abs(term);
      }
      const double weight = w[h] / std::sqrt(double(P::heads)) / std::sqrt(128.0);
      sum += weight * std::max(dot, 0.0), size += std::abs(weight) * magnitude;
    }
    score.push_back(sum), tolerance.push_back(size * 2e-6);
  }
}

template <class P>
void check_run(const indexer_model<P>& model, const run_setup& how, const run_result& got) {
  INFO(got.report.text);
  REQUIRE(got.report.ok);
  CHECK(got.bad_entries == 0);
  for (std::size_t i = 0; i < how.rows.size(); ++i) {
    const test_row& row = how.rows[i];
    if (row.position < 0) continue;
    CAPTURE(i, row.request, row.position);
    std::vector<double> score, tolerance;
    reference_scores(model, row, score, tolerance);
    std::size_t wrong = 0;
    for (std::size_t t = 0; t < score.size(); ++t)
      wrong += !(std::abs(double(got.scores[i][t]) - score[t]) <= tolerance[t]);
    CHECK(wrong == 0);
    // The picks are exact for the scores as they came out, and right for the true ones but for rounding.
    std::vector<u32> want;
    const std::vector<u32> best = reference_top_k(got.scores[i], P::top_k);
    for (u32 t : best) want.push_back(u32(model.slot(row.request, int(t))));
    CHECK(got.picks[i] == want);
    if (score.size() > std::size_t(P::top_k)) {
      std::vector<double> sorted = score;
      std::nth_element(sorted.begin(), sorted.begin() + P::top_k - 1, sorted.end(), std::greater<>());
      const double least = sorted[P::top_k - 1];
      std::size_t strangers = 0;
      for (u32 t : best) strangers += score[t] < least - 2 * tolerance[t];
      CHECK(strangers == 0);
    }
    if (how.with_copy) {
      std::vector<int> copy(want.begin(), want.end());
      copy.resize(got.copy[i].size(), -1);
      CHECK(got.copy[i] == copy);
    } else {
      CHECK(std::all_of(got.copy[i].begin(), got.copy[i].end(), [](int x) { return x == -7; }));
    }
  }
}

template <class Format, int Heads = 8>
using small = indexer_program<Format, Heads, 64, 4, 1024>;

template <class P>
void check_format(u32 block_size, u64 padding) {
  CAPTURE(P::format::name, block_size, padding);
  indexer_model<P> model(block_size, padding, 3, block_size);
  // Rows of one request in one launch see each other's keys; a dead row between; lengths around the wave's batches.
  for (const run_setup& how :
       {run_setup{.rows = {{0, 700}, {1, 0}, {0, 701}, {2, 63}}},
        run_setup{.rows = {{1, 64}, {0, -1}, {1, 65}, {1, 66}}, .blocks = 8, .seed = 2, .with_starts = true},
        run_setup{.rows = {{0, 129}, {1, 1023}}, .blocks = 17, .seed = 3, .with_requests = false, .with_copy = false}})
    check_run(model, how, run_indexer<T>(model, how));
}

TEST_CASE("Scores and picks in each format of the cache") {
  for (u32 bs : {1u, 16u, 64u}) check_format<small<bf16_keys>>(bs, 0);
  check_format<small<bf16_keys>>(7, 16);
  for (u32 bs : {1u, 16u, 64u}) check_format<small<fp8_keys<plain>>>(bs, 0);
  check_format<small<fp8_keys<plain>>>(1, 12);
  check_format<small<fp8_keys<plain>>>(5, 0);
  check_format<small<fp8_keys<shuffled_16x16>>>(16, 0);
  check_format<small<fp8_keys<shuffled_16x16>>>(64, 0);
  check_format<small<fp8_keys<shuffled_16x16>>>(48, 1024);
}

TEST_CASE("Other numbers of heads") {
  check_format<small<bf16_keys, 32>>(64, 0);
  check_format<small<fp8_keys<shuffled_16x16>, 32>>(64, 256);
  check_format<small<fp8_keys<plain>, 16>>(16, 0);
  check_format<small<fp8_keys<plain>, 12>>(16, 0);
}

TEST_CASE("GLM-5's sizes") {
  using P = indexer_program<fp8_keys<shuffled_16x16>, 32, 2048, 32, 8192>;
  indexer_model<P> model(64, 0, 2, 1);
  const run_setup how{.rows = {{0, 8190}, {1, 2047}, {0, 8191}, {1, 2048}}, .blocks = 5};
  check_run(model, how, run_indexer<T>(model, how));
}

template <class P>
void check_bits(u32 block_size) {
  indexer_model<P> model(block_size, 0, 2, 9);
  const std::vector<test_row> rows{{0, 500}, {1, 333}, {0, 501}, {0, 502}};
  const run_result all = run_indexer<T>(model, {.rows = rows, .blocks = 3});
  REQUIRE(all.report.ok);
  for (int blocks : {8, 17})
    for (u64 seed : {4, 5}) {
      const run_result again = run_indexer<T>(model, {.rows = rows, .blocks = blocks, .seed = seed});
      REQUIRE(again.report.ok);
      CHECK(again.scores == all.scores);
      CHECK(again.picks == all.picks);
    }
  for (std::size_t i = 0; i < rows.size(); ++i) {  // alone, with the others' keys in the cache; in another place
    std::vector<test_row> alone(4, {0, -1});
    alone[3 - i] = rows[i];
    const run_result one = run_indexer<T>(model, {.rows = alone, .blocks = 3, .seed = i + 1});
    REQUIRE(one.report.ok);
    CHECK(one.scores[3 - i] == all.scores[i]);
    CHECK(one.picks[3 - i] == all.picks[i]);
  }
}
TEST_CASE("A row's bits do not depend on the grid, the order of waves, or the other rows") {
  check_bits<small<bf16_keys>>(16);
  check_bits<small<fp8_keys<plain>>>(1);
  check_bits<small<fp8_keys<shuffled_16x16>>>(64);
}
TEST_CASE("A row's bits do not depend on the stripes") {
  using P = small<fp8_keys<shuffled_16x16>>;
  using Q = indexer_program<fp8_keys<shuffled_16x16>, 8, 64, 1, 1024>;
  indexer_model<P> model(16, 0, 2, 9);
  indexer_model<Q> same(16, 0, 2, 9);
  const run_setup how{.rows = {{0, 1000}, {1, 333}}};
  const run_result a = run_indexer<T>(model, how), b = run_indexer<T>(same, how);
  REQUIRE((a.report.ok && b.report.ok));
  CHECK(a.scores == b.scores);
}

TEST_CASE("Pages that do not exist are left out and counted") {
  using P = small<fp8_keys<shuffled_16x16>>;
  indexer_model<P> model(16, 0, 2, 3);
  const run_setup how{.rows = {{0, 700}, {1, 40}}, .broken_pages = {{0, 35}, {1, 16}}};
  const run_result got = run_indexer<T>(model, how);
  INFO(got.report.text);
  REQUIRE(got.report.ok);
  CHECK(got.bad_entries == 32);
  for (int row : {0, 1})
    for (int t = 0; t <= how.rows[row].position; ++t)
      if (const bool gone = t / 16 == (row == 0 ? 2 : 1); std::isnan(got.scores[row][t]) != gone)
        FAIL("token " << t << " of row " << row);
  CHECK(got.picks[0].size() == 64);
  CHECK(got.picks[1].size() == 41 - 16);
  CHECK(got.copy[1][41 - 16] == -1);
}

TEST_CASE("A division by one multiplication") {
  std::mt19937 random(1);
  for (u32 by : {1u, 2u, 3u, 5u, 7u, 16u, 48u, 64u, 100u, 4095u, 65537u, 0x7fffffffu, 0xffffffffu}) {
    const divider d(by);
    for (int i = 0; i < 20000; ++i) {
      const u32 n = i < 100   ? u32(i)
                    : i < 200 ? u32(-i + 99)
                    : i % 2   ? random()
                              : u32(u64(random() % 70000) * by - i % 3);
      if (d.quotient(n) != n / by) FAIL(n << " / " << by);
    }
  }
}
