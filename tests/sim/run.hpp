// Small launches for the simulator's own tests.
#pragma once

#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <functional>

#include "monolayer/arch/sim/sim.hpp"

namespace sim_test {

using monolayer::u16;
using monolayer::u32;
using monolayer::u64;
using monolayer::u8;
namespace sim = monolayer::sim;

template <class T>
inline constexpr bool counts = T::arrivals == monolayer::arrival_kind::counter;

/// Zeroes the consumer group's words and lets the block begin; LDS below 16 is theirs.
template <class T>
typename T::consumer_group begin_block() {
  if (T::wave() == 0 && T::lane() < 4) T::lds_store4(4 * T::lane(), 0);
  T::block_barrier();
  return typename T::consumer_group(0);
}
template <class T>
int thread() {
  return T::wave() * T::wave_size + T::lane();
}
template <class T>
inline constexpr int threads = T::consumer_waves* T::wave_size;
template <class T>
bool producer() {
  return T::wave() == T::consumer_waves;
}

/// One launch of `blocks` blocks on rank 0 of a machine of its own.
template <class T>
sim::report run_once(int blocks, std::function<void()> main, sim::options o = {}, u32 lds = 65536) {
  sim::machine m(o);
  m.launch<T>(0, blocks, lds, std::move(main));
  return m.run();
}

/// How many of `seeds` seeds end in each way; `run` gets a seed.
struct tally {
  int ok = 0;
  int of[20] = {};
  std::string text;  // of the last error
  int operator[](sim::error e) const { return of[static_cast<int>(e)]; }
};
template <class Run>
tally over_seeds(int seeds, Run&& run) {
  tally t;
  for (int s = 1; s <= seeds; ++s) {
    const sim::report r = run(static_cast<u64>(s));
    t.ok += r.ok;
    ++t.of[static_cast<int>(r.kind)];
    if (!r.ok) t.text = r.text;
  }
  return t;
}

struct no_watch {
  bool give_up() { return false; }
};

}  // namespace sim_test
