// The simulator as a backend of session.hpp.
#pragma once

#include "monolayer/host/launch_sim.hpp"
#include "slices/session.hpp"

namespace monolayer::test {

/// All of the library's device code for one target and program. A test program of several sources declares it extern in
/// all but one of them.
template <class T, class P>
void enqueue(sim::machine& machine, const launch_params& p, int blocks) {
  must(monolayer::launch<T, P>(machine, p, blocks));
}

struct sim_backend {
  sim::machine machine;

  explicit sim_backend(sim::options o) : machine(std::move(o)) {}

  void* allocate(int rank, std::size_t bytes, const char* name, memory_use use) {
    const sim::memory kind = use == memory_use::constant  ? sim::memory::plain
                             : use == memory_use::output  ? sim::memory::output
                             : use == memory_use::slots   ? sim::memory::slot
                             : use == memory_use::mailbox ? sim::memory::mailbox
                                                          : sim::memory::control;
    return machine.allocate(rank, bytes, name, kind, sim::fill::zero);
  }
  void write(void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); }
  void read(void* to, const void* from, std::size_t bytes) const { std::memcpy(to, from, bytes); }
  template <class T, class P>
  void prepared(const rank_memory& m, int rank) {
    annotate<T, P>(machine, m, rank);
  }
  template <class T, class P>
  void launch(const launch_params& p, int blocks) {
    enqueue<T, P>(machine, p, blocks);
  }
  sim::report run() { return machine.run(); }
};

}  // namespace monolayer::test
