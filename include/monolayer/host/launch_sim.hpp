// Launching on the simulator.
#pragma once

#include <algorithm>
#include <array>

#include "monolayer/arch/sim/sim.hpp"
#include "monolayer/device/kernel.hpp"
#include "monolayer/host/bind.hpp"

namespace monolayer {

/// Tells the machine what lies where in a rank's memory, so that reports name slots and the scope rules are checked.
template <class T, class P>
void annotate(sim::machine& m, const rank_memory& memory, int rank) {
  using layout = slot_layout<P, T::arrivals>;
  for (int s = 0; s < P::info.slot_count; ++s) {
    const slot_info& slot = P::info.slots[s];
    if (layout::in_mailbox(s) || layout::buffer_bytes(s) == 0) continue;
    for (int b = 0; b < slot.buffers; ++b)
      m.annotate(static_cast<u8*>(memory.slots) + layout::payload_offset(s) + u64(b) * layout::buffer_bytes(s),
                 layout::buffer_bytes(s), std::string("slot ") + slot.name + " buffer " + std::to_string(b),
                 sim::memory::slot, slot.scope == scope::group);
  }
  for (int s = 0; s < P::info.slot_count; ++s)
    if (layout::arrival_span(s) != 0)
      m.annotate(static_cast<u8*>(memory.arrivals) + layout::arrival_offset(s), layout::arrival_span(s),
                 std::string("arrivals of ") + P::info.slots[s].name, sim::memory::control);
  auto* state = static_cast<device_state*>(memory.state[rank]);
  m.annotate(state, offsetof(device_state, check_in), "state", sim::memory::output);
  static_assert(offsetof(device_state, failed_launches) % 16 == 0);
  m.annotate(&state->failed_launches, 16, "failed launches", sim::memory::control);
  m.annotate(&state->check_in, sizeof(device_state) - offsetof(device_state, check_in), "control words",
             sim::memory::control);
}

/// Memory of all ranks of program P, of the planned sizes, zeroed and annotated: what bind() takes, by rank.
template <class T, class P>
std::array<rank_memory, std::size_t(P::info.ranks)> allocate_ranks(sim::machine& m) {
  using sizes = plan<T, P>;
  constexpr int ranks = P::info.ranks;
  std::array<rank_memory, std::size_t(ranks)> all;
  void *mailbox[ranks], *state[ranks];
  for (int r = 0; r < ranks; ++r) {
    mailbox[r] = m.allocate(r, sizes::mailbox_bytes, "mailbox", sim::memory::mailbox, sim::fill::zero);
    state[r] = m.allocate(r, sizes::state_bytes, "state", sim::memory::control, sim::fill::zero);
  }
  for (int r = 0; r < ranks; ++r) {
    rank_memory& memory = all[std::size_t(r)];
    memory.slots = m.allocate(r, sizes::slots_bytes, "slots", sim::memory::slot, sim::fill::zero);
    memory.arrivals = m.allocate(r, sizes::arrivals_bytes, "arrivals", sim::memory::control, sim::fill::zero);
    memory.slots_bytes = sizes::slots_bytes;
    memory.arrivals_bytes = sizes::arrivals_bytes;
    memory.mailbox_bytes = sizes::mailbox_bytes;
    memory.state_bytes = sizes::state_bytes;
    std::copy_n(mailbox, ranks, memory.mailbox);
    std::copy_n(state, ranks, memory.state);
    annotate<T, P>(m, memory, r);
  }
  return all;
}

/// Appends a launch to the rank's queue; machine.run() runs it.
template <class T, class P>
status launch(sim::machine& m, const launch_params& p, int blocks) {
  m.launch<T>(p.rank, blocks, p.lds_bytes, [p] { run_block<T, P>(p); });
  return {};
}

}  // namespace monolayer
