// What host and device agree on: the launch parameters, the state that launches themselves advance, the failure
// record. Plain data without padding surprises; every field has one meaning on all targets.
#pragma once

#include "monolayer/arch/target.hpp"
#include "monolayer/core/graph.hpp"

namespace monolayer {

inline constexpr int max_ranks = 8;
inline constexpr int max_rows_limit = 8;

/// Why a launch stopped. The first failure of a rank wins and stays until reset().
enum class failure : u32 {
  none = 0,
  slot_wait = 1,     // a part of a slot did not complete in time
  peer_wait = 2,     // a word of a peer's partial sums did not come in time
  check_in = 3,      // not all blocks were resident in time
  stream_wait = 4,   // a weight chunk did not land in time
  routing_wait = 5,  // the producer waited too long for the routing
  peer_failed = 6,   // another rank reported its own failure; see that rank's record
};

/// Who waited for what. `word` is the failure code; it is written last.
struct failure_record {
  u32 word;
  u32 rank;        // the rank that waited; for peer_failed the rank that failed
  u32 block;       // of that rank
  u32 layer;       // index in the span
  u32 stage;       // index in the layer's kind
  u32 tile;
  u32 slot;        // index in the program's slots
  u32 part;        // part of the slot; the source rank for peer_wait
  u32 expected;    // count or epoch waited for (low 32 bits)
  u32 seen;        // what was there instead
  u32 epoch_low;   // epoch of the layer
  u32 epoch_high;
  u32 claimed;     // 1 once a waiter has taken the record to fill it
  u32 reserved[3];
};
static_assert(sizeof(failure_record) == 64);

/// One per rank, in device memory, zero-initialised, then epoch = 0. Launches advance it; the host reads it.
struct device_state {
  u64 epoch;             // of the newest completed layer; the first layer has epoch 1
  u32 check_in_base;     // values that the two counters had after the newest completed launch
  u32 exit_base;
  u32 uses[max_slots];   // completed uses of each slot
  u32 failed_launches;   // launches that found or met a failure since the last reset
  u32 bad_entries;       // per-step metadata out of range since the last reset: entries that launches left out
  u32 reserved[10];
  alignas(128) u32 check_in;   // one arrival a block at its start
  alignas(128) u32 exits;      // one arrival a block at its end
  alignas(128) failure_record failed;
};

inline constexpr int max_layer_data = 30;

/// One layer of a span, in device memory. `data` holds the packed weights and norms of the kind, in the order of the
/// kind's own enumeration.
struct layer_entry {
  u64 kind;
  const void* data[max_layer_data];
  void* output;  // per-layer output of kinds that have one
};

/// An address in a layer entry, read as constant memory: scalar loads on CDNA, where the producer may not use others.
template <class T>
MONOLAYER_DEVICE const u8* layer_data(const layer_entry& entry, int index) {
  const u32x2 v = T::load8(&entry.data[index]);
  return reinterpret_cast<const u8*>(u64(v.v[1]) << 32 | v.v[0]);
}

/// What the rows of a step refer to: positions, the paged caches' geometry, index lists. Device memory, as the engine
/// fills it for the step; all layers of a span share it. Global slot s lies in block s / block_size of a cache at place
/// s % block_size; token t of a row lies in slot block_table[request][t / block_size] * block_size + t % block_size.
struct batch_view {
  const long long* positions;      // [rows]: of the row's token in its request
  const int* block_table;          // [requests][block_table_stride]
  long long block_table_stride;    // entries
  const int* requests;             // [rows]: request of each row; null: row r is request r
  const int* list_starts;          // [rows + 1], CSR: row r attends to list[list_starts[r] .. list_starts[r + 1])
  const int* list;                 // global slots; these two may be null where every span starts with an indexer
  const float* rope;               // [rope_positions][rope]: rope / 2 cosines, then as many sines
  u64 rope_positions;
  u64 cache_slots;                 // slots 0 .. cache_slots - 1 exist
  u64 kv_block_stride, kv_row_stride, index_block_stride;  // bytes
  u32 block_size;
  u32 reserved;
};

/// Arguments of a launch, by value.
struct launch_params {
  device_state* state;
  const layer_entry* layers;
  const void* input;      // bf16 [rows][hidden]: the residual stream before the span
  void* output;           // bf16 [rows][hidden]: after it; live rows only; may be `input`
  const long long* row_slots;  // [rows]; a row with a negative entry is dead
  u8* slots;              // scratch for slots, slot_layout<...>::payload_bytes
  u8* arrivals;           // slot_layout<...>::arrival_bytes
  u8* mailbox[max_ranks];              // every rank's mailbox as this rank addresses it
  device_state* peer_state[max_ranks];
  batch_view batch;
  u64 local_deadline_ns, peer_deadline_ns;
  int layer_count;
  int rows;
  int rank;
  int groups;             // locality groups that the blocks of this launch form: block b is in group b % groups
  u32 lds_bytes;          // dynamic LDS of the launch
  u32 ring_limit;         // most ring slots (0: as many as fit)
};

/// The epoch of layer i of a launch that follows epoch `newest`: epochs count up and skip those whose low word is 0.
MONOLAYER_HOST_DEVICE constexpr u64 epoch_after(u64 newest, u32 steps) {
  const u64 e = newest + steps;
  return (e >> 32) != (newest >> 32) ? e + 1 : e;
}
/// The low word of the epoch after the one with this low word.
MONOLAYER_HOST_DEVICE constexpr u32 next_tag(u32 tag) { return tag == 0xffffffffu ? 1 : tag + 1; }
static_assert(next_tag(0xffffffffu) == u32(epoch_after(0xffffffffu, 1)) && next_tag(7) == u32(epoch_after(7, 1)));

/// A launch that passes a multiple of this writes the tagged words of the rows that it left out, too: no tag is ever old
/// enough to come round.
inline constexpr u64 tag_refresh_period = u64(1) << 24;

}  // namespace monolayer
