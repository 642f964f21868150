// Stores land late: each wave has a queue, and stores to different 16 bytes land in any order. A wave's queue
// is emptied by drain_stores() on CDNA, by a release on sm_90a, and at the end of the launch.
#pragma once

#include <cstring>

#include "monolayer/arch/sim/engine.hpp"

namespace monolayer::sim::detail {

inline void engine::queue_store(wave& w, pending_store&& s) {
  ++stats.stores;
  if (!faults.empty() && s.kind != access::store && faulty(w, s)) return;
  if (w.stores.empty()) {
    w.landing = static_cast<int>(rng.below(3));
    w.pending_index = static_cast<int>(pending.size());
    pending.push_back(&w);
    ++w.block->pending_waves;
  }
  s.sequence = w.store_sequence++;
  w.stores.push_back(std::move(s));
  if (w.stores.size() > 256) land(w, rng.below(256));
}

/// Applies the faults of arrivals and tagged stores; true if the store must not be queued.
inline bool engine::faulty(wave& w, pending_store& s) {
  const auto rank = static_cast<std::size_t>(w.block->of->rank);
  const bool tagged = s.kind == access::tagged;
  auto& seen = tagged ? tagged_seen : arrivals_seen;
  const u64 of_rank = seen[rank]++, of_all = seen.back()++;
  for (const fault& f : faults) {
    if (f.kind < fault_kind::lose_arrival || (f.kind >= fault_kind::lose_tagged) != tagged) continue;
    if (f.rank >= 0 && f.rank != static_cast<int>(rank)) continue;
    if (f.nth != (f.rank >= 0 ? of_rank : of_all)) continue;
    const int what = (static_cast<int>(f.kind) - static_cast<int>(fault_kind::lose_arrival)) % 3;
    if (tagged && opt.checks && what != 2) --s.where->cell_at(s.at).polled.on_the_way;
    if (what == 0) return true;
    delayed.push_back({f.delay_ns ? clock_ns + f.delay_ns : 0, static_cast<u32>(rank), s});
    if (what == 1) return true;
  }
  return false;
}

inline void engine::fire_delayed(bool idle) {
  if (idle) {  // the clock jumps to the earliest one that is due, or one without a time
    std::size_t best = 0;
    for (std::size_t i = 1; i < delayed.size(); ++i)
      if (delayed[i].due < delayed[best].due) best = i;
    clock_ns = std::max(clock_ns, delayed[best].due);
    delayed[best].due = 1;
  }
  for (std::size_t i = 0; i < delayed.size();) {
    if (!delayed[i].due || delayed[i].due > clock_ns) {
      ++i;
      continue;
    }
    perform(delayed[i].store);
    delayed.erase(delayed.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

inline void engine::perform(pending_store& s) {
  if (s.adds) {
    u32 value, units;
    std::memcpy(&value, s.at, 4);
    std::memcpy(&units, s.data, 4);
    value += units;
    std::memcpy(s.at, &value, 4);
  } else {
    std::memcpy(s.at, s.data, s.bytes);
  }
  if (s.release) publish_word(s);
  ++progress;
  notify(s.at);
}

/// Lands store i, or the oldest one to the same 16 bytes.
inline void engine::land(wave& w, std::size_t i) {
  const u64 granule = reinterpret_cast<u64>(w.stores[i].at) >> 4;
  for (std::size_t j = 0; j < w.stores.size(); ++j)
    if (reinterpret_cast<u64>(w.stores[j].at) >> 4 == granule && w.stores[j].sequence < w.stores[i].sequence)
      i = j;
  perform(w.stores[i]);
  if (i + 1 != w.stores.size()) w.stores[i] = std::move(w.stores.back());
  w.stores.pop_back();
  settle(w);
}

inline void engine::settle(wave& w) {
  if (!w.stores.empty() || w.pending_index < 0) return;
  pending.back()->pending_index = w.pending_index;
  pending[static_cast<std::size_t>(w.pending_index)] = pending.back();
  pending.pop_back();
  w.pending_index = -1;
  --w.block->pending_waves;
}

inline void engine::land_up_to(wave& w, u32 epoch) {
  if (w.stores.empty()) return;
  std::sort(w.stores.begin(), w.stores.end(), [](const pending_store& x, const pending_store& y) {
    return static_cast<int>(x.sequence - y.sequence) < 0;
  });
  std::size_t kept = 0;
  for (std::size_t i = 0; i < w.stores.size(); ++i) {
    if (w.stores[i].epoch <= epoch) {
      perform(w.stores[i]);
    } else {
      if (kept != i) w.stores[kept] = std::move(w.stores[i]);
      ++kept;
    }
  }
  w.stores.resize(kept);
  settle(w);
}
inline void engine::land_all(wave& w) { land_up_to(w, ~0u); }

inline void engine::land_overlapping(wave& w, const void* at, u32 bytes) {
  const u8* from = static_cast<const u8*>(at);
  for (;;) {
    std::size_t found = w.stores.size();
    for (std::size_t i = 0; i < w.stores.size(); ++i)
      if (w.stores[i].at < from + bytes && from < w.stores[i].at + w.stores[i].bytes) found = i;
    if (found == w.stores.size()) return;
    land(w, found);
  }
}

/// A wave sees its own stores; on sm_90a also those of its block's other waves (what orders them is checked
/// apart).
inline void engine::see_own_stores(wave& w, const void* at, u32 bytes) {
  block_state& b = *w.block;
  if (!b.pending_waves) return;
  if (b.of->target.words) {
    if (!w.stores.empty()) land_overlapping(w, at, bytes);
    return;
  }
  for (auto& other : b.waves)
    if (!other->stores.empty()) land_overlapping(*other, at, bytes);
}

/// A release on sm_90a makes visible what this wave knows of its block's stores.
inline void engine::flush_block(wave& w) {
  block_state& b = *w.block;
  for (auto& other : b.waves)
    if (!other->stores.empty()) land_up_to(*other, w.clock.of(other->clock.id).executed);
  if (w.clock.released) w.clock.advance();
  for (u32 i = 0; i < w.clock.count; ++i) w.clock.local[i].drained = w.clock.local[i].executed;
}

inline void engine::background() {
  if (!pending.empty() && rng.one_in(land_period)) {
    wave& w = *pending[rng.below(static_cast<u32>(pending.size()))];
    if (w.landing == 0) {
      land_all(w);
    } else if (w.landing == 1 || rng.one_in(64)) {
      for (u32 n = 1 + rng.below(static_cast<u32>(w.stores.size())); n && !w.stores.empty(); --n)
        land(w, rng.below(static_cast<u32>(w.stores.size())));
    }
  }
  if (!flying.empty() && rng.one_in(land_period)) {
    ring_state& r = *flying[rng.below(static_cast<u32>(flying.size()))];
    if (r.landing == 0) {
      land_some(r, true);
    } else if (r.landing == 1 || rng.one_in(64)) {
      land_some(r, false);
    }
  }
}

}  // namespace monolayer::sim::detail
