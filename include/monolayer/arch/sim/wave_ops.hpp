// Lanes meet: suspension, polling pauses, cross-lane operations and barriers. The lane that arrives last
// executes the operation for its wave; nobody is resumed in between.
#pragma once

#include "monolayer/arch/sim/engine.hpp"
#include "monolayer/arch/sim/idle.hpp"
#include "monolayer/arch/sim/matrix.hpp"
#include "monolayer/arch/sim/schedule.hpp"

namespace monolayer::sim::detail {

inline void engine::lane_entry(transfer_t from) {
  *static_cast<fcontext_t*>(from.data) = from.fctx;
  engine& e = *current.machine;
  wave& w = *current.of;
  const int lane = current.lane;
  std::string thrown;
  bool threw = false;
  try {
    w.block->of->main();
  } catch (const std::exception& x) {
    threw = true, thrown = x.what();
  } catch (...) {
    threw = true, thrown = "something that is no std::exception";
  }
  if (threw) e.fail(error::exception, "device code threw: " + thrown, e.here(w, lane));
  const u64 bit = 1ull << lane;
  w.live &= ~bit, w.runnable &= ~bit;
  if (w.live == 0) {
    w.state = wave_state::done;
  } else if (w.waiting == w.live) {
    e.complete(w);
  } else if (!w.runnable) {
    e.park(w);
  }
  fcontext_t gone;
  if (w.state == wave_state::ready && w.runnable) {
    current.lane = pick_lane(w);
    jump_fcontext(w.contexts[current.lane], &gone);
  }
  jump_fcontext(e.scheduler, &gone);
}

inline void engine::check_stack(wave& w, int lane) {
  const auto left = static_cast<const char*>(__builtin_frame_address(0)) - w.stacks[lane];
  if (left < 1024) fail(error::stack, "a lane's stack is nearly full", here(w, lane));
}

inline void engine::give_way(wave& w, int lane) {
  check_stack(w, lane);
  switch_context(w.contexts[lane], scheduler);
}

/// All lanes of the wave have paused or wait for those that have. It sleeps until something that it polled
/// changes; if it has polled nothing since it woke, it comes back a few times, then sleeps until the machine
/// is idle.
inline void engine::park(wave& w) {
  if (w.looked) {
    w.blind = 0;
  } else if (++w.blind < 4) {
    w.woken = true;
  }
  w.state = w.woken ? wave_state::ready : wave_state::parked;
  if (opt.on_wait && w.state == wave_state::parked)
    opt.on_wait({here(w, -1), clock_ns, waits_in_ring(w), [this, &w] { return waits_for(w); }});
}

inline void engine::suspend(wave& w, int lane) {
  if (w.runnable) {
    check_stack(w, lane);
    const int next = pick_lane(w);
    current.lane = next;
    // The stack of the lane after that one is most likely cold: it is asked for while the next lane runs.
    const char* after = static_cast<const char*>(w.contexts[(w.descending ? next - 1 : next + 1) & (w.size - 1)]);
    for (int i = 0; i < 256; i += 64) __builtin_prefetch(after + i);
    switch_context(w.contexts[lane], w.contexts[next]);
    return;
  }
  park(w);
  give_way(w, lane);
}

inline void engine::pause() {
  wave& w = *current.of;
  const int lane = current.lane;
  ++stats.pauses;
  w.paused |= 1ull << lane;
  w.runnable &= ~(1ull << lane);
  suspend(w, lane);
}

/// Apart from rendezvous(), as is complete(): a frame that lanes are switched in stays within few cache lines.
[[gnu::noinline]] inline void engine::divergent(const wave& w, int lane, op what) {
  const int other = std::countr_zero(w.waiting);
  fail(error::divergent,
       w.current != what
           ? std::string("divergent: lane ") + std::to_string(lane) + " is at " + name_of(what) +
                 ", lane " + std::to_string(other) + " at " + name_of(w.current)
           : std::string("divergent: lanes give different arguments to ") + name_of(what),
       here(w, lane), here(w, other));
}

inline void engine::rendezvous(op what, u64 u0, u64 u1, u64 u2) {
  wave& w = *current.of;
  const int lane = current.lane;
  if (!w.waiting) {
    w.current = what;
    w.uniform[0] = u0, w.uniform[1] = u1, w.uniform[2] = u2;
  } else if (w.current != what || w.uniform[0] != u0 || w.uniform[1] != u1 || w.uniform[2] != u2) {
    divergent(w, lane, what);
  }
  const u64 bit = 1ull << lane;
  w.waiting |= bit;
  w.runnable &= ~bit;
  if (w.waiting != w.live) {
    suspend(w, lane);
    return;
  }
  complete(w);
  if (w.state != wave_state::ready || --w.budget <= 0) give_way(w, lane);
}

inline void engine::release_lanes(wave& w) {
  w.waiting = 0;
  w.runnable = w.live;
  redraw(w);
}

[[gnu::noinline]] inline void engine::complete(wave& w) {
  ++stats.rendezvous;
  const u64 live = w.live;
  switch (w.current) {
    case op::mma:
      if (live != (w.size == 64 ? ~0ull : (1ull << w.size) - 1))
        fail(error::divergent, "mma while lanes of the wave have exited", here(w, std::countr_zero(live)));
      ++stats.mma;
      if (w.size == 64) {
        multiply_wave64(w.a, w.b, w.d);
      } else {
        multiply_wave32(w.a, w.b, w.d);
      }
      break;
    case op::shuffle:
      break;
    case op::ballot: {
      w.result = w.flags & live;
      w.flags = 0;
      break;
    }
    case op::max:
    case op::min: {
      u32 best = w.current == op::max ? 0 : ~0u;
      for (u32 i = 0; i < w.size; ++i)
        if (live >> i & 1)
          best = w.current == op::max ? std::max(best, w.word[i]) : std::min(best, w.word[i]);
      w.result = best;
      break;
    }
    case op::wave_sync:
      w.clock.advance();
      break;
    case op::drain:
      if (w.block->of->target.words) {
        land_all(w);
        w.clock.drain();
      }
      break;
    case op::group_sync:
      group_arrival(w);
      return;
    case op::block_barrier:
      block_arrival(w);
      return;
    default:
      ring_op(w);
      break;
  }
  if (w.current == op::shuffle) {  // results are taken before the lanes run on and reuse w.word
    const u32 mask = static_cast<u32>(w.uniform[0]);
    u32 taken[64];
    for (u32 i = 0; i < w.size; ++i) taken[i] = w.word[(i ^ mask) & (w.size - 1)];
    for (u32 i = 0; i < w.size; ++i) w.a[i][0] = taken[i];
  }
  release_lanes(w);
}

/// Everything that the first `waves` waves of the block did comes before whatever they do next.
inline void engine::join_waves(block_state& b, int waves) {
  clock_pair local[max_block_waves];
  const u32 count = b.waves[0]->clock.count;
  ref<outer_clock> outer;
  wave_clock* collector = &b.waves[0]->clock;
  for (int v = 0; v < waves; ++v) {
    wave_clock& c = b.waves[static_cast<std::size_t>(v)]->clock;
    for (u32 i = 0; i < count; ++i) wave_clock::merge(local[i], c.local[i]);
    if (v) collector->join_outer(c.outer);
  }
  outer = collector->outer;
  for (int v = 0; v < waves; ++v) {
    wave_clock& c = b.waves[static_cast<std::size_t>(v)]->clock;
    std::copy(local, local + count, c.local);
    c.outer = outer;
    c.advance();
  }
  ++stats.barriers;
  ++progress;
}

inline void engine::group_arrival(wave& w) {
  block_state& b = *w.block;
  const int waves = b.of->target.consumer_waves;
  if (w.index >= waves)
    fail(error::divergent, "the producer wave called the consumer group's barrier", here(w, 0));
  check_group_word(static_cast<u32>(w.uniform[0]));
  w.state = wave_state::blocked;
  if (++b.group_arrived < waves) return;
  b.group_arrived = 0;
  join_waves(b, waves);
  for (int v = 0; v < waves; ++v) {
    wave& other = *b.waves[static_cast<std::size_t>(v)];
    release_lanes(other);
    if (other.state == wave_state::blocked) make_ready(other);
  }
}

inline void engine::block_arrival(wave& w) {
  block_state& b = *w.block;
  const int waves = static_cast<int>(b.waves.size());
  w.state = wave_state::blocked;
  if (++b.barrier_arrived < waves) return;
  b.barrier_arrived = 0;
  join_waves(b, waves);
  for (auto& other : b.waves) {
    release_lanes(*other);
    if (other->state == wave_state::blocked) make_ready(*other);
  }
}

}  // namespace monolayer::sim::detail
