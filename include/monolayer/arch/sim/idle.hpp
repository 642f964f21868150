// When nothing is ready: let something land, wake the polling waves, move the clock, or report a deadlock.
#pragma once

#include "monolayer/arch/sim/engine.hpp"

namespace monolayer::sim::detail {

inline std::size_t filter_slot(u64 line) { return (line * 0x9E3779B97F4A7C15ull) >> 52; }

inline void engine::watch(wave& w, const void* at) {
  const u64 line = reinterpret_cast<u64>(at) >> 6;
  w.looked = true;
  for (u64 known : w.watched)
    if (known == line) return;
  w.watched.push_back(line);
  watchers[line].push_back(&w);
  ++watch_filter[filter_slot(line)];
}

inline void engine::notify(const void* at) {
  const u64 line = reinterpret_cast<u64>(at) >> 6;
  u16& filter = watch_filter[filter_slot(line)];
  if (!filter) return;
  const auto found = watchers.find(line);
  if (found == watchers.end()) return;
  filter = static_cast<u16>(filter - found->second.size());
  for (wave* w : found->second) {
    w->watched.erase(std::find(w->watched.begin(), w->watched.end(), line));
    w->woken = true;
    if (w->state == wave_state::parked) make_ready(*w);
  }
  watchers.erase(found);
}

inline void engine::unwatch(wave& w) {
  for (u64 line : w.watched) {
    auto& list = watchers[line];
    list.erase(std::find(list.begin(), list.end(), &w));
    --watch_filter[filter_slot(line)];
    if (list.empty()) watchers.erase(line);
  }
  w.watched.clear();
}

inline void engine::apply_stops() {
  stopped_in.resize(faults.size());
  for (std::size_t i = 0; i < faults.size(); ++i) {
    const fault& f = faults[i];
    if (f.kind > fault_kind::slow_rank) continue;
    rank_state& r = ranks.at(static_cast<std::size_t>(f.rank));
    if (f.kind == fault_kind::slow_rank) {
      r.slow = true;
      continue;
    }
    if (stats.steps < f.after) continue;
    if (f.kind == fault_kind::stop_rank) r.stopped = true;
    if (!r.running || stopped_in[i] == r.running->id) continue;
    stopped_in[i] = r.running->id;
    for (auto& b : r.running->at) {
      if (f.kind == fault_kind::stop_block && b->index != f.block) continue;
      for (auto& w : b->waves) {
        if (w->state == wave_state::done || w->state == wave_state::stopped) continue;
        remove_ready(*w);
        w->state = wave_state::stopped;
      }
    }
  }
}

inline bool engine::idle() {
  ++stats.idle_rounds;
  if (!pending.empty() || !flying.empty()) {
    const u32 n = static_cast<u32>(pending.size()), all = n + static_cast<u32>(flying.size());
    const u32 pick = rng.below(all);
    if (pick < n) {
      wave& w = *pending[pick];
      land(w, rng.below(static_cast<u32>(w.stores.size())));
    } else {
      land_some(*flying[pick - n], false);
    }
    return true;
  }
  if (!delayed.empty()) {
    fire_delayed(true);
    return true;
  }
  std::vector<wave*> parked;
  bool alive = false, stopped_waves = false;
  for (auto& r : ranks) {
    if (!r.running) continue;
    for (auto& b : r.running->at)
      for (auto& w : b->waves) {
        alive |= w->state == wave_state::parked || w->state == wave_state::blocked;
        stopped_waves |= w->state == wave_state::stopped;
        if (w->state == wave_state::parked) parked.push_back(w.get());
      }
  }
  if (!alive) return false;  // finished, or only stopped waves are left
  if (parked.empty()) {
    if (stopped_waves) return false;
    deadlock("every wave waits at a barrier");
  }
  if (progress != idle_progress) {
    idle_progress = progress;
    idle_rounds = 0, idle_jump = 1000, idle_since = clock_ns;
  }
  // Polling loops may look at some words only every 64th turn, so a deadlock needs that many turns without
  // progress.
  ++idle_rounds;
  if (opt.deadlock_is_error) {
    if (idle_rounds > 200) deadlock("no store, copy or arrival is left to wake anybody");
  } else {
    if (clock_ns - idle_since > opt.idle_limit_ns)
      deadlock("no progress within options::idle_limit_ns of virtual time");
    clock_ns += idle_jump;
    // 20 ms a turn while deadlines inside a GPU expire, then faster, up to a second
    idle_jump = idle_rounds < 128 ? std::min<u64>(idle_jump + idle_jump / 2, 20'000'000)
                                  : std::min<u64>(idle_jump + idle_jump / 20, 1'000'000'000);
  }
  for (wave* w : parked) make_ready(*w);
  return true;
}

/// Whether a wave that sleeps does so in its ring: for room, or for a copy that has not landed.
inline bool waits_in_ring(const wave& w) {
  return (w.current == op::ring_push || w.current == op::ring_drain || w.current == op::ring_wait) &&
         (w.waiting || !w.result);
}

inline std::string engine::waits_for(const wave& w) const {
  if (waits_in_ring(w)) return std::string("waits in ") + name_of(w.current);
  if (w.polled.empty()) return "pauses";
  std::string what = "polls ";
  for (std::size_t i = 0; i < w.polled.size() && i < 3; ++i) {
    const auto& [at, value] = w.polled[i];
    const region* where = region_of(at);
    if (i) what += ", ";
    what += where ? words(*where, at) + " (= " + std::to_string(value) + ")"
                  : "an LDS flag (= " + std::to_string(value) + ")";
  }
  return w.polled.size() > 3 ? what + ", ..." : what;
}

inline void engine::collect_waiters() {
  for (auto& r : ranks) {
    if (!r.running) continue;
    for (auto& b : r.running->at)
      for (auto& w : b->waves) {
        if (w->state == wave_state::done) continue;
        waiter entry{here(*w, 0), {}};
        if (w->state == wave_state::stopped) {
          entry.what = "stopped by a fault";
        } else if (w->state == wave_state::blocked) {
          entry.what = std::string("waits at the ") + name_of(w->current);
        } else {
          entry.what = waits_for(*w);
        }
        result.waiters.push_back(std::move(entry));
      }
  }
}

inline void engine::deadlock(const char* why) {
  collect_waiters();
  std::string text = std::string("deadlock: ") + why;
  std::size_t shown = 0;
  for (const waiter& w : result.waiters) {
    if (++shown > 40) {
      text += "\n  ... " + std::to_string(result.waiters.size() - 40) + " more";
      break;
    }
    text += "\n  " + words(w.at) + ": " + w.what;
  }
  fail(error::deadlock, text, result.waiters.empty() ? place{} : result.waiters.front().at);
}

}  // namespace monolayer::sim::detail
