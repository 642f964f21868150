// Many runs of the tiny configs on one target, TARGET: seeds, mixes of rows, spans, epochs, replays.
#include "slices/against_reference.hpp"

using namespace monolayer;
using namespace monolayer::test;

using T = sim::TARGET;

namespace {

template <int TP>
const rig<T, tiny_slices<TP>>& layers(std::vector<u64> kinds) {
  static std::map<std::vector<u64>, std::unique_ptr<rig<T, tiny_slices<TP>>>> made;
  auto& r = made[kinds];
  if (!r) r = std::make_unique<rig<T, tiny_slices<TP>>>(kinds);
  return *r;
}

/// What all rows give, in one launch over all layers.
template <class R>
const outcome& expected_of(const R& r) {
  static std::map<const R*, outcome> known;
  if (!known.contains(&r)) known[&r] = r.run({});
  MUST_RUN(known[&r]);
  return known[&r];
}

template <class R>
void seeds(const R& r, u64 count) {
  const outcome& expected = expected_of(r);
  for (u64 seed = 1; seed <= count; ++seed) {
    setup s = with_rows(seed % 2 ? std::vector<int>{0, 1} : std::vector<int>{2});
    s.seed = seed;
    const outcome o = r.run(s);
    INFO("seed " << seed);
    MUST_RUN(o);
    REQUIRE(r.difference(o, expected) == "");
  }
}

template <class R>
void check(const R& r, const setup& s) {
  const outcome o = r.run(s);
  MUST_RUN(o);
  CHECK(r.difference(o, expected_of(r)) == "");
}

}  // namespace

TEST_CASE("tiny layers agree with the reference", "[reference]") {
  against_reference(layers<1>({A, B, A, B}), {});
  setup s;
  s.blocks = 4;
  against_reference(layers<4>({A, B}), s);
}

TEST_CASE("TP1: the same bits over 40 seeds", "[seeds]") { seeds(layers<1>({A, B, B}), 40); }
TEST_CASE("TP1: the same bits over 200 seeds", "[.long][long]") { seeds(layers<1>({A, B, B}), 200); }
TEST_CASE("TP4: the same bits over 20 seeds", "[seeds]") { seeds(layers<4>({A, B, B}), 20); }
TEST_CASE("TP4: the same bits over 200 seeds", "[.long][long]") { seeds(layers<4>({A, B, B}), 200); }

TEST_CASE("a row's bits do not depend on the others", "[rows]") {
  const auto& r = layers<1>({A, B, A, B});
  for (int id = 0; id < 8; ++id) check(r, with_rows({id}));
  check(r, with_rows({7, 6}));
  check(r, with_rows({2, 0, 4}));
  check(r, with_rows({1, 3, 5, 7}));
  check(r, with_rows({6, 5, 4, 3, 2}));
  check(r, with_rows({0, 2, 4, 6, 1, 3}));
  check(r, with_rows({7, 1, 6, 2, 5, 3, 4}));
  check(r, with_rows({3, 3, 3, 3, 3, 3, 3, 3}));
}

TEST_CASE("dead rows change nothing and stay as they were", "[rows]") {
  const auto& r = layers<1>({A, B, A, B});
  check(r, with_rows({-1, 4}));
  check(r, with_rows({4, -1, -1, 2, -1}));
  check(r, with_rows({-1, -1, -1, 1, -1, -1, -1, 0}));
  check(r, with_rows({0, 1, 2, -1, 4, 5, 6, 7}));
  check(layers<4>({A, B, B}), with_rows({-1, 5, -1, 2}));
}

TEST_CASE("a launch of dead rows only writes nothing and counts its epochs", "[rows]") {
  const auto& r = layers<1>({A, B, A, B});
  typename rig<T, tiny_slices<1>>::live l(r, with_rows({-1, -1, -1}));
  outcome o = l.collect(l.run());
  MUST_RUN(o);
  CHECK(r.difference(o, expected_of(r)) == "");
  CHECK(o.states[0].epoch == 4);
  l.set_rows({-1, 3});  // and the next launch finds everything in order
  o = l.collect(l.run());
  MUST_RUN(o);
  CHECK(r.difference(o, expected_of(r)) == "");
  CHECK(o.states[0].epoch == 8);
}

TEST_CASE("grid sizes, groups and ring sizes", "[bits]") {
  const auto& r = layers<1>({A, B, A, B});
  for (int blocks : {1, 2, 3, 8, 16})
    for (u32 ring_limit : {2u, 0u}) {
      setup s = with_rows({1, -1, 6});
      s.blocks = blocks, s.ring_limit = ring_limit;
      check(r, s);
    }
  for (int groups : {2, 3}) {
    setup s = with_rows({1, -1, 6});
    s.blocks = groups == 2 ? 8 : 9, s.groups = groups;
    check(r, s);
  }
}

TEST_CASE("spans and single-layer launches", "[spans]") {
  const auto& abab = layers<1>({A, B, A, B});
  for (std::vector<span> cut : {std::vector<span>{{0, 1}, {1, 1}, {2, 1}, {3, 1}}, {{0, 2}, {2, 2}}, {{0, 1}, {1, 3}}}) {
    setup s = with_rows({0, -1, 5});
    s.spans = cut;
    check(abab, s);
  }
  const auto& bbb = layers<1>({B, B, B});
  for (std::vector<span> cut : {std::vector<span>{{0, 1}, {1, 1}, {2, 1}}, {{0, 2}, {2, 1}}, {{0, 3}}}) {
    setup s = with_rows({0, -1, 5});
    s.spans = cut;
    check(bbb, s);
  }
  setup s = with_rows({0, 5});
  s.spans = {{0, 1}, {1, 2}};
  check(layers<4>({A, B, B}), s);
}

TEST_CASE("a replay gives the same bits; twenty launches in a row", "[replay]") {
  setup s = with_rows({2, 6});
  s.repeats = 2;
  check(layers<1>({A, B, A, B}), s);
  s.repeats = 20;
  check(layers<1>({A, B, B}), s);
  s.repeats = 3;
  check(layers<4>({A, B, B}), s);
}

TEST_CASE("many launches queued at once", "[replay]") {
  // No host in between: a launch begins on each rank when that rank's last one has ended, as in a replayed graph.
  setup s = with_rows({2, 6});
  s.spans = std::vector<span>(6, span{0, 3});
  s.expect_readers = true;
  check(layers<4>({A, B, B}), s);
}

TEST_CASE("epochs pass 2^32 and full pushes", "[epochs]") {
  const auto run = [](const auto& r, u64 from, bool readers) {
    using R = std::remove_cvref_t<decltype(r)>;
    setup s;
    s.rows = {0, 1, 2};
    s.epoch = from;
    s.expect_readers = readers;  // a full push also pushes words that nobody reads
    typename R::live l(r, s);
    u64 epoch = from;
    for (const std::vector<int>& rows :
         {std::vector<int>{0, 1, 2}, {5}, {-1, 6, 4}, {7, -1, -1, 1}, {2}}) {
      l.set_rows(rows);
      const outcome o = l.collect(l.run());
      INFO("from epoch " << epoch);
      MUST_RUN(o);
      CHECK(r.difference(o, expected_of(r)) == "");
      epoch = epoch_after(epoch, u32(r.source.layers.size()));
      for (const device_state& state : o.states) CHECK(state.epoch == epoch);
      CHECK(u32(epoch) != 0);
    }
  };
  run(layers<1>({B, B, B}), (u64(1) << 32) - 3, false);
  run(layers<4>({B, B}), (u64(1) << 32) - 3, false);
  run(layers<4>({B, B}), (u64(1) << 24) - 3, false);
  run(layers<1>({B, B, B}), (u64(7) << 32) - 1, false);
  run(layers<1>({A, B, A, B}), u64(1) << 25, true);
}
