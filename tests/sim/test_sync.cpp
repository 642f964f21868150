// Two blocks, a payload and an arrival: right, and with one thing left out.
#include "sim/run.hpp"

using namespace sim_test;
using sim::error;

namespace {

enum class without { nothing, drain, barrier, arrival, poll, reader_barrier };

/// Block 0 writes, block 1 reads, twice (the second use overwrites the first after an arrival back).
template <class T>
sim::report exchange(u64 seed, without what, bool checks = true, std::function<void(const sim::wait&)> on_wait = {}) {
  sim::machine m({.seed = seed, .checks = checks, .on_wait = std::move(on_wait)});
  u32* slot = m.allocate_array<u32>(0, 4 * threads<T>, "slot", sim::memory::slot);
  u32* arrivals = m.allocate_array<u32>(0, 64, "arrivals", sim::memory::control, sim::fill::zero);
  u32* out = m.allocate_array<u32>(0, threads<T>, "out", sim::memory::output);
  m.launch<T>(0, 2, 4096, [=] {
    auto group = begin_block<T>();
    if (producer<T>()) return;
    const u32 t = static_cast<u32>(thread<T>());
    const auto arrive = [&](u32* word, u32 use) {
      if (what != without::drain) T::drain_stores();
      if (what != without::barrier) group.sync();
      if (t == 0 && what != without::arrival) T::arrive(word, counts<T> ? 1 : use);
    };
    const auto await = [&](u32* word, u32 use) {
      if (t == 0 && what != without::poll)
        while (static_cast<int>(T::poll4(word) - use) < 0) T::pause();
      if (what != without::reader_barrier) group.sync();
    };
    for (u32 use = 1; use <= 2; ++use) {
      T::trace(0, T::block() == 0 ? 1 : 2, use);
      if (T::block() == 0) {
        if (use == 2) await(arrivals + 32, 1);
        T::slot_store16(slot + 4 * t, {{t, use, 0, 0}});
        arrive(arrivals, use);
      } else {
        await(arrivals, use);
        const u32 from = (t + 77) % threads<T>;
        const monolayer::u32x4 v = T::slot_load16(slot + 4 * from);
        if (checks && (v.v[0] != from || v.v[1] != use)) throw std::runtime_error("wrong payload");
        if (use == 2) T::store4(out + t, v.v[0] + v.v[1]);
        arrive(arrivals + 32, use);
      }
    }
  });
  sim::report r = m.run();
  if (r.ok && what == without::nothing)
    for (u32 t = 0; t < threads<T>; ++t)
      if (out[t] != (t + 77) % threads<T> + 2) r.ok = false, r.text = "wrong output";
  return r;
}

}  // namespace

TEMPLATE_TEST_CASE("Payload and arrival", "", sim::gfx950, sim::sm90) {
  using T = TestType;
  const tally right = over_seeds(200, [](u64 s) { return exchange<T>(s, without::nothing); });
  INFO(right.text);
  CHECK(right.ok == 200);
  const auto count = [](without what) { return over_seeds(60, [=](u64 s) { return exchange<T>(s, what); }); };
  const auto races = [](const tally& t) { return t[error::race] + t[error::early_read]; };

  const tally drain =
      count(without::drain);  // sm_90a's release covers the stores that a barrier ordered before it
  if (counts<T>) {
    CHECK(drain.ok == 60);
  } else {
    CHECK(races(drain) == 60);
    CHECK(drain.text.find("drain_stores()") != std::string::npos);
  }
  CHECK(races(count(without::barrier)) == 60);
  CHECK(races(count(without::poll)) == 60);
  CHECK(races(count(without::reader_barrier)) == 60);
  const tally arrival = count(without::arrival);
  CHECK(arrival[error::deadlock] == 60);
  CHECK(arrival.text.find("polls 'arrivals' + 0") != std::string::npos);
  CHECK(arrival.text.find("stage 2, tile 1") != std::string::npos);
}

TEMPLATE_TEST_CASE("Waits for arrivals are told", "", sim::gfx950, sim::sm90) {
  int for_payload = 0, for_reuse = 0, others = 0;
  u64 newest = 0;
  for (u64 seed = 1; seed <= 20; ++seed) {
    newest = 0;
    const sim::report r = exchange<TestType>(seed, without::nothing, true, [&](const sim::wait& w) {
      CHECK(w.clock_ns >= newest);
      newest = w.clock_ns;
      // Block 0 (stage 1) waits before it writes again, block 1 (stage 2) for what it reads.
      const bool arrivals = w.what().starts_with("polls 'arrivals' + ");
      if (!w.for_weights && arrivals && w.at.wave == 0 && w.at.block == 1 && w.at.stage == 2)
        ++for_payload;
      else if (!w.for_weights && arrivals && w.at.wave == 0 && w.at.block == 0 && w.at.stage == 1 && w.at.tile == 2)
        ++for_reuse;
      else
        ++others;
    });
    CHECK(r.ok);
  }
  CHECK(for_payload > 0);
  CHECK(for_reuse > 0);
  CHECK(others == 0);
}

TEST_CASE("A race report names both places") {
  for (u64 seed = 1;; ++seed) {
    REQUIRE(seed < 100);
    const sim::report r = exchange<sim::gfx950>(seed, without::poll);
    if (r.kind != error::race) continue;
    INFO(r.text);
    CHECK(r.second.rank == 0);
    CHECK(((r.first.block == 0 && r.second.block == 1) || (r.first.block == 1 && r.second.block == 0)));
    CHECK(r.first.stage + r.second.stage == 3);
    CHECK(r.text.find("'slot' +") != std::string::npos);
    break;
  }
}

TEST_CASE("Late stores show without the checks too") {
  int stale = 0;
  for (u64 seed = 1; seed <= 40; ++seed) {
    sim::machine m({.seed = seed, .checks = false});
    u32* slot = m.allocate_array<u32>(0, 64, "slot", sim::memory::slot, sim::fill::zero);
    u32* flag = m.allocate_array<u32>(0, 64, "flag", sim::memory::control, sim::fill::zero);
    m.launch<sim::gfx950>(0, 2, 0, [&, slot, flag] {
      using T = sim::gfx950;
      if (T::wave() != 0 || T::lane() != 0) return;
      if (T::block() == 0) {
        T::slot_store4(slot, 1);
        T::arrive(flag, 1);  // no drain: may overtake
      } else {
        while (T::poll4(flag) != 1) T::pause();
        stale += T::slot_load4(slot) != 1;
      }
    });
    REQUIRE(m.run().ok);
  }
  CHECK(stale > 0);
}

TEMPLATE_TEST_CASE("Many arrivals complete one part", "", sim::gfx950, sim::sm90) {
  using T = TestType;
  constexpr u32 writers = 6;
  const auto run = [](u64 seed, u32 lazy) {
    sim::machine m({.seed = seed});
    u32* slot = m.allocate_array<u32>(0, 64, "slot", sim::memory::slot);
    u32* arrivals = m.allocate_array<u32>(0, 32, "arrivals", sim::memory::control, sim::fill::zero);
    m.launch<T>(0, writers + 2, 4096, [=] {
      if (T::wave() != 0 || T::lane() >= 4) return;
      const u32 b = static_cast<u32>(T::block());
      if (b < writers) {
        if (T::lane() != 0) return;
        if (b == lazy) T::arrive(arrivals + (counts<T> ? 0 : b), 1);  // before its payload
        T::slot_store4(slot + b, b + 100);
        T::drain_stores();
        if (b != lazy) T::arrive(arrivals + (counts<T> ? 0 : b), 1);
        return;
      }
      const u32 l = static_cast<u32>(T::lane());
      for (;;) {
        bool missing;
        if (counts<T>) {
          missing = T::poll4(arrivals) != writers;
        } else {
          const monolayer::u32x4 v = T::poll16(arrivals + 4 * l);
          missing = false;
          for (u32 i = 0; i < 4; ++i) missing |= 4 * l + i < writers && v.v[i] != 1;
        }
        if (!T::ballot(missing)) break;
        T::pause();
      }
      for (u32 i = 0; i < writers; ++i)
        if (T::slot_load4(slot + i) != i + 100) throw std::runtime_error("wrong");
    });
    return m.run();
  };
  CHECK(over_seeds(200, [&](u64 s) { return run(s, 99); }).ok == 200);
  CHECK(over_seeds(50, [&](u64 s) { return run(s, 3); }).ok == 0);
}

TEMPLATE_TEST_CASE("Tagged words carry their own order", "", sim::gfx950, sim::sm90) {
  using T = TestType;
  const tally t = over_seeds(100, [](u64 seed) {
    sim::machine m({.seed = seed});
    u64* words =
        m.allocate_array<u64>(0, 2 * T::wave_size, "tagged slot", sim::memory::slot, sim::fill::zero);
    m.launch<T>(0, 2, 0, [=] {
      if (T::wave() != 0) return;
      const u32 l = static_cast<u32>(T::lane());
      if (T::block() == 0) {
        for (u32 i = 0; i < 2; ++i) T::tagged_store(words + 2 * l + i, u64{9} << 32 | (1000 * l + i));
      } else {
        monolayer::u32x4 v;
        while ((v = T::tagged_load2(words + 2 * l)).v[1] != 9 || v.v[3] != 9) T::pause();
        if (v.v[0] != 1000 * l || v.v[2] != 1000 * l + 1) throw std::runtime_error("torn");
      }
    });
    return m.run();
  });
  INFO(t.text);
  CHECK(t.ok == 100);
}

TEMPLATE_TEST_CASE("Group scope", "", sim::gfx950, sim::sm90) {
  using T = TestType;
  const auto run = [](u64 seed, int reader, bool scoped) {
    sim::machine m({.seed = seed, .groups = 2});
    u32* slot = m.allocate_array<u32>(0, 64, "heads", sim::memory::slot);
    u32* flag = m.allocate_array<u32>(0, 32, "flag", sim::memory::control, sim::fill::zero);
    m.annotate(slot, 64, "head 0", sim::memory::slot, scoped);
    m.launch<T>(0, 4, 0, [=] {
      if (thread<T>() != 0) return;
      if (T::block() == 0) {
        T::slot_store4(slot, 5);
        T::drain_stores();
        T::arrive(flag, 1);
      } else if (T::block() == reader) {
        while (T::poll4(flag) != 1) T::pause();
        if (T::slot_load4(slot) != 5) throw std::runtime_error("wrong");
      }
    });
    return m.run();
  };
  CHECK(over_seeds(30, [&](u64 s) { return run(s, 2, true); }).ok == 30);
  CHECK(over_seeds(30, [&](u64 s) { return run(s, 1, false); }).ok == 30);
  CHECK(over_seeds(30, [&](u64 s) { return run(s, 1, true); })[error::group_scope] == 30);
}

TEMPLATE_TEST_CASE("Ranks exchange through mailboxes; an unread word must not be overwritten", "",
                   sim::gfx950, sim::sm90) {
  using T = TestType;
  // Two ranks push a word to each other, `uses` times, through `buffers` buffers; they wait for the peer's
  // word first unless they are hasty.
  const auto run = [](u64 seed, u32 buffers, bool hasty) {
    constexpr u32 uses = 6;
    sim::machine m({.ranks = 2, .seed = seed});
    u64* box[2];
    for (int r = 0; r < 2; ++r) {
      box[r] =
          m.allocate_array<u64>(r, 8, "mailbox " + std::to_string(r), sim::memory::mailbox, sim::fill::zero);
      m.expect_readers(box[r], 64, 1);
    }
    for (int r = 0; r < 2; ++r) {
      u64 *mine = box[r], *theirs = box[1 - r];
      m.launch<T>(r, 1, 0, [=] {
        if (thread<T>() != 0) return;
        for (u32 use = 1; use <= uses; ++use) {
          const u32 at = 2 * (use % buffers);
          T::tagged_store_peer(theirs + at, u64{use} << 32 | (10 * use + static_cast<u32>(r)));
          if (hasty) continue;
          monolayer::u32x4 v;
          while ((v = T::tagged_load2(mine + at)).v[1] != use) T::pause();
          if (v.v[0] != 10 * use + 1 - static_cast<u32>(r)) throw std::runtime_error("wrong");
        }
      });
    }
    return m.run();
  };
  CHECK(over_seeds(100, [&](u64 s) { return run(s, 2, false); }).ok == 100);
  const tally one = over_seeds(100, [&](u64 s) { return run(s, 1, false); });
  CHECK(one[error::unread_overwrite] > 0);
  CHECK(over_seeds(30, [&](u64 s) { return run(s, 2, true); })[error::unread_overwrite] == 30);
}

TEMPLATE_TEST_CASE("Launches of a rank follow one another", "", sim::gfx950, sim::sm90) {
  using T = TestType;
  const tally t = over_seeds(30, [](u64 seed) {
    sim::machine m({.ranks = 2, .seed = seed});
    for (int rank = 0; rank < 2; ++rank) {
      u32* slot = m.allocate_array<u32>(rank, 16, "slot", sim::memory::slot);
      for (u32 n = 0; n < 4; ++n)
        m.launch<T>(rank, 3, 0, [=] {  // no arrival: the kernel boundary orders them
          if (thread<T>() != 0) return;
          if (T::block() == static_cast<int>(n) % 3) {
            if (n && T::slot_load4(slot) != n - 1) throw std::runtime_error("stale");
            T::slot_store4(slot, n);
          }
        });
    }
    return m.run();
  });
  CHECK(t.ok == 30);
}
