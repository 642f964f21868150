// Launching on the simulator.
#pragma once

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

/// Appends a launch to the rank's queue; machine.run() runs it.
template <class T, class P>
status launch(sim::machine& m, const launch_params& p, int blocks) {
  m.launch<T>(p.rank, blocks, p.lds_bytes, [p] { run_block<T, P>(p); });
  return {};
}

}  // namespace monolayer
