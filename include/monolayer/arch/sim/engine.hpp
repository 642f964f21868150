// The simulated machine's inside: every part of it (scheduler, memory, checks, rings) is a member defined in
// one of the headers beside this one. machine.hpp is the host's view, target.hpp the device's.
#pragma once

#include <cstring>
#include <string>
#include <unordered_map>

#include "monolayer/arch/sim/random.hpp"
#include "monolayer/arch/sim/report.hpp"
#include "monolayer/arch/sim/state.hpp"

namespace monolayer::sim::detail {

struct engine;
/// Which lane runs. One operating-system thread runs a machine, so this is a plain register reload for lane
/// code.
struct running_lane {
  engine* machine = nullptr;
  wave* of = nullptr;
  int lane = 0;
};
inline constinit thread_local running_lane current{};

/// 1, 2, 4, 8 or 16 bytes.
inline void copy_small(void* to, const void* from, u32 bytes) {
  if (bytes == 16) {
    std::memcpy(to, from, 16);
  } else if (bytes == 4) {
    std::memcpy(to, from, 4);
  } else {
    std::memcpy(to, from, bytes);
  }
}

struct stopped {};  // thrown by fail() outside lanes, caught by run()

struct delayed_store {
  u64 due;  // 0: when nothing else can happen
  u32 rank;
  pending_store store;
};

struct engine {
  explicit engine(options o);
  ~engine();
  engine(const engine&) = delete;
  engine& operator=(const engine&) = delete;

  // ---- host side (memory.hpp, schedule.hpp)
  void* allocate(int rank, std::size_t bytes, std::string name, memory kind, fill how);
  void annotate(void* at, std::size_t bytes, std::string name, memory kind, bool group_scope);
  void expect_readers(void* at, std::size_t bytes, int readers);
  void enqueue(int rank, int blocks, u32 lds_bytes, std::function<void()> main, const traits& target);
  report run();

  // ---- scheduler (schedule.hpp)
  void start_launch(rank_state& rank, int index);
  void finish_launch(rank_state& rank);
  void start_wave(wave& w);
  void run_wave(wave& w);
  wave& choose();
  void new_mode();
  bool idle();  // nothing is ready: false if the run is over
  void apply_stops();
  void make_ready(wave& w);
  void remove_ready(wave& w);
  void wave_done(wave& w);
  void drop_waves(launch& l);
  void collect_waiters();
  std::string waits_for(const wave& w) const;
  void deadlock(const char* why);

  // ---- lanes (schedule.hpp, wave_ops.hpp); called on a lane's own stack
  static void lane_entry(transfer_t from);
  void suspend(wave& w, int lane);  // this lane is not runnable: next lane or scheduler
  void give_way(wave& w, int lane);
  void poll_point(wave& w, int lane) {
    if (--w.budget <= 0 && rng.one_in(16)) give_way(w, lane);
  }
  void check_stack(wave& w, int lane);
  void pause();
  void park(wave& w);
  void rendezvous(op what, u64 u0 = 0, u64 u1 = 0, u64 u2 = 0);
  [[noreturn]] void divergent(const wave& w, int lane, op what);
  void complete(wave& w);  // executes w.current; releases the lanes or blocks the wave
  void release_lanes(wave& w);
  void redraw(wave& w) {
    const u64 r = rng.next();
    w.rotation = static_cast<u32>(r) & (w.size - 1);
    w.descending = (r >> 32) & 1;
  }
  void group_arrival(wave& w);
  void block_arrival(wave& w);
  void join_waves(block_state& b, int waves);

  // ---- watching: a parked wave wakes when a line that it polled changes (schedule.hpp)
  void watch(wave& w, const void* at);
  void notify(const void* at);
  void unwatch(wave& w);

  // ---- stores and copies under way (stores.hpp, ring.hpp)
  void queue_store(wave& w, pending_store&& s);
  void land(wave& w, std::size_t i);
  void land_all(wave& w);
  void land_overlapping(wave& w, const void* at, u32 bytes);
  void land_up_to(wave& w, u32 epoch);
  void see_own_stores(wave& w, const void* at, u32 bytes);
  void perform(pending_store& s);
  void settle(wave& w);  // pending list upkeep
  bool faulty(wave& w, pending_store& s);
  void background();
  void fire_delayed(bool idle);
  ring_state& ring_of(block_state& b, u32 control);
  void ring_op(wave& w);
  void start_held(ring_state& r);
  void land_chunk(ring_state& r, std::size_t i);
  void land_some(ring_state& r, bool all);
  void settle(ring_state& r);
  void check_ring_read(wave& w, int lane, u32 at, u32 bytes);

  // ---- accesses (access.hpp, lds.hpp), called by lanes
  region* region_of(const void* at) const {
    const std::size_t offset = static_cast<std::size_t>(static_cast<const u8*>(at) - arena);
    return offset < arena_bytes ? pages[offset >> page_shift] : nullptr;
  }
  region& bounds(const void* at, u32 bytes, const char* what);
  void load(void* to, const void* at, u32 bytes);
  void store(void* at, const void* from, u32 bytes);
  void slot_load(void* to, const void* at, u32 bytes);
  void slot_store(void* at, const void* from, u32 bytes);
  void arrive(void* at, u32 value, bool system);
  void poll(void* to, const void* at, u32 bytes);
  void tagged_store(void* at, u64 word, bool peer);
  void tagged_load(void* to, const void* at);
  u32 fetch_add(void* at, u32 value);
  u32 compare_exchange(void* at, u32 expected, u32 value);
  void flush_block(wave& w);
  u8* lds(u32 at, u32 bytes, const char* what);
  void lds_load(void* to, u32 at, u32 bytes);
  void lds_store(u32 at, const void* from, u32 bytes);
  u32 lds_fetch_add(u32 at, u32 value);
  void lds_flag_store(u32 at, u32 value);
  u32 lds_flag_load(u32 at);
  void check_group_word(u32 at);

  // ---- checks (shadow.hpp)
  void ensure_cells(region& r);
  void note_load(wave& w, int lane, region& r, const void* at, u32 bytes, const char* what);
  void note_store(wave& w, int lane, region& r, void* at, u32 bytes, const char* what, access kind);
  void check_scope(const wave& w, int lane, const region& r, const void* at, const stamp& s,
                   const char* what);
  void check_order(const wave& w, int lane, const region& r, const void* at, const stamp& s,
                   const char* what);
  void acquire_word(wave& w, int lane, region& r, const void* at, const char* what);
  void publish_word(const pending_store& s);
  void note_tagged_read(wave& w, region& r, const void* at);
  void check_unread(wave& w, int lane, region& r, void* at, u64 word);
  void note_lds_load(wave& w, int lane, u32 at, u32 bytes);
  void note_lds_store(wave& w, int lane, u32 at, u32 bytes, const void* value);
  void note_lds_add(wave& w, int lane, u32 at);
  bool ordered(const wave& w, const stamp& s, bool through_memory) const;
  void note_reader(wave& w, cell& c, const stamp& me, u32 first_epoch);
  [[noreturn]] void lds_conflict(const wave& w, int lane, const char* what, u32 at, const stamp& earlier);

  // ---- words (report_text.hpp)
  place here(const wave& w, int lane) const;
  place place_of(const stamp& s) const;
  std::string words(const place& p) const;
  std::string words(const region& r, const void* at) const;
  [[noreturn]] void fail(error kind, std::string text, place first = {}, place second = {});
  [[noreturn]] void conflict(error kind, const wave& w, int lane, const char* what, const std::string& where,
                             const stamp& earlier, const char* why);
  void trace(u32 layer, u32 stage, u32 tile);

  // ---- data
  options opt;
  random_source rng;
  fcontext_t scheduler = nullptr;
  bool halted = false;  // an error was recorded
  report result;
  statistics stats;
  u64 clock_ns = 1'000'000'000;

  static constexpr int page_shift = 16;
  u8* arena = nullptr;
  std::size_t arena_bytes = 0, arena_used = 0;
  region** pages = nullptr;
  std::vector<std::unique_ptr<region>> regions;

  std::vector<rank_state> ranks;
  std::vector<wave_identity> identities;
  std::vector<sync_object> syncs;
  u32 launches = 0;

  std::vector<wave*> ready, pending;
  std::vector<ring_state*> flying;
  std::vector<delayed_store> delayed;
  std::vector<fault> faults;
  std::vector<u32> stopped_in;                  // by fault: the launch that it has stopped
  std::vector<u64> arrivals_seen, tagged_seen;  // by rank, the machine's last
  std::unordered_map<u64, std::vector<wave*>> watchers;
  std::vector<u16> watch_filter = std::vector<u16>(1 << 12);

  // scheduling mode, redrawn now and then
  int mode_left = 0;
  u32 tournament = 1, quantum = 1, land_period = 4;
  u64 progress = 0, idle_progress = 0, idle_rounds = 0, idle_jump = 1000, idle_since = 0;
};

}  // namespace monolayer::sim::detail
