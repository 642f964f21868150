// The ring: many chunks through few slots, and everything that may go wrong with it.
#include "sim/run.hpp"

using namespace sim_test;

namespace {

enum class mistake { none, no_wait, early_release, no_release, no_drain, no_flush, uneven, store, no_init };

constexpr u32 chunk_bytes = 2048, chunks = 23, slots = 3;

template <class T>
sim::report stream(u64 seed, mistake what, std::function<void(const sim::wait&)> on_wait = {}) {
  sim::machine m({.seed = seed, .on_wait = std::move(on_wait)});
  u32* weights = m.allocate_array<u32>(0, chunks * chunk_bytes / 4, "weights");
  for (u32 i = 0; i < chunks * chunk_bytes / 4; ++i) weights[i] = i * 2654435761u;
  m.launch<T>(0, 2, 16384, [=] {
    const monolayer::ring_geometry shape{64, 1024, chunk_bytes, slots, 2};
    if (producer<T>() && what != mistake::no_init) T::ring::init(shape);
    auto group = begin_block<T>();
    typename T::ring ring(shape);
    no_watch watch;
    if (producer<T>()) {
      for (u32 n = 0; n < chunks; ++n)
        if (!ring.push(weights + n * chunk_bytes / 4, chunk_bytes, watch))
          throw std::runtime_error("gave up");
      if (what != mistake::no_flush) ring.flush();
      if (what != mistake::no_drain) ring.drain();
      return;
    }
    constexpr u32 readers = 8;  // waves that consume, a credit each
    if (T::wave() >= static_cast<int>(readers)) return;
    const u32 consumed = what == mistake::no_drain ? chunks - 2 : chunks;
    for (u32 n = 0; n < consumed; ++n) {
      if (what == mistake::no_wait && n == 5 && T::wave() == 1) {
        T::lds_load4(ring.slot(n));
      }
      if (!ring.wait_full(n, watch)) throw std::runtime_error("gave up");
      const u32 at = 4 * static_cast<u32>(T::lane()) + 256 * static_cast<u32>(T::wave() % 4);
      const auto right = [&] {
        return T::lds_load4(ring.slot(n) + at) == (n * chunk_bytes / 4 + at / 4) * 2654435761u;
      };
      if (what == mistake::early_release && n == 7) {
        ring.release(n, 1);
        if (!right()) throw std::runtime_error("wrong");
        continue;
      }
      if (!right()) throw std::runtime_error("wrong");
      if (what == mistake::store && n == 2 && T::lane() == 0) T::lds_store4(ring.slot(n), 0);
      if (what == mistake::no_release && n == 4 && T::wave() == 3) continue;
      ring.release(n, what == mistake::uneven && n == 9 ? 2 : 1);
    }
    (void)group;
  });
  return m.run();
}

}  // namespace

TEMPLATE_TEST_CASE("Chunks come through the ring", "", sim::gfx950, sim::sm90) {
  CHECK(over_seeds(200, [](u64 s) { return stream<TestType>(s, mistake::none); }).ok == 200);
}

TEMPLATE_TEST_CASE("Waits in the ring are told", "", sim::gfx950, sim::sm90) {
  using T = TestType;
  int room = 0, copies = 0, ends = 0, others = 0;
  for (u64 seed = 1; seed <= 10; ++seed) {
    const sim::report r = stream<T>(seed, mistake::none, [&](const sim::wait& w) {
      const std::string what = w.what();
      const bool of_producer = w.at.wave == T::consumer_waves;
      if (w.for_weights && of_producer && what == "waits in ring push")
        ++room;
      else if (w.for_weights && of_producer && what == "waits in ring drain")
        ++ends;
      else if (w.for_weights && !of_producer && w.at.rank == 0 && w.at.block < 2 && what == "waits in ring wait_full")
        ++copies;
      else
        ++others;
    });
    CHECK(r.ok);
  }
  CHECK(room > 0);
  CHECK(copies > 0);
  CHECK(ends > 0);
  CHECK(others == 0);
}

TEMPLATE_TEST_CASE("Mistakes with the ring are found", "", sim::gfx950, sim::sm90) {
  using T = TestType;
  const auto count = [](mistake what) { return over_seeds(30, [=](u64 s) { return stream<T>(s, what); }); };
  CHECK(count(mistake::no_wait)[sim::error::ring] == 30);
  CHECK(count(mistake::early_release)[sim::error::ring] == 30);
  CHECK(count(mistake::no_release)[sim::error::deadlock] == 30);
  CHECK(count(mistake::uneven)[sim::error::ring] == 30);
  CHECK(count(mistake::store)[sim::error::ring] == 30);
  CHECK(count(mistake::no_init)[sim::error::ring] == 30);
  CHECK(count(mistake::no_drain)[sim::error::in_flight] > 0);
  CHECK(count(mistake::no_flush).ok == 30);  // drain() starts what is held back
}

TEMPLATE_TEST_CASE("A watch ends the ring's waits", "", sim::gfx950, sim::sm90) {
  using T = TestType;
  struct impatient {
    u64 until;
    bool give_up() { return T::clock_ns() > until; }
  };
  int gave_up = 0;
  const sim::report r = run_once<T>(1,
                                    [&] {
                                      const monolayer::ring_geometry shape{64, 1024, chunk_bytes, slots, 2};
                                      if (producer<T>()) T::ring::init(shape);
                                      T::block_barrier();
                                      typename T::ring ring(shape);
                                      impatient watch{T::clock_ns() + 1'000'000};
                                      if (!producer<T>() && !ring.wait_full(0, watch)) ++gave_up;
                                    },
                                    {.deadlock_is_error = false});
  CHECK(r.ok);
  CHECK(gave_up == threads<T>);
}
