// A program's tables as the walk over layers, stages and tiles reads them on the device: what follows from
// program_info by arithmetic alone, one row a stage, in constant memory. A walk over run-time rows instead of template
// parameters keeps each piece of its code in the kernel once, whatever the number of stages.
#pragma once

#include "monolayer/core/graph.hpp"
#include "monolayer/core/slot_layout.hpp"

namespace monolayer {

/// Owners of a stage start where the tiles of the stages before it in the kind ended (as planned, not as routed).
MONOLAYER_HOST_DEVICE constexpr int owner_offset(const kind_info& kind, int stage) {
  int at = 0;
  for (int i = 0; i < stage; ++i)
    if (!kind.stages[i].routed) at += kind.stages[i].tiles;
  return at;
}

/// Where the arrivals at a counted slot are kept.
struct slot_arrivals {
  u32 slot, offset, stride;  // bytes: of the first part, from part to part
  u32 parts, units, buffers;

  template <class Memory>
  static constexpr slot_arrivals of(const program_info& p, int slot) {
    const slot_info& s = p.slots[slot];
    static_assert(Memory::arrival_bytes <= 0xffffffffu);
    return {u32(slot),    u32(Memory::arrival_offset(slot)), u32(Memory::part_stride(slot)),
            u32(s.parts), u32(s.units),                      u32(s.buffers)};
  }
  /// Byte offset of a part's arrivals in a use of the slot. Counters serve all buffers: they only count up.
  template <class T>
  MONOLAYER_DEVICE u32 of_part(u32 part, u32 use) const {
    if constexpr (T::arrivals == arrival_kind::words)
      if (buffers != 1) part += use % buffers * parts;
    return offset + part * stride;
  }
};

/// A read of a counted slot: the parts that a tile waits for.
struct read_row {
  slot_arrivals from;
  int per_part;  // tiles of a part where the tile waits for its own part alone, else 0
  int earlier;   // the newest use by an earlier layer
};

/// One stage of one kind.
struct stage_row {
  int code, tiles, per_part, parts, owners_from;
  int routed, by_group, own_reads;
  int read_count;
  read_row reads[max_reads];
  slot_arrivals to;    // parts = 0: the stage writes no counted slot
  int write_per_part;  // tiles of a part of it
  int units_per_tile;
};

struct kind_row {
  int stages;
  u32 writes;  // bit s: slot s
};

template <int Kinds, int Stages>
struct walk_rows {
  kind_row kinds[Kinds];
  stage_row stages[Kinds][Stages];
};

namespace detail {

constexpr int most_stages(const program_info& p) {
  int n = 1;
  for (int k = 0; k < p.kind_count; ++k) n = p.kinds[k].stage_count > n ? p.kinds[k].stage_count : n;
  return n;
}

template <class Memory>
constexpr stage_row make_stage_row(const program_info& p, const kind_info& kind, int index) {
  const stage_info& s = kind.stages[index];
  stage_row row{};
  row.code = s.code;
  row.tiles = s.tiles;
  row.parts = parts_of_stage(p, s);
  row.per_part = s.tiles / row.parts;
  row.owners_from = owner_offset(kind, index);
  row.routed = s.routed;
  row.by_group = s.by_group;
  for (const slot_read& r : s.reads) {
    if (r.slot < 0) continue;
    if (r.reach == reach::own) row.own_reads = 1;
    if (p.slots[r.slot].transport != transport::counted) continue;
    row.reads[row.read_count++] = {slot_arrivals::of<Memory>(p, r.slot),
                                   r.reach == reach::own ? s.tiles / p.slots[r.slot].parts : 0, r.earlier};
  }
  if (s.writes >= 0 && p.slots[s.writes].transport == transport::counted) {
    row.to = slot_arrivals::of<Memory>(p, s.writes);
    row.write_per_part = s.tiles / p.slots[s.writes].parts;
    row.units_per_tile = s.units_per_tile;
  }
  return row;
}

template <class Program, arrival_kind Arrivals>
constexpr auto make_walk_rows() {
  constexpr program_info p = Program::info;
  walk_rows<p.kind_count, most_stages(p)> rows{};
  for (int k = 0; k < p.kind_count; ++k) {
    rows.kinds[k] = {p.kinds[k].stage_count, slots_written(p.kinds[k])};
    for (int i = 0; i < p.kinds[k].stage_count; ++i)
      rows.stages[k][i] = make_stage_row<slot_layout<Program, Arrivals>>(p, p.kinds[k], i);
  }
  return rows;
}

}  // namespace detail

template <class Program, arrival_kind Arrivals>
MONOLAYER_TABLE auto walk_table = detail::make_walk_rows<Program, Arrivals>();

}  // namespace monolayer
