// Every wait of a launch goes through a watch: it ends the wait when the block aborts, when this rank or a peer has
// failed, or when the deadline has passed.
#pragma once

#include "monolayer/core/abi.hpp"

namespace monolayer {

template <class T>
struct watch {
  lds_address abort_flag;
  const device_state* state;  // null: the abort flag alone (the producer, whose loads must stay in flight)
  u64 limit_ns;
  u64 start_ns = 0;
  u32 polls = 0;
  bool timed_out = false;

  /// Called at each failed poll. The clock and the failure word cost a memory access, so they are read rarely.
  MONOLAYER_DEVICE bool give_up() {
    T::pause();
    if ((++polls & 15u) != 0) return false;
    if (T::lds_flag_load(abort_flag) != 0) return true;
    if ((polls & 63u) != 0) return false;
    if (state != nullptr && T::poll4(&state->failed.word) != 0) return true;
    const u64 now = T::clock_ns();
    if (start_ns == 0) start_ns = now;
    timed_out = now - start_ns > limit_ns;
    return timed_out;
  }
};

}  // namespace monolayer
