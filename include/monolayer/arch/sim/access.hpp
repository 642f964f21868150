// Accesses to global memory, by lanes.
#pragma once

#include <cstring>

#include "monolayer/arch/sim/engine.hpp"

namespace monolayer::sim::detail {

inline void engine::load(void* to, const void* at, u32 bytes) {
  region& r = bounds(at, bytes, "load");
  const memory kind = r.part(at).kind;
  if (kind != memory::plain) {
    if (kind != memory::output && kind != memory::control)
      fail(error::access, "load of " + words(r, at) + ": what is written in the launch takes slot_load",
           here(*current.of, current.lane));
    if (opt.checks) note_load(*current.of, current.lane, r, at, bytes, "load");
  }
  if (r.rank != current.of->block->of->rank)
    fail(error::access, "load of another rank's memory, " + words(r, at), here(*current.of, current.lane));
  copy_small(to, at, bytes);
}

inline pending_store make_store(engine& e, wave& w, int lane, region& r, void* at, const void* from,
                                u32 bytes, access kind) {
  pending_store s;
  s.at = static_cast<u8*>(at), s.where = &r, s.bytes = static_cast<u8>(bytes), s.lane = static_cast<u8>(lane),
  s.kind = kind;
  s.epoch = e.opt.checks ? w.clock.access_epoch() : w.clock.epoch();
  copy_small(s.data, from, bytes);
  return s;
}

inline void engine::store(void* at, const void* from, u32 bytes) {
  wave& w = *current.of;
  region& r = bounds(at, bytes, "store");
  if (r.part(at).kind != memory::output || r.rank != w.block->of->rank)
    fail(error::access, "store to " + words(r, at) + ", which is no output of this rank",
         here(w, current.lane));
  if (opt.checks) note_store(w, current.lane, r, at, bytes, "store", access::store);
  queue_store(w, make_store(*this, w, current.lane, r, at, from, bytes, access::store));
}

inline void engine::slot_load(void* to, const void* at, u32 bytes) {
  wave& w = *current.of;
  region& r = bounds(at, bytes, "slot_load");
  const memory kind = r.part(at).kind;
  if ((kind != memory::slot && kind != memory::control) || r.rank != w.block->of->rank)
    fail(error::access, "slot_load of " + words(r, at) + ", which is no slot of this rank",
         here(w, current.lane));
  ++stats.loads;
  see_own_stores(w, at, bytes);
  if (opt.checks) note_load(w, current.lane, r, at, bytes, "slot_load");
  copy_small(to, at, bytes);
}

inline void engine::slot_store(void* at, const void* from, u32 bytes) {
  wave& w = *current.of;
  region& r = bounds(at, bytes, "slot_store");
  const memory kind = r.part(at).kind;
  if ((kind != memory::slot && kind != memory::control) || r.rank != w.block->of->rank)
    fail(error::access, "slot_store to " + words(r, at) + ", which is no slot of this rank",
         here(w, current.lane));
  if (opt.checks) note_store(w, current.lane, r, at, bytes, "slot_store", access::store);
  queue_store(w, make_store(*this, w, current.lane, r, at, from, bytes, access::store));
}

/// A counter's arrival releases (sm_90a); a word's is one more late store that carries no order of its own
/// (CDNA).
inline void engine::arrive(void* at, u32 value, bool system) {
  wave& w = *current.of;
  const char* what = system ? "arrive_system" : "arrive";
  region& r = bounds(at, 4, what);
  const memory kind = r.part(at).kind;
  if (kind == memory::plain || kind == memory::output ||
      (!system && (r.rank != w.block->of->rank || kind == memory::mailbox)))
    fail(error::access, std::string(what) + " at " + words(r, at) + ", which takes no such arrival",
         here(w, current.lane));
  const bool words_kind = w.block->of->target.words;
  if (!words_kind) flush_block(w);
  if (opt.checks) note_store(w, current.lane, r, at, 4, what, access::arrival);
  pending_store s = make_store(*this, w, current.lane, r, at, &value, 4, access::arrival);
  s.adds = !words_kind && !system;
  if (opt.checks) s.release = w.clock.release();
  const std::size_t before = w.stores.size();
  queue_store(w, std::move(s));
  if (!words_kind && w.stores.size() > before) land(w, w.stores.size() - 1);
}

inline void engine::poll(void* to, const void* at, u32 bytes) {
  wave& w = *current.of;
  const int lane = current.lane;
  ++stats.polls;
  poll_point(w, lane);
  region& r = bounds(at, bytes, "poll");
  const memory kind = r.part(at).kind;
  if (kind == memory::plain || kind == memory::output ||
      (kind != memory::control && r.rank != w.block->of->rank))
    fail(error::access, "poll of " + words(r, at) + ", which is no word that arrivals change", here(w, lane));
  see_own_stores(w, at, bytes);
  watch(w, at);
  copy_small(to, at, bytes);
  if (w.polled.size() < 4) {
    u32 value;
    std::memcpy(&value, to, 4);
    w.polled.emplace_back(at, value);
  }
  if (opt.checks)
    for (u32 i = 0; i < bytes; i += 4) acquire_word(w, lane, r, static_cast<const u8*>(at) + i, "poll");
}

inline void engine::tagged_store(void* at, u64 word, bool peer) {
  wave& w = *current.of;
  region& r = bounds(at, 8, "tagged_store");
  const memory kind = r.part(at).kind;
  if (peer ? kind != memory::mailbox
           : (r.rank != w.block->of->rank || (kind != memory::slot && kind != memory::mailbox)))
    fail(error::access,
         std::string(peer ? "tagged_store_peer" : "tagged_store") + " to " + words(r, at) + ", which is no " +
             (peer ? "mailbox" : "slot or mailbox of this rank"),
         here(w, current.lane));
  if (opt.checks) {
    note_store(w, current.lane, r, at, 8, "tagged_store", access::tagged);
    check_unread(w, current.lane, r, at, word);
  }
  pending_store s = make_store(*this, w, current.lane, r, at, &word, 8, access::tagged);
  if (opt.checks) s.release = w.clock.release();
  queue_store(w, std::move(s));
}

inline void engine::tagged_load(void* to, const void* at) {
  wave& w = *current.of;
  const int lane = current.lane;
  ++stats.polls;
  poll_point(w, lane);
  region& r = bounds(at, 16, "tagged_load");
  const memory kind = r.part(at).kind;
  if ((kind != memory::slot && kind != memory::mailbox) || r.rank != w.block->of->rank)
    fail(error::access, "tagged_load of " + words(r, at) + ", which is no slot or mailbox of this rank",
         here(w, lane));
  see_own_stores(w, at, 16);
  watch(w, at);
  std::memcpy(to, at, 16);
  if (w.polled.size() < 4) {
    u32 tag;
    std::memcpy(&tag, static_cast<const u8*>(to) + 4, 4);
    w.polled.emplace_back(at, tag);
  }
  if (!opt.checks) return;
  for (u32 i = 0; i < 16; i += 8) {
    acquire_word(w, lane, r, static_cast<const u8*>(at) + i, "tagged_load");
    note_tagged_read(w, r, static_cast<const u8*>(at) + i);
  }
}

/// Atomics act at once; they order what was executed before, and no store that is not yet visible.
inline u32 engine::fetch_add(void* at, u32 value) {
  wave& w = *current.of;
  region& r = bounds(at, 4, "fetch_add");
  if (r.part(at).kind != memory::control || r.rank != w.block->of->rank)
    fail(error::access, "fetch_add at " + words(r, at) + ", which is no control word of this rank",
         here(w, current.lane));
  poll_point(w, current.lane);
  see_own_stores(w, at, 4);
  u32 old;
  std::memcpy(&old, at, 4);
  if (opt.checks) {
    note_store(w, current.lane, r, at, 4, "fetch_add", access::atomic);
    acquire_word(w, current.lane, r, at, "fetch_add");
  }
  pending_store s = make_store(*this, w, current.lane, r, at, &value, 4, access::atomic);
  s.adds = true;
  if (opt.checks) s.release = w.clock.release();
  perform(s);
  return old;
}

inline u32 engine::compare_exchange(void* at, u32 expected, u32 value) {
  wave& w = *current.of;
  region& r = bounds(at, 4, "compare_exchange");
  const memory kind = r.part(at).kind;
  if (kind != memory::control && kind != memory::mailbox)
    fail(error::access, "compare_exchange at " + words(r, at) + ", which is no control word",
         here(w, current.lane));
  poll_point(w, current.lane);
  see_own_stores(w, at, 4);
  u32 old;
  std::memcpy(&old, at, 4);
  if (old != expected || old == value) return old;
  if (opt.checks) note_store(w, current.lane, r, at, 4, "compare_exchange", access::atomic);
  pending_store s = make_store(*this, w, current.lane, r, at, &value, 4, access::atomic);
  perform(s);
  return old;
}

}  // namespace monolayer::sim::detail
