// Whole layers on one target, TARGET: a row has the same bits in the output, the caches and its picks
// whatever runs beside it, however the launch is cut, on any grid; nothing else is written, and nothing is
// read that a row may not read.
#include "glm5/span_rig.hpp"

using namespace monolayer;
using namespace monolayer::test;

using T = sim::TARGET;

namespace {

template <int TP>
using rig = span_rig<T, nano_layer<TP>>;

/// All kinds: with a dense MLP, with experts, sharing the layer's picks before, and with new picks after
/// that.
template <int TP>
const rig<TP>& four_kinds() {
  static const rig<TP> r({dense_layer, moe_layer, sharing_layer, moe_layer});
  return r;
}
template <int TP>
const rig<TP>& pair_of_layers() {
  static const rig<TP> r({moe_layer, sharing_layer});
  return r;
}

/// What rows give in one launch over all layers: all of them, or in the pair at TP4, which takes its time,
/// half of them.
template <class R>
const span_outcome& expected_of(const R& r) {
  static std::map<const R*, span_outcome> known;
  if (!known.contains(&r)) {
    known[&r] = r.run(R::ranks == 4 && r.plans.size() == 2 ? with_ids({2, 3, 4, 6}) : span_setup{});
    MUST_RUN(known[&r]);
    REQUIRE(r.difference(known[&r], known[&r]) == "");
  }
  return known[&r];
}

template <class R>
void check(const R& r, const span_setup& s) {
  const span_outcome& expected = expected_of(r);
  const span_outcome o = r.run(s, &expected);
  MUST_RUN(o);
  CHECK(r.difference(o, expected) == "");
}

template <class R>
void seeds(const R& r, u64 first, u64 count) {
  for (u64 seed = first; seed < first + count; ++seed) {
    INFO("seed " << seed);
    span_setup s = with_ids(seed % 2 ? std::vector<int>{2, 3} : std::vector<int>{6});
    s.seed = seed, s.blocks = 2;
    check(r, s);
  }
}

span_setup grid(std::vector<int> ids, int blocks, int groups = 1, u32 ring_limit = 0) {
  span_setup s = with_ids(std::move(ids));
  s.blocks = blocks, s.groups = groups, s.ring_limit = ring_limit;
  return s;
}
span_setup cut(std::vector<int> ids, std::vector<launch_of> launches) {
  span_setup s = with_ids(std::move(ids));
  s.launches = std::move(launches);
  return s;
}
span_setup paged(std::vector<int> ids, u32 block_size, u64 row_pad = 0, u64 page_pad = 0) {
  span_setup s = with_ids(std::move(ids));
  s.paging.block_size = block_size, s.paging.row_pad = row_pad, s.paging.page_pad = page_pad;
  return s;
}

template <class R>
void epochs(const R& r, u64 from, bool readers) {
  const span_outcome& expected = expected_of(r);
  span_setup s = with_ids({3, 4});
  s.epoch = from, s.blocks = 2;
  s.expect_readers = readers;  // a launch that passes 2^24 also writes words that nobody reads
  typename R::live l(r, s, &expected);
  u64 epoch = from;
  for (const std::vector<int>& ids : {std::vector<int>{3, 4}, {-1, 6}}) {
    l.set_rows(ids);
    const span_outcome o = l.collect(l.run());
    INFO("from epoch " << epoch);
    MUST_RUN(o);
    CHECK(r.difference(o, expected) == "");
    epoch = epoch_after(epoch, u32(r.plans.size()));
    for (const device_state& state : o.states) CHECK(state.epoch == epoch);
    CHECK(u32(epoch) != 0);
  }
}

/// Adds the rows of another launch of the same step.
void append(span_outcome& step, const span_outcome& o) {
  step.ids.insert(step.ids.end(), o.ids.begin(), o.ids.end());
  step.picks.insert(step.picks.end(), o.picks.begin(), o.picks.end());
  step.out.resize(o.out.size()), step.written.resize(o.written.size());
  for (std::size_t rank = 0; rank < o.out.size(); ++rank)
    step.out[rank].insert(step.out[rank].end(), o.out[rank].begin(),
                          o.out[rank].begin() + long(o.ids.size()) * nano_layer<1>::hidden);
  for (std::size_t layer = 0; layer < o.written.size(); ++layer)
    step.written[layer].insert(step.written[layer].end(), o.written[layer].begin(), o.written[layer].end());
}
/// A step of more rows than a launch takes: launches one after the other over the same caches, a request's older tokens
/// first. Each row gets what it gets beside any others, whatever launch it is in.
template <int TP>
void step_in_two_launches(const std::vector<int>& all, const std::vector<std::size_t>& first_halves) {
  const auto& r = pair_of_layers<TP>();
  span_outcome expected;
  for (std::size_t first : first_halves) {
    INFO(first << " and " << all.size() - first << " rows");
    const std::vector<int> halves[] = {{all.begin(), all.begin() + long(first)}, {all.begin() + long(first), all.end()}};
    typename rig<TP>::live l(r, with_ids({}));
    l.fill_caches(all);
    span_outcome step;
    for (const auto& ids : halves) {
      l.place_rows(ids);
      const span_outcome o = l.collect(l.run());
      MUST_RUN(o);
      if (!expected.ids.empty()) CHECK(r.difference(o, expected) == "");
      CHECK(o.stray == "");
      append(step, o);
    }
    if (expected.ids.empty()) expected = std::move(step);
  }
}

}  // namespace

TEST_CASE("9 to 16 rows are two launches", "[rows]") {
  step_in_two_launches<1>({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, {8, 5});
  step_in_two_launches<4>({0, 2, 3, 4, 6, 7, 8, 9, 11}, {8, 3});
}
TEST_CASE("a row's bits do not depend on the others", "[rows]") {
  const auto& r = four_kinds<1>();
  check(r, with_ids({-1, 6, -1, 2}));
  check(r, with_ids({3, 2, 0}));  // a row's newer tokens before its older ones
  check(pair_of_layers<1>(), with_ids({0}));
  check(pair_of_layers<1>(), with_ids({-1, -1, -1, 1, -1, -1, -1, 5}));
  check(pair_of_layers<1>(), with_ids({7, 1, 6, 2, 5, 3, 4}));
  check(pair_of_layers<4>(), with_ids({4, 2, 6}));
  check(pair_of_layers<4>(), with_ids({-1, 3, -1}));
}
TEST_CASE("a row's bits do not depend on the others, in more mixes", "[.long][long]") {
  for (const auto& ids : std::vector<std::vector<int>>{{0},
                                                       {1},
                                                       {2},
                                                       {3},
                                                       {5},
                                                       {6},
                                                       {7},
                                                       {7, 6},
                                                       {2, 0, 4},
                                                       {1, 3, 5, 7},
                                                       {6, 5, 4, 3, 2},
                                                       {0, 2, 4, 6, 1, 3},
                                                       {7, 1, 6, 2, 5, 3, 4},
                                                       {-1, 4},
                                                       {4, -1, -1, 2, -1},
                                                       {-1, -1, -1, 1, -1, -1, -1, 0},
                                                       {0, 1, 2, -1, 4, 5, 6, 7}}) {
    check(four_kinds<1>(), with_ids(ids));
    check(four_kinds<4>(), with_ids(ids));
  }
}

TEST_CASE("a launch of dead rows only writes nothing and counts its epochs", "[rows]") {
  const auto& r = pair_of_layers<1>();
  typename rig<1>::live l(r, with_ids({-1, -1, -1}), &expected_of(r));
  span_outcome o = l.collect(l.run());
  MUST_RUN(o);
  CHECK(r.difference(o, expected_of(r)) == "");
  CHECK(o.states[0].epoch == 2);
  l.set_rows({-1, 3});  // and the next launch finds everything in order
  o = l.collect(l.run());
  MUST_RUN(o);
  CHECK(r.difference(o, expected_of(r)) == "");
  CHECK(o.states[0].epoch == 4);
}

TEST_CASE("grid sizes, groups and ring sizes", "[bits]") {
  check(four_kinds<1>(), grid({1, -1, 6}, 5, 1, 2));
  check(pair_of_layers<1>(), grid({1, -1, 6}, 17));
  check(pair_of_layers<1>(), grid({1, -1, 6}, 8, 2, 3));
  check(pair_of_layers<4>(), grid({4}, 8, 2, 2));
}
TEST_CASE("more grid sizes, groups and ring sizes", "[.long][long]") {
  for (int blocks : {1, 2, 3, 8, 17, 24})
    for (u32 ring_limit : {2u, 3u, 0u}) check(four_kinds<1>(), grid({1, -1, 6}, blocks, 1, ring_limit));
  for (int blocks : {3, 8, 17}) check(four_kinds<4>(), grid({1, -1, 6}, blocks));
}

TEST_CASE("spans and single-layer launches, whose picks go on as a list", "[spans]") {
  check(four_kinds<1>(), cut({3, 5, -1, 0}, {{0, 1}, {1, 1}, {2, 1}, {3, 1}}));
  check(pair_of_layers<4>(), cut({4, -1, 3}, {{0, 1}, {1, 1}}));
}
TEST_CASE("more cuts of spans", "[.long][long]") {
  for (const auto& launches : std::vector<std::vector<launch_of>>{
           {{0, 1}, {1, 1}, {2, 1}, {3, 1}}, {{0, 3}, {3, 1}}, {{0, 1}, {1, 3}}}) {
    check(four_kinds<1>(), cut({3, 5, -1, 0, 6}, launches));
    check(four_kinds<4>(), cut({3, 5, -1, 0, 6}, launches));
  }
}

TEST_CASE("picks that an indexer's launch leaves in the caller's memory serve the next launch as its list",
          "[spans]") {
  const auto& r = pair_of_layers<1>();
  const span_outcome& expected = expected_of(r);
  typename rig<1>::live l(r, with_ids({3, -1, 6, 0}), &expected);
  auto& rank = l.s.of[0];
  rank.list = static_cast<int*>(l.backend.allocate(0, 3 * 4 * 64, "picks", memory_use::output));
  rank.bound[0].picks_out = rank.list;
  const std::vector<int> starts = {0, 64, 64, 128, 129};  // min(index_topk, tokens) of each row
  std::copy(starts.begin(), starts.end(), rank.list_starts);
  l.launch({0, 1});
  sim::report report = l.backend.run();
  REQUIRE(report.ok);
  l.s.feed_back();
  l.launch({1, 1});
  span_outcome o = l.collect(l.backend.run());
  MUST_RUN(o);
  CHECK(r.difference(o, expected) == "");
}

TEST_CASE("block sizes and strides of the caches", "[paging]") {
  const auto& r = pair_of_layers<1>();
  check(r, paged({2, 4, 6}, 1));
  check(r, paged({2, 4, 6}, 64, 64, 256));
  check(r, paged({5, -1, 0}, 16, 1152, 4096));
  check(pair_of_layers<4>(), paged({4}, 64, 16, 48));
}

TEST_CASE("rows without a table of requests: row r is of request r", "[paging]") {
  const auto& r = pair_of_layers<1>();
  typename rig<1>::live l(r, with_ids({0, 3, -1, 7}), &expected_of(r));
  l.s.of[0].requests = nullptr;
  const span_outcome o = l.collect(l.run());
  MUST_RUN(o);
  CHECK(r.difference(o, expected_of(r)) == "");
}

TEST_CASE("replays: the same launch again, from the host and queued", "[replay]") {
  span_setup s = with_ids({2, 3});
  s.repeats = 2;
  check(pair_of_layers<1>(), s);
  const auto& r = pair_of_layers<4>();
  typename rig<4>::live l(r, with_ids({2, 3}), &expected_of(r));
  for (int i = 0; i < 2; ++i) l.launch({0, 2});
  const span_outcome o = l.collect(l.backend.run());
  MUST_RUN(o);
  CHECK(r.difference(o, expected_of(r)) == "");
  CHECK(o.states[3].epoch == 4);
}

TEST_CASE("epochs pass 2^32 and 2^24", "[epochs]") {
  epochs(pair_of_layers<1>(), (u64(1) << 32) - 3, false);
  epochs(pair_of_layers<4>(), (u64(1) << 32) - 1, false);
  epochs(pair_of_layers<1>(), u64(1) << 25, true);
}
TEST_CASE("more epochs", "[.long][long]") {
  for (u64 from : {(u64(1) << 24) - 3, (u64(1) << 32) - 2, (u64(7) << 32) - 1}) {
    epochs(four_kinds<1>(), from, false);
    epochs(four_kinds<4>(), from, false);
  }
}

TEST_CASE("the same bits over seeds", "[seeds]") {
  seeds(pair_of_layers<1>(), 2, 8);
  seeds(pair_of_layers<4>(), 2, 2);
}
TEST_CASE("the same bits over many seeds", "[.long][long]") {
  seeds(four_kinds<1>(), 100, 60);
  seeds(four_kinds<4>(), 100, 15);
}
