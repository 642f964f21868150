// The simulator's data: regions, shadow cells, waves, blocks, launches.
#pragma once

#include <array>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "monolayer/arch/sim/clocks.hpp"
#include "monolayer/arch/sim/fiber.hpp"
#include "monolayer/arch/sim/report.hpp"

namespace monolayer::sim::detail {

// ---- shadow memory: one cell a 4-byte word of LDS, slots, mailboxes, outputs

enum class access : u8 { none, load, store, byte_store, lds_add, tagged, arrival, atomic };
/// Words that are polled are not raced for: their stores carry clocks instead.
constexpr bool polled_kind(access kind) { return kind >= access::tagged; }
inline constexpr u8 several_lanes = 0xff;

struct stamp {
  u32 epoch = 0;  // 0: never
  u16 wave = 0;
  u8 lane = 0;
  access kind = access::none;
  bool operator==(const stamp&) const = default;
};
struct polled_word {  // arrivals and tagged words (at their first word)
  u32 sync;           // index into engine::syncs, 0: nothing has landed yet
  u32 readers;        // tagged: distinct waves that saw the present word
  u32 on_the_way;     // tagged: stores that have not landed
  u32 unused;
};
struct cell {
  stamp write[2];  // of the low and the high half word
  union {
    stamp read[2];  // readers since the last write (two of them, if there are more)
    polled_word polled;
  };
};
static_assert(sizeof(stamp) == 8 && sizeof(cell) == 32);

/// What polls of a word acquire: the last store's clock, or those of all adders.
struct sync_object {
  ref<snapshot> last;
  std::vector<ref<snapshot>> others;  // earlier adders of a counter, the newest of each wave
  std::vector<u16> readers;           // of a tagged word that expects several
};

struct annotation {
  u8* base = nullptr;
  std::size_t bytes = 0;
  std::string name;
  memory kind = memory::plain;
  bool group_scope = false;
};
struct region {
  u8* base = nullptr;
  std::size_t bytes = 0;
  int rank = 0;
  fill filled = fill::poison;
  std::vector<annotation> parts;  // [0]: the whole
  std::vector<u16> part_of;       // of each 16 bytes; empty: all 0
  std::vector<u8> expected;       // readers of each 8-byte word; empty: none
  cell* cells = nullptr;

  const annotation& part(const void* at) const {
    return parts[part_of.empty() ? 0
                                 : part_of[static_cast<std::size_t>(static_cast<const u8*>(at) - base) >> 4]];
  }
  cell& cell_at(const void* at) const { return cells[(static_cast<const u8*>(at) - base) >> 2]; }
};

// ---- what a wave is doing

enum class op : u8 {
  none,
  mma,
  shuffle,
  ballot,
  max,
  min,
  wave_sync,
  drain,
  group_sync,
  block_barrier,
  ring_init,
  ring_push,
  ring_flush,
  ring_drain,
  ring_wait,
  ring_release,
};
const char* name_of(op what);

struct pending_store {
  u8* at = nullptr;
  region* where = nullptr;
  ref<snapshot> release;  // tagged words and arrivals
  u32 sequence = 0, epoch = 0;
  u8 bytes = 0, lane = 0;
  access kind = access::store;
  bool adds = false;  // a counter's arrival
  alignas(8) u8 data[16] = {};
};

struct place_mark {
  u32 epoch, layer, stage, tile;
};
/// What stays of a wave id over launches: where it was at which epoch, for reports.
struct wave_identity {
  int rank, block, wave;
  std::vector<place_mark> marks;
};

enum class wave_state : u8 { ready, parked, blocked, done, stopped };
struct block_state;

struct wave {
  // touched at every switch
  u64 live = 0, runnable = 0, waiting = 0, paused = 0;
  u32 rotation = 0;
  bool descending = false;
  op current = op::none;
  wave_state state = wave_state::ready;
  bool started = false, woken = false;
  bool looked = false;  // polled something since the last wake
  u32 turn = 0;         // counts wakes
  u32 blind = 0;        // pauses in a row that had polled nothing
  int budget = 0;
  u32 size = 0;
  int index = 0;
  u64 uniform[3] = {};  // arguments that all lanes must agree on
  u64 result = 0;
  block_state* block = nullptr;
  fcontext_t contexts[64];
  // arguments and results of cross-lane operations
  alignas(64) u32 a[64][8];
  alignas(64) u32 b[64][4];
  alignas(64) float d[64][4];
  u32 word[64];
  u64 flags = 0;
  // stores that have not landed
  std::vector<pending_store> stores;
  u32 store_sequence = 0;
  int landing = 0;         // 0: at once, 1: now and then, 2: late
  int pending_index = -1;  // in engine::pending
  // scheduling
  u32 priority = 0;
  int ready_index = -1;
  std::vector<u64> watched;                         // 64-byte lines whose change ends a poll
  std::vector<std::pair<const void*, u32>> polled;  // addresses since the last pause, for reports
  wave_clock clock;
  u32 layer = 0, stage = 0, tile = 0;
  char* stacks[64];
};

struct ring_slot {
  u32 chunk = 0, bytes = 0, credits = 0;
  bool used = false, started = false, landed = false;
  const u8* source = nullptr;
  u64 waited = 0, read = 0, released = 0;  // consumer waves, by bit
  std::vector<u8> early;                   // the bytes, where they are taken at issue
  ref<snapshot> pushed;
  std::vector<ref<snapshot>> given;
};
struct ring_state {
  ring_geometry shape{};
  block_state* block = nullptr;
  std::vector<ring_slot> slots;
  u32 pushed = 0;
  std::vector<u32> held;    // pushed, not yet started
  std::vector<u32> flying;  // started, not yet landed, in order of issue
  u32 hold_limit = 0;
  bool in_order = true;
  int landing = 0;
  int flying_index = -1;  // in engine::flying
};

struct traits {
  int wave_size, consumer_waves, columns;
  bool words;  // arrivals are words (CDNA): relaxed; else counters with release and acquire
  bool ring_in_order;
  const char* name;
};
struct launch;
struct block_memory {  // of one block of a rank, kept over launches
  u8* lds = nullptr;
  cell* cells = nullptr;
  std::size_t bytes = 0;
  u32 first_id = 0, ids = 0;
};
struct block_state {
  launch* of = nullptr;
  int index = 0, group = 0;
  block_memory* memory = nullptr;
  u8* lds = nullptr;
  u32 lds_bytes = 0;
  u32 ring_begin = 0, ring_end = 0, control_begin = 0, control_end = 0;
  std::vector<std::pair<u32, ref<snapshot>>> flags;  // LDS flags and what their last store released
  bool group_checked = false;
  std::vector<std::unique_ptr<ring_state>> rings;
  std::vector<std::unique_ptr<wave>> waves;
  int live_waves = 0, group_arrived = 0, barrier_arrived = 0, pending_waves = 0;
};
struct launch {
  int rank = 0, blocks = 0;
  u32 id = 0, lds_bytes = 0, first_epoch = 0;
  traits target{};
  std::function<void()> main;
  std::vector<std::unique_ptr<block_state>> at;
  int live_waves = 0;
  bool stopped = false;
};
struct rank_state {
  std::deque<std::unique_ptr<launch>> queue;
  std::unique_ptr<launch> running;
  std::vector<std::unique_ptr<block_memory>> blocks;
  ref<outer_clock> base;  // everything that finished launches did
  u32 last_epoch = 1;
  bool stopped = false, slow = false;
};

inline const char* name_of(op what) {
  constexpr std::array names{"none",        "mma",       "shuffle_xor",  "ballot",           "wave_max",
                             "wave_min",    "wave_sync", "drain_stores", "consumer barrier", "block barrier",
                             "ring init",   "ring push", "ring flush",   "ring drain",       "ring wait_full",
                             "ring release"};
  return names[static_cast<std::size_t>(what)];
}

}  // namespace monolayer::sim::detail
