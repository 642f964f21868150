// Stopped and slow ranks, lost, late and repeated arrivals, deadlines on the virtual clock.
#include "sim/run.hpp"

using namespace sim_test;
using sim::error, sim::fault_kind;

namespace {

struct outcome {
  sim::report report;
  int timed_out[3] = {};
  u64 waited_ns = 0;
};

/// Rank r waits for a word of rank r + 1; every wait has a deadline.
template <class T>
outcome ring_of_ranks(u64 seed, std::vector<sim::fault> faults, bool deadlock_is_error = false,
                      u64 limit_ns = 200'000'000) {
  outcome o;
  sim::machine m({.ranks = 3, .seed = seed, .deadlock_is_error = deadlock_is_error});
  u32* word[3];
  for (int r = 0; r < 3; ++r)
    word[r] =
        m.allocate_array<u32>(r, 32, "word " + std::to_string(r), sim::memory::control, sim::fill::zero);
  for (const sim::fault& f : faults) m.inject(f);
  for (int r = 0; r < 3; ++r)
    for (u32 n = 1; n <= 2; ++n)
      m.launch<T>(r, 2, 0, [&o, r, n, limit_ns, mine = word[r], theirs = word[(r + 2) % 3]] {
        if (T::wave() != 0 || T::lane() != 0 || T::block() != 0) return;
        for (int i = 0; i < 50; ++i) T::wave_sync();
        T::arrive_system(theirs, n);
        u32 polls = 0;
        const u64 start = T::clock_ns();
        while (T::poll4(mine) < n) {
          if ((++polls & 63) == 0 && T::clock_ns() - start > limit_ns) {
            ++o.timed_out[r];
            o.waited_ns = T::clock_ns() - start;
            return;
          }
          T::pause();
        }
      });
  o.report = m.run();
  return o;
}

}  // namespace

TEMPLATE_TEST_CASE("A stopped rank lets the others' deadlines expire", "", sim::gfx950, sim::sm90) {
  using T = TestType;
  for (u64 seed = 1; seed <= 20; ++seed) {
    const outcome whole = ring_of_ranks<T>(seed, {});
    CHECK((whole.report.ok && whole.report.unfinished == 0 &&
           whole.timed_out[0] + whole.timed_out[1] + whole.timed_out[2] == 0));

    const outcome o = ring_of_ranks<T>(seed, {{.kind = fault_kind::stop_rank, .rank = 1, .after = 10}});
    CHECK(o.report.ok);
    CHECK(o.report.unfinished == 2);
    CHECK(o.timed_out[0] > 0);  // waits for rank 1
    CHECK(o.waited_ns > 200'000'000);
    CHECK(o.waited_ns < 2'000'000'000);

    const outcome found =
        ring_of_ranks<T>(seed, {{.kind = fault_kind::stop_rank, .rank = 1, .after = 10}}, true);
    CHECK(found.report.kind == error::deadlock);
    CHECK(found.report.text.find("stopped by a fault") != std::string::npos);
  }
}

TEMPLATE_TEST_CASE("Arrivals get lost, late, repeated", "", sim::gfx950, sim::sm90) {
  using T = TestType;
  for (u64 seed = 1; seed <= 20; ++seed) {
    const outcome lost = ring_of_ranks<T>(seed, {{.kind = fault_kind::lose_arrival, .rank = 2, .nth = 1}});
    CHECK((lost.report.ok && lost.timed_out[1] == 1 && lost.timed_out[0] + lost.timed_out[2] == 0));
    const outcome late = ring_of_ranks<T>(
        seed, {{.kind = fault_kind::delay_arrival, .rank = 2, .nth = 1, .delay_ns = 100'000'000}});
    CHECK((late.report.ok && late.timed_out[1] == 0 && late.report.stats.clock_ns > 100'000'000));
    const outcome too_late = ring_of_ranks<T>(
        seed, {{.kind = fault_kind::delay_arrival, .rank = 2, .nth = 1, .delay_ns = 900'000'000}}, false,
        1'000'000);
    CHECK(too_late.report.ok);
    const outcome twice = ring_of_ranks<T>(seed, {{.kind = fault_kind::repeat_arrival, .rank = 2, .nth = 0}});
    CHECK(twice.report.ok);
    const outcome slow = ring_of_ranks<T>(seed, {{.kind = fault_kind::slow_rank, .rank = 2}});
    CHECK((slow.report.ok && slow.timed_out[0] + slow.timed_out[1] + slow.timed_out[2] == 0));
  }
}

TEMPLATE_TEST_CASE("A stopped block", "", sim::gfx950, sim::sm90) {
  using T = TestType;
  sim::machine m({.deadlock_is_error = false});
  m.inject({.kind = fault_kind::stop_block, .rank = 0, .block = 1, .after = 5});
  u32* flag = m.allocate_array<u32>(0, 32, "flag", sim::memory::control, sim::fill::zero);
  m.launch<T>(0, 2, 0, [=] {
    if (thread<T>() != 0) return;
    for (int i = 0; i < 100; ++i) T::ballot(true);
    if (T::block() == 1) T::arrive(flag, 1);
    const u64 start = T::clock_ns();
    if (T::block() == 0)
      while (T::poll4(flag) != 1 && T::clock_ns() - start < 1'000'000) T::pause();
  });
  const sim::report r = m.run();
  CHECK(r.ok);
  CHECK(r.unfinished == 1);
}

TEMPLATE_TEST_CASE("A repeated tagged store of an old epoch is only ignored by equality", "", sim::gfx950,
                   sim::sm90) {
  using T = TestType;
  int seen_old = 0;
  for (u64 seed = 1; seed <= 40; ++seed) {
    sim::machine m({.seed = seed});
    u64* words = m.allocate_array<u64>(0, 2, "words", sim::memory::slot, sim::fill::zero);
    m.inject({.kind = fault_kind::repeat_tagged, .rank = 0, .nth = 0, .delay_ns = 3000});
    m.launch<T>(0, 2, 0, [=] {
      if (thread<T>() != 0) return;
      if (T::block() == 0) {
        T::tagged_store(words, u64{1} << 32 | 11);
        T::drain_stores();
        T::tagged_store(words, u64{2} << 32 | 22);
      }
    });
    REQUIRE(m.run().ok);
    seen_old += words[0] >> 32 == 1;
  }
  CHECK(seen_old > 0);
}

TEST_CASE(
    "A polling loop that nothing can end is a deadlock at once, also if it looks at a flag only now and "
    "then") {
  using T = sim::gfx950;
  sim::machine m;
  u32* flag = m.allocate_array<u32>(0, 32, "flag", sim::memory::control, sim::fill::zero);
  u32* rare = m.allocate_array<u32>(0, 32, "rare", sim::memory::control, sim::fill::zero);
  m.launch<T>(0, 2, 0, [=] {
    if (thread<T>() != 0) return;
    if (T::block() == 0) {
      T::arrive(rare, 1);
      return;
    }
    for (u32 polls = 1; T::poll4(flag) != 1; ++polls) {
      if (polls % 64 == 0 && T::poll4(rare) == 1) return;
      T::pause();
    }
  });
  CHECK(m.run().ok);
  m.launch<T>(0, 1, 0, [=] {
    if (thread<T>() == 0)
      while (T::poll4(flag) != 1) T::pause();
  });
  const sim::report r = m.run();
  CHECK(r.kind == error::deadlock);
  REQUIRE(r.waiters.size() == 1);
  CHECK(r.waiters[0].what == "polls 'flag' + 0 (rank 0) (= 0)");
}
