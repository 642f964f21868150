// The ring's copy engine: chunks land as late as is legal (in order of issue on CDNA, in any order on
// sm_90a), their bytes are taken at issue or at landing, and until then the slot holds poison. Flags live
// here, not in LDS.
#pragma once

#include <cstring>

#include "monolayer/arch/sim/engine.hpp"

namespace monolayer::sim::detail {

inline ring_state& engine::ring_of(block_state& b, u32 control) {
  for (auto& r : b.rings)
    if (r->shape.control == control) return *r;
  fail(error::ring, "ring: used before init()", here(*current.of, current.lane));
}

/// One ring operation of a wave; u0 is the ring's control address.
inline void engine::ring_op(wave& w) {
  block_state& b = *w.block;
  const auto wrong = [&](const char* what) {
    fail(error::ring, std::string("ring: ") + what, here(w, current.lane));
  };
  if (w.current == op::ring_init) {
    auto r = std::make_unique<ring_state>();
    ring_geometry& g = r->shape;
    g.control = static_cast<u32>(w.uniform[0]), g.slots = static_cast<u32>(w.uniform[0] >> 32);
    g.slot_bytes = static_cast<u32>(w.uniform[1]), g.count = static_cast<u32>(w.uniform[1] >> 32);
    g.cap = static_cast<u32>(w.uniform[2]);
    if (g.count < 2 || g.count > 64 || g.cap < 1 || g.cap > g.count)
      wrong("2 to 64 slots and a cap of 1 to count");
    if (g.slot_bytes % 128 || !g.slot_bytes || g.slots % 16 || g.control % 16) wrong("misaligned geometry");
    const u64 end = u64{g.slots} + u64{g.count} * g.slot_bytes;
    if (end > b.lds_bytes || u64{g.control} + 16 * g.count > b.lds_bytes)
      wrong("does not fit into the launch's LDS");
    if (!b.rings.empty()) wrong("a block has one ring");
    r->block = &b;
    r->slots.resize(g.count);
    r->in_order = b.of->target.ring_in_order;
    r->hold_limit = rng.below(4);
    r->landing = static_cast<int>(rng.below(3));
    std::memset(b.lds + g.slots, 0xA5, u64{g.count} * g.slot_bytes);
    b.ring_begin = g.slots, b.ring_end = static_cast<u32>(end);
    b.control_begin = g.control, b.control_end = g.control + 16 * g.count;
    if (opt.checks)
      for (u32 at = b.control_begin; at < b.control_end; at += 16)
        note_lds_store(w, current.lane, at, 16, nullptr);
    b.rings.push_back(std::move(r));
    return;
  }
  ring_state& r = ring_of(b, static_cast<u32>(w.uniform[0]));
  const u32 count = r.shape.count;
  w.result = 1;
  switch (w.current) {
    case op::ring_push: {
      ring_slot& s = r.slots[r.pushed % count];
      if (s.used && s.credits == ring_credits && opt.checks) {
        if (s.read & ~s.released)
          wrong("a wave read the chunk that push() replaces and has not given it back");
        for (auto& g : s.given) stats.joins += w.clock.acquire(*g);
      }
      if ((s.used && s.credits < ring_credits) || r.flying.size() + r.held.size() >= r.shape.cap) {
        start_held(r);
        watch(w, &r);
        w.result = 0;
        return;
      }
      const u32 bytes = static_cast<u32>(w.uniform[2]);
      const u8* source = reinterpret_cast<const u8*>(w.uniform[1]);
      if (bytes % 16 || !bytes || bytes > r.shape.slot_bytes)
        wrong("a chunk is a multiple of 16 bytes, at most slot_bytes");
      region* from = region_of(source);
      if (!from || source + bytes > from->base + from->bytes || w.uniform[1] % 16)
        fail(error::bounds,
             "ring: push() of " + std::to_string(bytes) +
                 " bytes from outside every allocation or misaligned" +
                 (from ? ", " + words(*from, source) : std::string()),
             here(w, current.lane));
      const annotation& part = from->part(source);
      if (part.kind != memory::plain && part.kind != memory::output)
        fail(error::access,
             "ring: push() from " + words(*from, source) + ", which is neither plain nor an output",
             here(w, current.lane));
      if (part.kind == memory::output && opt.checks)
        for (u32 i = 0; i < bytes; i += 16) note_load(w, current.lane, *from, source + i, 16, "ring push");
      s.chunk = r.pushed++, s.bytes = bytes, s.source = source;
      s.used = true, s.started = s.landed = false;
      s.credits = 0, s.waited = s.read = s.released = 0;
      s.given.clear();
      if (opt.checks) s.pushed = w.clock.release();
      std::memset(b.lds + r.shape.slots + s.chunk % count * r.shape.slot_bytes, 0xA5, r.shape.slot_bytes);
      r.held.push_back(s.chunk);
      ++progress;
      if (r.held.size() > r.hold_limit) start_held(r);
      return;
    }
    case op::ring_flush:
      start_held(r);
      return;
    case op::ring_drain:
      start_held(r);
      w.result = r.flying.empty();
      if (!w.result) watch(w, &r);
      return;
    case op::ring_wait: {
      const u32 n = static_cast<u32>(w.uniform[1]);
      ring_slot& s = r.slots[n % count];
      if (s.used && static_cast<int>(n - s.chunk) < 0)
        wrong("wait_full() for a chunk that was already replaced");
      if (!s.used || s.chunk != n || !s.landed) {
        watch(w, &r);
        w.result = 0;
        return;
      }
      s.waited |= u64{1} << w.index;
      if (opt.checks) stats.joins += w.clock.acquire(*s.pushed);
      return;
    }
    case op::ring_release: {
      const u32 n = static_cast<u32>(w.uniform[1]), credits = static_cast<u32>(w.uniform[2]);
      ring_slot& s = r.slots[n % count];
      if (!s.used || s.chunk != n) wrong("release() of a chunk that is not in its slot");
      if (!(s.waited >> w.index & 1)) wrong("release() of a chunk that the wave has not waited for");
      if (s.released >> w.index & 1) wrong("release() of a chunk twice by one wave");
      if (s.credits + credits > ring_credits) wrong("more than ring_credits credits given back");
      s.released |= u64{1} << w.index;
      s.credits += credits;
      if (opt.checks) s.given.push_back(w.clock.release());
      ++progress;
      if (s.credits == ring_credits) notify(&r);
      return;
    }
    default:
      fail(error::ring, "ring: unknown operation", here(w, current.lane));
  }
}

inline void engine::start_held(ring_state& r) {
  for (u32 n : r.held) {
    ring_slot& s = r.slots[n % r.shape.count];
    s.started = true;
    ++stats.chunks;
    s.early.clear();
    if (rng.one_in(2)) s.early.assign(s.source, s.source + s.bytes);
    if (r.flying.empty()) {
      r.flying_index = static_cast<int>(flying.size());
      flying.push_back(&r);
    }
    r.flying.push_back(n);
  }
  r.held.clear();
}

inline void engine::land_chunk(ring_state& r, std::size_t i) {
  const u32 n = r.flying[i];
  ring_slot& s = r.slots[n % r.shape.count];
  u8* to = r.block->lds + r.shape.slots + n % r.shape.count * r.shape.slot_bytes;
  std::memcpy(to, s.early.empty() ? s.source : s.early.data(), s.bytes);
  s.landed = true;
  r.flying.erase(r.flying.begin() + static_cast<std::ptrdiff_t>(i));
  if (r.flying.empty()) {
    flying.back()->flying_index = r.flying_index;
    flying[static_cast<std::size_t>(r.flying_index)] = flying.back();
    flying.pop_back();
    r.flying_index = -1;
  }
  ++progress;
  notify(&r);
}

inline void engine::land_some(ring_state& r, bool all) {
  do {
    land_chunk(r, r.in_order ? 0 : rng.below(static_cast<u32>(r.flying.size())));
  } while (!r.flying.empty() && (all || rng.one_in(3)));
}

/// A lane reads ring bytes: the chunk must have landed, the wave must have waited for it and not given it
/// back.
inline void engine::check_ring_read(wave& w, int lane, u32 at, u32 bytes) {
  ring_state& r = *w.block->rings.front();
  const u32 offset = at - r.shape.slots, slot = offset / r.shape.slot_bytes;
  ring_slot& s = r.slots[slot];
  const u64 bit = u64{1} << w.index;
  if ((s.waited & bit) && !(s.released & bit) && s.landed &&
      offset - slot * r.shape.slot_bytes + bytes <= s.bytes) {
    s.read |= bit;
    return;
  }
  const std::string chunk = "ring: read of slot " + std::to_string(slot) + " (chunk " +
                            std::to_string(s.chunk) + ") + " +
                            std::to_string(offset - slot * r.shape.slot_bytes) + " ";
  fail(error::ring,
       chunk + (!s.used              ? "that no push() filled"
                : !s.landed          ? "before it landed"
                : !(s.waited & bit)  ? "without wait_full()"
                : (s.released & bit) ? "after the wave gave it back"
                                     : "beyond its bytes"),
       here(w, lane));
}

}  // namespace monolayer::sim::detail
