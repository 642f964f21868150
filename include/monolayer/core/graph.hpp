// The tables that describe a program: slots, stages, and the layer kinds that list the stages. Plain constexpr data;
// core/proofs.hpp checks it, host/describe.hpp prints it, device/pipeline.hpp walks it.
#pragma once

#include "monolayer/core/macros.hpp"

namespace monolayer {

/// What one column of a slot holds. A token slot has no payload: only its arrivals matter.
enum class element : unsigned char { bf16, f32, u32, token };

MONOLAYER_HOST_DEVICE constexpr int element_bytes(element e) {
  return e == element::bf16 ? 2 : e == element::token ? 0 : 4;
}

/// Who may read a slot: the blocks of one locality group (an XCD, a cluster), of the GPU, or of all GPUs.
enum class scope : unsigned char { group, device, peers };

/// counted: the payload is stored, then its arrival; tagged: 8-byte words of 4 bytes of data and the epoch's low 32
/// bits, the data is its own arrival. Between GPUs only tagged words travel.
enum class transport : unsigned char { counted, tagged };

/// A typed activation buffer of [max_rows][columns] between stages. It is waited for in `parts` equal ranges of
/// columns; each part completes after `units` arrival units, the same number in every launch whatever the live rows,
/// the routing and the grid.
struct slot_info {
  const char* name = "";
  element type = element::token;
  int columns = 0;
  int parts = 1;
  int units = 0;  // per part; 0 for tagged slots
  monolayer::scope scope = scope::device;
  monolayer::transport transport = transport::counted;
  int buffers = 1;  // uses alternate between them: a reader has until the buffer's next use
};

/// Which parts of a slot a tile waits for: all of them, or the one part that the tile belongs to.
enum class reach : unsigned char { all, own };

/// One slot that a stage reads. `earlier` = true names the newest completed use by an earlier layer of the span (the
/// caller's input where there is none) instead of this layer's own. A tile reads 1 / share of what it waits for.
struct slot_read {
  int slot = -1;
  monolayer::reach reach = reach::all;
  bool earlier = false;
  int share = 1;
};

inline constexpr int max_reads = 4;
inline constexpr int max_stages = 24;
inline constexpr int max_slots = 32;

/// A stage's tiles. Tile t writes columns [t * tile_columns, + tile_columns) of `writes`, belongs to part
/// t / (tiles / parts) of it and arrives there with `units_per_tile` units. A tile serves all live rows, or one row
/// where the stage is by_row: it then has max_rows times as many tiles, and those of rows that are not live only arrive.
/// A routed stage has a run-time number of tiles: at most `tiles`; each of them arrives with one unit a (row, place)
/// that it served, and the owner of tile 0 arrives for the (row, place) pairs of dead rows.
struct stage_info {
  const char* name = "";
  int code = 0;  // index in the program's `codes`: kinds may share a stage's code
  int tiles = 0;
  int tile_columns = 0;
  int units_per_tile = 1;
  bool routed = false;  // needs the routing to know its tiles
  bool by_row = false;  // a tile serves one row
  slot_read reads[max_reads] = {};
  int writes = -1;
  bool by_group = false;  // the tiles of part p are owned by blocks of locality group p % groups
  int streamed = 0;       // weight matrices that its tiles stream (0: none)
};

/// One kind of layer: the stages in the order in which every block walks them.
struct kind_info {
  const char* name = "";
  int stage_count = 0;
  stage_info stages[max_stages] = {};

  constexpr void add(const stage_info& s) { stages[stage_count++] = s; }
};

/// Bit s: some stage of the kind writes slot s.
MONOLAYER_HOST_DEVICE constexpr unsigned slots_written(const kind_info& kind) {
  unsigned bits = 0;
  for (int i = 0; i < kind.stage_count; ++i)
    if (kind.stages[i].writes >= 0) bits |= 1u << kind.stages[i].writes;
  return bits;
}

inline constexpr int max_kinds = 4;

/// All that a kernel was instantiated with: one table of slots for all kinds of layers.
struct program_info {
  int max_rows = 0;
  int top_k = 1;  // places a row in routed stages
  int ranks = 1;
  int slot_count = 0;
  slot_info slots[max_slots] = {};
  int kind_count = 0;
  kind_info kinds[max_kinds] = {};
  long long fan_out_limit = 6'000'000;  // most bytes x readers of one slot at max_rows
};

/// How many times a stage's tiles cover the columns of what it writes.
MONOLAYER_HOST_DEVICE constexpr int row_copies(const program_info& p, const stage_info& s) {
  return s.routed || s.by_row ? p.max_rows : 1;
}

/// Parts that the tiles of a stage fall into: those of the slot that it writes or of one that it reads part by part.
MONOLAYER_HOST_DEVICE constexpr int parts_of_stage(const program_info& p, const stage_info& s) {
  int parts = s.writes >= 0 ? p.slots[s.writes].parts : 1;
  for (const slot_read& r : s.reads)
    if (r.slot >= 0 && r.reach == reach::own && p.slots[r.slot].parts > parts) parts = p.slots[r.slot].parts;
  return parts;
}

/// Gives each counted slot whose `units` are still 0 those that the first stage that writes it brings to a part.
/// To be called when all kinds are listed. The proofs compare every other writer with it.
constexpr void count_units(program_info& p) {
  for (int k = 0; k < p.kind_count; ++k)
    for (int i = 0; i < p.kinds[k].stage_count; ++i) {
      const stage_info& s = p.kinds[k].stages[i];
      if (s.writes < 0 || s.writes >= p.slot_count) continue;
      slot_info& slot = p.slots[s.writes];
      if (slot.transport == transport::counted && slot.units == 0 && slot.parts > 0)
        slot.units = s.tiles / slot.parts * (s.routed ? 1 : s.units_per_tile);
    }
}

}  // namespace monolayer
