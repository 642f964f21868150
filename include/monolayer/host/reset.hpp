// Resuming after a failure. A failure is sticky: launches return at once until every rank has called reset().
#pragma once

#include <algorithm>
#include <functional>
#include <span>
#include <vector>

#include "monolayer/host/plan.hpp"

namespace monolayer {

/// How the host reaches a rank's memory: plain copies, complete on return.
struct memory_access {
  std::function<void(void* to, const void* from, std::size_t bytes)> read;   // device to host
  std::function<void(void* to, const void* from, std::size_t bytes)> write;  // host to device
  std::function<void(void* at, std::size_t bytes)> zero;                     // device memory
};

/// Gathers `mine` of every rank, in rank order, into `all`: the engine's own collective (MPI, torch, a pipe).
using all_gather = std::function<void(std::span<const u64> mine, std::span<u64> all)>;

/// A number that differs between programs and targets whose ranks cannot work together.
template <class T, class P>
constexpr u64 program_hash() {
  u64 h = 0xcbf29ce484222325ull;
  auto mix = [&h](u64 v) { h = (h ^ v) * 0x100000001b3ull; };
  constexpr program_info info = P::info;
  for (u64 v : {u64(info.max_rows), u64(info.top_k), u64(info.ranks), u64(T::wave_size), u64(T::arrivals),
                u64(P::largest_chunk), u64(plan<T, P>::slots_bytes), u64(plan<T, P>::mailbox_bytes)})
    mix(v);
  for (int s = 0; s < info.slot_count; ++s)
    for (u64 v : {u64(info.slots[s].columns), u64(info.slots[s].parts), u64(info.slots[s].units),
                  u64(info.slots[s].transport), u64(info.slots[s].buffers)})
      mix(v);
  return h;
}

/// Epochs after a reset start above all that any rank has used, so that no word of an aborted launch can match.
constexpr u64 epoch_after_reset(u64 newest) {
  constexpr u64 step = u64(1) << 20;
  return (newest / step + 2) * step;
}

/// Collective. Every rank calls it after its own stream is idle; nobody may launch before all have returned. Clears the
/// failure record, all counters and the slots' arrivals; no mailbox word is touched. Errors: ranks that run different
/// programs (nothing is changed then, on any rank).
template <class T, class P>
status reset(void* state, void* arrivals, const memory_access& memory, const all_gather& gather) {
  constexpr std::size_t ranks = std::size_t(P::info.ranks);
  device_state now;
  memory.read(&now, state, sizeof now);
  // The record holds the epoch at which the rank stopped, which may be beyond the newest completed one.
  const u64 stopped = u64(now.failed.epoch_high) << 32 | now.failed.epoch_low;
  const u64 mine[2] = {std::max(now.epoch, stopped), program_hash<T, P>()};
  std::vector<u64> all(2 * ranks);
  gather(mine, all);
  u64 newest = 0;
  for (std::size_t r = 0; r < ranks; ++r) {
    if (all[2 * r + 1] != mine[1])
      return error(error_code::mismatch, "program of rank " + std::to_string(r), std::to_string(all[2 * r + 1]),
                   std::to_string(mine[1]));
    newest = std::max(newest, all[2 * r]);
  }
  device_state fresh{};
  fresh.epoch = epoch_after_reset(newest);
  memory.write(state, &fresh, sizeof fresh);
  memory.zero(arrivals, plan<T, P>::arrivals_bytes);
  gather(mine, all);  // nobody launches before everybody is done
  return {};
}

}  // namespace monolayer
