// Accesses to LDS, by lanes.
#pragma once

#include <cstring>

#include "monolayer/arch/sim/engine.hpp"

namespace monolayer::sim::detail {

inline u8* engine::lds(u32 at, u32 bytes, const char* what) {
  const block_state& b = *current.of->block;
  if (u64{at} + bytes > b.lds_bytes || (at & (bytes - 1)))
    fail(error::lds,
         std::string("LDS: ") + what + " of " + std::to_string(bytes) + " bytes at " + std::to_string(at) +
             ((at & (bytes - 1)) ? " is misaligned"
                                 : " is beyond the launch's " + std::to_string(b.lds_bytes) + " bytes"),
         here(*current.of, current.lane));
  return b.lds + at;
}

inline void engine::lds_load(void* to, u32 at, u32 bytes) {
  const u8* from = lds(at, bytes, "load");
  wave& w = *current.of;
  const block_state& b = *w.block;
  if (at < b.ring_end && at >= b.ring_begin) {
    check_ring_read(w, current.lane, at, bytes);
  } else if (opt.checks) {
    note_lds_load(w, current.lane, at, bytes);
  }
  copy_small(to, from, bytes);
}

inline void engine::lds_store(u32 at, const void* from, u32 bytes) {
  u8* to = lds(at, bytes, "store");
  wave& w = *current.of;
  const block_state& b = *w.block;
  if (at < b.ring_end && at >= b.ring_begin)
    fail(error::ring, "ring: a lane stores into the ring, LDS " + std::to_string(at), here(w, current.lane));
  if (at < b.control_end && at >= b.control_begin)
    fail(error::ring, "ring: a lane stores over the ring's flags, LDS " + std::to_string(at),
         here(w, current.lane));
  if (opt.checks) note_lds_store(w, current.lane, at, bytes, from);
  copy_small(to, from, bytes);
}

inline u32 engine::lds_fetch_add(u32 at, u32 value) {
  u8* to = lds(at, 4, "fetch_add");
  wave& w = *current.of;
  const block_state& b = *w.block;
  if ((at < b.ring_end && at >= b.ring_begin) || (at < b.control_end && at >= b.control_begin))
    fail(error::ring, "ring: a lane adds to the ring or its flags, LDS " + std::to_string(at), here(w, current.lane));
  if (opt.checks) note_lds_add(w, current.lane, at);
  u32 old;
  std::memcpy(&old, to, 4);
  const u32 sum = old + value;
  std::memcpy(to, &sum, 4);
  return old;
}

inline void engine::lds_flag_store(u32 at, u32 value) {
  u8* to = lds(at, 4, "flag store");
  wave& w = *current.of;
  block_state& b = *w.block;
  if (opt.checks) {
    cell& c = b.memory->cells[at >> 2];
    const u32 first = b.of->first_epoch;
    const bool flag = polled_kind(c.write[0].kind) && c.write[0].epoch >= first;
    if (!flag)
      for (const stamp& s : {c.write[0], c.write[1], c.read[0], c.read[1]})
        if (s.epoch >= first && !ordered(w, s, false)) lds_conflict(w, current.lane, "flag store", at, s);
    c.read[0] = c.read[1] = {};
    c.write[0] = c.write[1] = {w.clock.access_epoch(), static_cast<u16>(w.clock.id),
                               static_cast<u8>(current.lane), access::atomic};
    std::size_t i = 0;
    while (i < b.flags.size() && b.flags[i].first != at) ++i;
    if (i == b.flags.size()) b.flags.emplace_back(at, ref<snapshot>());
    b.flags[i].second = w.clock.release();
  }
  std::memcpy(to, &value, 4);
  ++progress;
  notify(to);
}

inline u32 engine::lds_flag_load(u32 at) {
  const u8* from = lds(at, 4, "flag load");
  wave& w = *current.of;
  poll_point(w, current.lane);
  watch(w, from);
  u32 value;
  std::memcpy(&value, from, 4);
  if (w.polled.size() < 4) w.polled.emplace_back(from, value);
  if (opt.checks) {
    block_state& b = *w.block;
    const stamp s = b.memory->cells[at >> 2].write[0];
    if (s.epoch < b.of->first_epoch)
      fail(error::lds,
           "LDS: flag load at " + std::to_string(at) + " of a word that nobody has written in this launch",
           here(w, current.lane));
    if (polled_kind(s.kind)) {
      for (const auto& [flag, released] : b.flags)
        if (flag == at && released) stats.joins += w.clock.acquire(*released);
    } else if (!ordered(w, s, false)) {
      lds_conflict(w, current.lane, "flag load", at, s);
    }
  }
  return value;
}

/// The consumer group's barrier counts in LDS on CDNA, so its words must have been zeroed in this launch.
inline void engine::check_group_word(u32 at) {
  wave& w = *current.of;
  block_state& b = *w.block;
  if (!opt.checks || !b.of->target.words || b.group_checked) return;
  b.group_checked = true;
  for (u32 i = 0; i < 16; i += 4) {
    u32 value;
    std::memcpy(&value, lds(at + i, 4, "barrier"), 4);
    const stamp s = b.memory->cells[(at + i) >> 2].write[0];
    if (value || s.epoch < b.of->first_epoch || !ordered(w, s, false))
      fail(error::lds,
           "LDS: the consumer group's words at " + std::to_string(at) +
               " were not zeroed before its first sync()",
           here(w, 0));
  }
}

}  // namespace monolayer::sim::detail
