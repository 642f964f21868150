// The simulated machine as a host program sees it.
//
//   sim::machine m({.ranks = 4, .seed = 7});
//   void* slot = m.allocate(rank, bytes, "qa", sim::memory::slot);
//   m.launch<sim::gfx950>(rank, blocks, lds_bytes, [=] { kernel<sim::gfx950>(params); });   // one call a
//   lane sim::report r = m.run();    // until all launches have ended, or an error if (!r.ok)
//   puts(r.text.c_str());
//
// Launches of a rank run in order, like a stream; ranks run at the same time. A machine is used by one
// thread. After an error it is dead, and lanes are abandoned where they stand: their frames are not unwound,
// so device code must not own anything.
#pragma once

#include "monolayer/arch/sim/engine.hpp"
#ifndef MONOLAYER_SIM_ELSEWHERE  // defined by a program that links the machine's inside from a library of its own
#include "monolayer/arch/sim/access.hpp"
#include "monolayer/arch/sim/idle.hpp"
#include "monolayer/arch/sim/lds.hpp"
#include "monolayer/arch/sim/memory.hpp"
#include "monolayer/arch/sim/report_text.hpp"
#include "monolayer/arch/sim/ring.hpp"
#include "monolayer/arch/sim/schedule.hpp"
#include "monolayer/arch/sim/shadow.hpp"
#include "monolayer/arch/sim/stores.hpp"
#include "monolayer/arch/sim/wave_ops.hpp"
#endif

namespace monolayer::sim {

class machine {
 public:
  explicit machine(options o = {}) : engine_(std::move(o)) {}

  /// Host memory of a rank, 64 KiB aligned, filled with 0xA5 or zero; it lives as long as the machine.
  void* allocate(int rank, std::size_t bytes, std::string name, memory kind = memory::plain,
                 fill how = fill::poison) {
    return engine_.allocate(rank, bytes, std::move(name), kind, how);
  }
  template <class E>
  E* allocate_array(int rank, std::size_t count, std::string name, memory kind = memory::plain,
                    fill how = fill::poison) {
    return static_cast<E*>(allocate(rank, count * sizeof(E), std::move(name), kind, how));
  }
  /// Names a part of an allocation (for reports) and says what it is for. Parts start at multiples of 16
  /// bytes; the size is rounded up to 16. What is written in a group_scope part may only be read inside the
  /// writer's group.
  void annotate(void* at, std::size_t bytes, std::string name, memory kind, bool group_scope = false) {
    engine_.annotate(at, bytes, std::move(name), kind, group_scope);
  }
  /// Overwriting one of these 8-byte tagged words by another tag is an error until `readers` distinct waves
  /// have loaded it; 0 takes the demand back. A new call forgets which words are unread (after a host's
  /// reset).
  void expect_readers(void* at, std::size_t bytes, int readers) {
    engine_.expect_readers(at, bytes, readers);
  }

  /// Appends a launch to the rank's queue; `main` runs once a lane.
  template <class T>
  void launch(int rank, int blocks, u32 lds_bytes, std::function<void()> main) {
    if (lds_bytes > T::lds_bytes) throw std::invalid_argument("sim: the target has less LDS");
    engine_.enqueue(rank, blocks, lds_bytes, std::move(main), T::sim_traits());
  }
  void inject(const fault& f) { engine_.faults.push_back(f); }

  /// Runs all launches; they are gone afterwards, memory stays.
  report run() { return engine_.run(); }

  std::uint64_t clock_ns() const { return engine_.clock_ns; }

 private:
  detail::engine engine_;
};

}  // namespace monolayer::sim
