// What a kernel needs before anything is allocated: sizes of the scratch, LDS and ring, without a GPU.
#pragma once

#include <string>
#include <vector>

#include "monolayer/core/proofs.hpp"
#include "monolayer/device/lds_layout.hpp"
#include "monolayer/host/status.hpp"

namespace monolayer {

/// Sizes for program P on target T, all in bytes. All constants, so that an engine can reserve memory at start-up.
template <class T, class P>
struct plan {
  static_assert(proven<P>::value);
  using lds = lds_layout<T, P>;
  using memory = slot_layout<P, T::arrivals>;
  /// More blocks than this would leave some without a tile between two waits; nothing would hold the others back then.
  static constexpr int max_blocks = grid_limit(P::info);
  static constexpr int max_rows = P::info.max_rows;
  static constexpr int ranks = P::info.ranks;
  static constexpr int threads = (T::consumer_waves + 1) * T::wave_size;

  static constexpr u64 slots_bytes = memory::payload_bytes;
  static constexpr u64 arrivals_bytes = memory::arrival_bytes;
  static constexpr u64 mailbox_bytes = memory::mailbox_bytes;
  static constexpr u64 state_bytes = sizeof(device_state);

  static constexpr u32 lds_needed = lds::rows + lds::row_bytes(max_rows) + lds::fewest_slots * lds::slot_bytes;
  static_assert(lds_budget<lds_needed, T::lds_bytes>::value,
                "plan: the staged rows of max_rows rows and two ring slots do not fit the target's LDS; lower max_rows");
  static constexpr u32 ring_slots(int live_rows) { return lds::ring_slots(T::lds_bytes, live_rows); }
};

/// What a device must offer for plan<T, P>; filled from the device's properties by the caller or by the runtime.
struct device_facts {
  u32 lds_bytes = 0;       // per block, opt-in limit
  int compute_units = 0;
  int resident_blocks = 0; // of this kernel on the whole device at once
};

/// The reasons against running plan<T, P> with `blocks` blocks on a device; empty when there are none.
template <class T, class P>
std::vector<status> can_run(const device_facts& device, int blocks) {
  std::vector<status> reasons;
  auto add = [&](std::string argument, long long seen, std::string wanted) {
    reasons.push_back(error(error_code::unsupported, std::move(argument), std::to_string(seen), std::move(wanted)));
  };
  if (device.lds_bytes < T::lds_bytes)
    add("device LDS bytes a block", device.lds_bytes, "at least " + std::to_string(T::lds_bytes));
  if (blocks < 1) add("blocks", blocks, "at least 1");
  if (blocks > device.resident_blocks)
    add("blocks", blocks, "at most " + std::to_string(device.resident_blocks) +
                              ": blocks wait for one another, so all must be resident at once");
  return reasons;
}

}  // namespace monolayer
