// The checks of memory and LDS accesses against vector clocks, a cell a word.
#pragma once

#include <cstring>
#include <new>

#include "monolayer/arch/sim/engine.hpp"

namespace monolayer::sim::detail {

inline void engine::ensure_cells(region& r) {
  if (r.cells) return;
  r.cells = static_cast<cell*>(reserve_pages((r.bytes / 4 + 4) * sizeof(cell)));
  if (!r.cells) fail(error::limit, "no memory for the shadow of '" + r.parts[0].name + "'");
}

/// Does the access that s records come before what the wave does now? Stores to memory must also be visible:
/// to other blocks (and on CDNA to the other waves of the block) only once they were drained or released.
inline bool engine::ordered(const wave& w, const stamp& s, bool through_memory) const {
  if (s.wave == w.clock.id) return true;
  const clock_pair known = w.clock.of(s.wave);
  if (!through_memory || (!w.block->of->target.words && w.clock.same_block(s.wave)))
    return known.executed >= s.epoch;
  return known.drained >= s.epoch;
}

inline void engine::check_order(const wave& w, int lane, const region& r, const void* at, const stamp& s,
                                const char* what) {
  const bool through_memory = s.kind == access::store;
  if (!s.epoch || ordered(w, s, through_memory)) return;
  conflict(error::race, w, lane, what, words(r, at), s,
           through_memory && ordered(w, s, false)
               ? (w.block->of->target.words ? "the storing wave had not called drain_stores() before the "
                                              "barrier or arrival that orders them"
                                            : "no release (arrival) made the store visible")
               : "nothing orders the two (no arrival seen by a poll, no barrier)");
}

inline void engine::check_scope(const wave& w, int lane, const region& r, const void* at, const stamp& s,
                                const char* what) {
  if (!r.part(at).group_scope || s.epoch < w.block->of->first_epoch) return;
  const int block = identities[s.wave].block, from = opt.group_of ? opt.group_of(block) : block % opt.groups;
  if (from == w.block->group) return;
  conflict(error::group_scope, w, lane, what, words(r, at), s,
           "the data has group scope, and the two blocks are in different groups");
}

/// Keeps at most two readers a word: those that the present one does not follow, at random if there are more.
inline void engine::note_reader(wave& w, cell& c, const stamp& me, u32 first_epoch) {
  for (stamp& old : c.read) {
    if (old == me) return;
    if (old.wave == me.wave && old.epoch == me.epoch) {
      old.lane = several_lanes;
      return;
    }
    if (old.epoch < first_epoch || old.wave == me.wave || w.clock.of(old.wave).executed >= old.epoch) {
      old = me;
      return;
    }
  }
  const u64 r = rng.next();
  if (r & 1) c.read[r >> 1 & 1] = me;
}

inline void engine::note_load(wave& w, int lane, region& r, const void* at, u32 bytes, const char* what) {
  ensure_cells(r);
  const u32 first = w.block->of->first_epoch;
  const stamp me{w.clock.access_epoch(), static_cast<u16>(w.clock.id), static_cast<u8>(lane), access::load};
  const u8* word = static_cast<const u8*>(at);
  const memory kind = r.part(at).kind;
  cell* c = &r.cell_at(at);
  for (u32 i = 0; i < bytes; i += 4, word += 4, ++c) {
    for (int h = 0; h < 2; ++h) {
      const stamp& s = c->write[h];
      if (h && s == c->write[0]) break;
      if (s.epoch == 0) {
        if (kind == memory::slot && r.filled == fill::poison)
          fail(error::early_read,
               std::string("early read: ") + what + " of " + words(r, word) + ", which nobody has written",
               here(w, lane));
        continue;
      }
      if (kind == memory::output && s.epoch >= first)
        conflict(error::output_read, w, lane, what, words(r, word), s,
                 "an output is never read in the launch that stores it");
      check_order(w, lane, r, word, s, what);
      check_scope(w, lane, r, word, s, what);
    }
    if (!polled_kind(c->write[0].kind)) note_reader(w, *c, me, 0);
  }
}

inline void engine::note_store(wave& w, int lane, region& r, void* at, u32 bytes, const char* what,
                               access kind) {
  ensure_cells(r);
  const stamp me{w.clock.access_epoch(), static_cast<u16>(w.clock.id), static_cast<u8>(lane), kind};
  u8* word = static_cast<u8*>(at);
  const bool polled = polled_kind(kind);
  cell* c = &r.cell_at(at);
  for (u32 i = 0; i < bytes; i += 4, word += 4, ++c) {
    const int first_half = bytes == 2 ? (reinterpret_cast<u64>(at) >> 1 & 1) : 0,
              last_half = bytes == 2 ? first_half : 1;
    const bool was_polled = polled_kind(c->write[0].kind);
    if (!(polled && was_polled)) {
      for (int h = first_half; h <= last_half; ++h) check_order(w, lane, r, word, c->write[h], what);
      if (!was_polled)
        for (const stamp& s : c->read) check_order(w, lane, r, word, s, what);
      if (polled != was_polled) c->polled = {};
    }
    for (int h = first_half; h <= last_half; ++h) c->write[h] = me;
    if (polled != was_polled && bytes == 2) c->write[1 - first_half] = me;
    if (!polled && bytes != 2) c->read[0] = c->read[1] = {};
  }
}

/// A poll or tagged load of one word: what its last store (a counter's adders) knew is known now.
inline void engine::acquire_word(wave& w, int lane, region& r, const void* at, const char* what) {
  if (!r.cells) return;
  const cell& c = r.cell_at(at);
  if (!c.write[0].epoch) return;
  if (!polled_kind(c.write[0].kind)) {
    check_order(w, lane, r, at, c.write[0], what);
    return;
  }
  check_scope(w, lane, r, at, c.write[0], what);
  if (!c.polled.sync) return;
  const sync_object& s = syncs[c.polled.sync];
  stats.joins += w.clock.acquire(*s.last);
  for (const auto& other : s.others) stats.joins += w.clock.acquire(*other);
}

/// A polled word's store lands.
inline void engine::publish_word(const pending_store& s) {
  cell& c = s.where->cell_at(s.at);
  if (!polled_kind(c.write[0].kind)) return;
  if (!c.polled.sync) {
    c.polled.sync = static_cast<u32>(syncs.size());
    syncs.emplace_back();
  }
  sync_object& object = syncs[c.polled.sync];
  if (s.adds && object.last && object.last->wave != s.release->wave) {
    bool replaced = false;
    for (auto& other : object.others)
      if (other->wave == object.last->wave) other = object.last, replaced = true;
    if (!replaced) object.others.push_back(object.last);
  } else if (!s.adds) {
    object.others.clear();
  }
  object.last = s.release;
  if (s.kind == access::tagged) {
    c.polled.readers = 0;
    object.readers.clear();
    if (c.polled.on_the_way) --c.polled.on_the_way;
  }
}

inline void engine::note_tagged_read(wave& w, region& r, const void* at) {
  if (r.expected.empty() || !r.cells) return;
  cell& c = r.cell_at(at);
  if (!polled_kind(c.write[0].kind) || !c.polled.sync) return;
  if (r.expected[static_cast<std::size_t>(static_cast<const u8*>(at) - r.base) / 8] <= 1) {
    c.polled.readers = 1;
    return;
  }
  auto& readers = syncs[c.polled.sync].readers;
  for (u16 known : readers)
    if (known == w.clock.id) return;
  readers.push_back(static_cast<u16>(w.clock.id));
  ++c.polled.readers;
}

inline void engine::check_unread(wave& w, int lane, region& r, void* at, u64 word) {
  cell& c = r.cell_at(at);
  const u32 before = c.polled.on_the_way++;
  const u32 expected =
      r.expected.empty() ? 0 : r.expected[static_cast<std::size_t>(static_cast<u8*>(at) - r.base) / 8];
  if (!expected) return;
  u64 old;
  std::memcpy(&old, at, 8);
  const bool landed_unread = c.polled.sync && old >> 32 != word >> 32 && c.polled.readers < expected;
  if (!before && !landed_unread) return;
  fail(error::unread_overwrite,
       "unread word overwritten: tagged_store to " + words(r, at) + " with tag " +
           std::to_string(word >> 32) +
           (before ? std::string(" while an earlier store to it has not even landed")
                   : " while tag " + std::to_string(old >> 32) + " was loaded by " +
                         std::to_string(c.polled.readers) + " of " + std::to_string(expected) + " readers"),
       here(w, lane));
}

// ---- LDS

inline void engine::lds_conflict(const wave& w, int lane, const char* what, u32 at, const stamp& earlier) {
  conflict(error::lds, w, lane, what, "LDS " + std::to_string(at), earlier,
           earlier.wave == w.clock.id ? "lanes of one wave need wave_sync() between them"
                                      : "no barrier, flag or ring orders the two waves");
}

inline void engine::note_lds_load(wave& w, int lane, u32 at, u32 bytes) {
  const block_state& b = *w.block;
  const u32 first = b.of->first_epoch, now = w.clock.access_epoch();
  const stamp me{now, static_cast<u16>(w.clock.id), static_cast<u8>(lane), access::load};
  cell* c = b.memory->cells + (at >> 2);
  for (u32 end = at + bytes; at < end; at += 4, ++c) {
    for (int h = 0; h < 2; ++h) {
      const stamp& s = c->write[h];
      if (h && s == c->write[0]) break;
      if (s.epoch < first)
        fail(error::lds,
             "LDS: load at " + std::to_string(at) + " of a word that nobody has written in this launch",
             here(w, lane));
      if (s.wave == me.wave ? s.epoch == now && s.lane != me.lane : w.clock.of(s.wave).executed < s.epoch)
        lds_conflict(w, lane, "load", at, s);
    }
    if (!polled_kind(c->write[0].kind)) note_reader(w, *c, me, first);
  }
}

inline void engine::note_lds_store(wave& w, int lane, u32 at, u32 bytes, const void* value) {
  const block_state& b = *w.block;
  const u32 first = b.of->first_epoch, now = w.clock.access_epoch();
  const stamp me{now, static_cast<u16>(w.clock.id), static_cast<u8>(lane),
                 bytes == 1 ? access::byte_store : access::store};
  const bool small = bytes < 4;
  const int first_half = small ? static_cast<int>(at >> 1 & 1) : 0, last_half = small ? first_half : 1;
  cell* c = b.memory->cells + (at >> 2);
  for (u32 i = 0; i < bytes; i += 4, ++c) {
    // All lanes of a wave may store the same value to the same place.
    const auto same_value = [&] {
      const u32 n = small ? bytes : 4;
      return value && std::memcmp(b.lds + at + i, static_cast<const u8*>(value) + i, n) == 0;
    };
    for (int h = first_half; h <= last_half; ++h) {
      const stamp& s = c->write[h];
      if (s.epoch < first || (s.kind == access::byte_store && me.kind == access::byte_store)) continue;
      if (s.wave == me.wave ? s.epoch == now && s.lane != me.lane && !same_value()
                            : w.clock.of(s.wave).executed < s.epoch)
        lds_conflict(w, lane, "store", at + i, s);
    }
    for (const stamp& s : c->read) {
      if (s.epoch < first) continue;
      if (s.wave == me.wave ? s.epoch == now && s.lane != me.lane && !same_value()
                            : w.clock.of(s.wave).executed < s.epoch)
        lds_conflict(w, lane, "store", at + i, s);
    }
    if (!small) c->read[0] = c->read[1] = {};
    for (int h = first_half; h <= last_half; ++h) c->write[h] = me;
  }
}

/// Adds of several waves need no order among themselves; the newest adders of two waves are kept for what comes after.
inline void engine::note_lds_add(wave& w, int lane, u32 at) {
  const block_state& b = *w.block;
  const u32 first = b.of->first_epoch, now = w.clock.access_epoch();
  const stamp me{now, static_cast<u16>(w.clock.id), static_cast<u8>(lane), access::lds_add};
  cell& c = b.memory->cells[at >> 2];
  for (const stamp& s : {c.write[0], c.write[1]}) {
    if (s.epoch < first)
      fail(error::lds,
           "LDS: fetch_add at " + std::to_string(at) + " of a word that nobody has written in this launch",
           here(w, lane));
    if (s.kind == access::lds_add) continue;
    if (s.wave == me.wave ? s.epoch == now && s.lane != me.lane : w.clock.of(s.wave).executed < s.epoch)
      lds_conflict(w, lane, "fetch_add", at, s);
  }
  for (const stamp& s : {c.read[0], c.read[1]}) {
    if (s.epoch < first) continue;
    if (s.wave == me.wave ? s.epoch == now && s.lane != me.lane : w.clock.of(s.wave).executed < s.epoch)
      lds_conflict(w, lane, "fetch_add", at, s);
  }
  c.read[0] = c.read[1] = {};
  if (c.write[0].kind != access::lds_add || c.write[0].wave != me.wave) c.write[1] = c.write[0];
  if (c.write[1].kind != access::lds_add) c.write[1] = me;
  c.write[0] = me;
}

}  // namespace monolayer::sim::detail
