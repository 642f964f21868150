// Cross-lane operations, barriers, and lanes that part ways.
#include <algorithm>

#include "sim/run.hpp"

using namespace sim_test;

TEMPLATE_TEST_CASE("Cross-lane operations", "", sim::gfx950, sim::sm90) {
  using T = TestType;
  const tally t = over_seeds(20, [](u64 seed) {
    int wrong = 0;
    const sim::report r = run_once<T>(2,
                                      [&] {
                                        const u32 l = static_cast<u32>(T::lane());
                                        for (u32 mask = 1; mask < T::wave_size; mask *= 2)
                                          wrong += T::shuffle_xor(100 * l + mask, static_cast<int>(mask)) !=
                                                   100 * (l ^ mask) + mask;
                                        u64 want = 0;
                                        for (u64 i = 0; i < T::wave_size; i += 3) want |= u64{1} << i;
                                        wrong += T::ballot(l % 3 == 0) != want;
                                        wrong += T::ballot(false) != 0;
                                        u32 most = 0;
                                        for (u32 i = 0; i < T::wave_size; ++i)
                                          most = std::max(most, i * 7 % 61);
                                        wrong += T::wave_max(l * 7 % 61) != most;
                                        wrong += T::wave_min(1000 - l) != 1001 - T::wave_size;
                                      },
                                      {.seed = seed});
    CHECK(wrong == 0);
    return r;
  });
  CHECK(t.ok == 20);
}

TEMPLATE_TEST_CASE("Lanes that have left take no part", "", sim::gfx950, sim::sm90) {
  using T = TestType;
  for (u64 seed = 1; seed < 20; ++seed) {
    int wrong = 0;
    CHECK(run_once<T>(1,
                      [&] {
                        if (T::lane() >= 5) return;
                        wrong += T::ballot(true) != 31;
                        wrong += T::wave_max(static_cast<u32>(T::lane())) != 4;
                      },
                      {.seed = seed})
              .ok);
    CHECK(wrong == 0);
  }
}

TEMPLATE_TEST_CASE("Lanes at different operations are reported", "", sim::gfx950, sim::sm90) {
  using T = TestType;
  const tally t = over_seeds(20, [](u64 seed) {
    return run_once<T>(1,
                       [] {
                         if (T::lane() == 3) {
                           T::wave_sync();
                         } else {
                           T::ballot(true);
                         }
                       },
                       {.seed = seed});
  });
  CHECK(t[sim::error::divergent] == 20);
  CHECK(run_once<T>(1, [] { T::shuffle_xor(1, T::lane() == 0 ? 1 : 2); }).kind == sim::error::divergent);
}

TEMPLATE_TEST_CASE("Barriers order LDS, and their absence is found", "", sim::gfx950, sim::sm90) {
  using T = TestType;
  const auto exchange = [](bool with_barrier, bool all_arrive) {
    return [=] {
      auto group = begin_block<T>();
      if (producer<T>()) return;
      const u32 mine = 64 + 4 * static_cast<u32>(thread<T>()),
                other = 64 + 4 * static_cast<u32>((thread<T>() + T::wave_size) % threads<T>);
      for (u32 turn = 0; turn < 4; ++turn) {
        T::lds_store4(mine, mine + turn);
        if (!all_arrive && T::wave() == 2 && turn == 3) return;
        if (with_barrier) group.sync();
        if (T::lds_load4(other) != other + turn) throw std::runtime_error("wrong value");
        group.sync();
      }
    };
  };
  CHECK(over_seeds(100, [&](u64 s) { return run_once<T>(1, exchange(true, true), {.seed = s}); }).ok == 100);
  const tally none =
      over_seeds(50, [&](u64 s) { return run_once<T>(1, exchange(false, true), {.seed = s}); });
  CHECK(none[sim::error::lds] == 50);
  const tally missing =
      over_seeds(20, [&](u64 s) { return run_once<T>(1, exchange(true, false), {.seed = s}); });
  CHECK(missing[sim::error::deadlock] == 20);
  CHECK(missing.text.find("consumer barrier") != std::string::npos);
}

TEMPLATE_TEST_CASE("Adds to a word of LDS need no order, what reads them does", "", sim::gfx950, sim::sm90) {
  using T = TestType;
  const auto body = [](bool zeroed, bool sync) {
    return [=] {
      auto group = begin_block<T>();
      if (producer<T>()) return;
      if (T::wave() == 0 && T::lane() < 4 && zeroed) T::lds_store4(64 + 4 * static_cast<u32>(T::lane()), 0);
      group.sync();
      const u32 old = T::lds_fetch_add(64, 2);
      if (old % 2 != 0 || old >= 2 * threads<T>) throw std::runtime_error("wrong old value");
      T::lds_fetch_add(68, old);
      if (sync) group.sync();
      const u32 n = threads<T>, sum = T::lds_load4(64), of_old = T::lds_load4(68);
      if (sync && (sum != 2 * n || of_old != n * (n - 1))) throw std::runtime_error("wrong sum");
    };
  };
  CHECK(over_seeds(30, [&](u64 s) { return run_once<T>(1, body(true, true), {.seed = s}); }).ok == 30);
  CHECK(over_seeds(30, [&](u64 s) { return run_once<T>(1, body(true, false), {.seed = s}); })[sim::error::lds] == 30);
  CHECK(over_seeds(5, [&](u64 s) { return run_once<T>(1, body(false, true), {.seed = s}); })[sim::error::lds] == 5);
}

TEMPLATE_TEST_CASE("Lanes of one wave need wave_sync", "", sim::gfx950, sim::sm90) {
  using T = TestType;
  const auto body = [](bool sync) {
    return [=] {
      const u32 base = 1024 * static_cast<u32>(T::wave());
      T::lds_store4(base + 4 * static_cast<u32>(T::lane()), static_cast<u32>(T::lane()));
      if (sync) {
        T::wave_sync();
      } else {
        T::ballot(true);
      }
      if (T::lds_load4(base + 4 * static_cast<u32>(T::lane() ^ 1)) != static_cast<u32>(T::lane() ^ 1))
        throw std::runtime_error("wrong");
    };
  };
  CHECK(over_seeds(30, [&](u64 s) { return run_once<T>(1, body(true), {.seed = s}); }).ok == 30);
  CHECK(over_seeds(30, [&](u64 s) { return run_once<T>(1, body(false), {.seed = s}); })[sim::error::lds] ==
        30);
}

TEST_CASE("A seed is one order, another seed another") {
  const auto order = [](u64 seed) {
    std::vector<int> seen;
    run_once<sim::gfx950>(3,
                          [&] {
                            for (int i = 0; i < 20; ++i) {
                              sim::gfx950::wave_sync();
                              if (sim::gfx950::lane() == 0)
                                seen.push_back(100 * sim::gfx950::block() + sim::gfx950::wave());
                            }
                          },
                          {.seed = seed});
    return seen;
  };
  CHECK(order(1) == order(1));
  CHECK(order(1) != order(2));
}

TEST_CASE("What device code throws ends the run") {
  const sim::report r = run_once<sim::sm90>(1, [] { throw std::runtime_error("hello"); });
  CHECK(r.kind == sim::error::exception);
  CHECK(r.text.find("hello") != std::string::npos);
}

TEST_CASE("A full stack is reported") {
  struct deep {
    static int down(const char* top, long depth) {
      volatile char room[256];
      room[0] = 1;
      if (top - const_cast<const char*>(&room[0]) > depth) {
        sim::gfx950::ballot(true);
        return 0;
      }
      return down(top, depth) + room[0];
    }
    static void to(long depth) {
      char top = 0;
      down(&top, depth);
    }
  };
  constexpr long all = static_cast<long>(sim::detail::stack_pool::stack_bytes);
  CHECK(run_once<sim::gfx950>(1, [] { deep::to(all - 4096); }).ok);
  CHECK(run_once<sim::gfx950>(1, [] { deep::to(all - 800); }).kind == sim::error::stack);
}
