// The walk over layers, stages and tiles, for the producer wave and for the consumer waves. The pipeline waits for what
// a stage reads, has its input staged, runs its tiles and arrives for what they wrote; stages do none of it.
//
// A program P supplies `info` (the tables) and `kinds`, a kind_list of stage_lists in the order of the tables. A stage
// is a stateless struct, described in docs/architecture.md:
//   input            prepare(block): brings the input into LDS; the pipeline calls it before the block's first tile
//   weights          a weight_tile, or void when nothing is streamed
//   run_chunks       chunks of one run
//   runs<Routing>(tile), run<Routing>(layer_entry, tile, i)   the runs of chunks that the tile streams
//   run_tile(block, tile)   computes and stores; it can wait for weights, never for other blocks
//   routed stages    tile_count<Routing>(), units_of_tile, units_without_tile
#pragma once

#include <type_traits>

#include "monolayer/device/routing.hpp"

namespace monolayer {

template <class... Codes>
struct stage_list {
  static constexpr int count = sizeof...(Codes);
};
template <class... Lists>
struct kind_list {
  static constexpr int count = sizeof...(Lists);
};

/// Which tiles of a stage a block owns: a pure function of the table, the grid and the block.
struct own_tiles {
  int first, step, count;  // ordinals first, first + step, ... < count
  int per_part, groups, group;

  /// Ordinals run over the tiles of this block's group where the stage is by_group, else over all tiles.
  MONOLAYER_HOST_DEVICE constexpr int tile(int ordinal) const {
    return groups == 1 ? ordinal : (group + groups * (ordinal / per_part)) * per_part + ordinal % per_part;
  }
};

/// `offset` shifts the owners of a stage's tiles, so that stages that can run side by side start on different blocks.
MONOLAYER_HOST_DEVICE constexpr own_tiles tiles_of_block(const stage_info& s, int parts, int tiles, int block,
                                                         int blocks, int groups, int offset) {
  if (!s.by_group || groups == 1 || blocks % groups != 0)
    return {(block + blocks - offset % blocks) % blocks, blocks, tiles, tiles, 1, 0};
  const int per_part = tiles / parts, group = block % groups, members = blocks / groups, index = block / groups;
  const int own_parts = (parts - group + groups - 1) / groups;
  return {(index + members - offset % members) % members, members, own_parts * per_part, per_part, groups, group};
}

/// Owners of a stage start where the tiles of the stages before it in the kind ended (as planned, not as routed).
MONOLAYER_HOST_DEVICE constexpr int owner_offset(const kind_info& kind, int stage) {
  int at = 0;
  for (int i = 0; i < stage; ++i)
    if (!kind.stages[i].routed) at += kind.stages[i].tiles;
  return at;
}

/// Parts that the tiles of a stage fall into: those of the slot that it writes or of one that it reads part by part.
MONOLAYER_HOST_DEVICE constexpr int parts_of_stage(const program_info& p, const stage_info& s) {
  int parts = s.writes >= 0 ? p.slots[s.writes].parts : 1;
  for (const slot_read& r : s.reads)
    if (r.slot >= 0 && r.reach == reach::own && p.slots[r.slot].parts > parts) parts = p.slots[r.slot].parts;
  return parts;
}

MONOLAYER_HOST_DEVICE constexpr bool has_own_reads(const stage_info& s) {
  for (const slot_read& r : s.reads)
    if (r.slot >= 0 && r.reach == reach::own) return true;
  return false;
}

namespace detail {

template <class P, int Kind, int Index, class Code, class Routing>
MONOLAYER_DEVICE own_tiles own(int block, int blocks, int groups) {
  constexpr stage_info s = P::info.kinds[Kind].stages[Index];
  constexpr int parts = parts_of_stage(P::info, s);
  constexpr int offset = owner_offset(P::info.kinds[Kind], Index);
  int tiles = s.tiles;
  if constexpr (s.routed) tiles = Code::template tile_count<Routing>();
  return tiles_of_block(s, parts, tiles, block, blocks, groups, offset);
}

// ---------------------------------------------------------------------------------------------- consumer waves

template <class P, int Kind, int Index, int Read, bool PerTile, class Block>
MONOLAYER_DEVICE void wait_read(Block& b, int tile) {
  constexpr stage_info s = P::info.kinds[Kind].stages[Index];
  if constexpr (Read < max_reads) {
    constexpr slot_read r = s.reads[Read];
    if constexpr (r.slot >= 0) {
      constexpr slot_info from = P::info.slots[r.slot];
      if constexpr (from.transport == transport::counted && (r.reach == reach::own) == PerTile) {
        if constexpr (PerTile)
          wait_parts<r.slot, r.earlier>(b, tile / (s.tiles / from.parts), 1);
        else
          wait_parts<r.slot, r.earlier>(b, 0, from.parts);
      }
      wait_read<P, Kind, Index, Read + 1, PerTile>(b, tile);
    }
  }
}

template <class P, int Kind, int Index, class Code, class Block>
MONOLAYER_DEVICE bool consume_stage(Block& b) {
  using T = typename Block::target;
  using routing = routing_table<Block>;
  constexpr stage_info s = P::info.kinds[Kind].stages[Index];
  constexpr slot_info to = s.writes >= 0 ? P::info.slots[s.writes] : slot_info{};
  constexpr bool own_reads = has_own_reads(s);
  constexpr int offset = owner_offset(P::info.kinds[Kind], Index);
  b.stage = Index;
  b.tile = 0;
  T::trace(b.layer, Index, 0);
  bool ready = false;
  // Every block needs the routing before it can know whether it owns a tile.
  if constexpr (s.routed) {
    wait_read<P, Kind, Index, 0, false>(b, 0);
    if (!b.sync() || !Code::input::prepare(b)) return false;
    ready = true;
  }
  const own_tiles mine = own<P, Kind, Index, Code, routing>(T::block(), T::blocks(), b.params.groups);
  for (int ordinal = mine.first; ordinal < mine.count; ordinal += mine.step) {
    const int tile = mine.tile(ordinal);
    const int per_part = s.tiles / to.parts;
    const int part = s.routed ? 0 : tile / per_part;
    b.tile = u32(tile);
    T::trace(b.layer, Index, u32(tile));
    if (!ready || own_reads) {
      if (!ready) wait_read<P, Kind, Index, 0, false>(b, 0);
      wait_read<P, Kind, Index, 0, true>(b, tile);
      if (!b.sync()) return false;
      if (!ready && !Code::input::prepare(b)) return false;
      ready = true;
    }
    if (!Code::run_tile(b, tile)) return false;
    T::drain_stores();
    if (!b.sync()) return false;
    if constexpr (s.writes >= 0 && to.transport == transport::counted) {
      if (T::wave() == 0) {
        if constexpr (s.routed)
          Code::units_of_tile(b, tile, [&](int unit, int count) { arrive<s.writes>(b, 0, unit, count); });
        else
          arrive<s.writes>(b, part, (tile - part * per_part) * s.units_per_tile, s.units_per_tile);
      }
    }
  }
  if constexpr (s.routed && s.writes >= 0) {
    if (T::block() == offset % T::blocks() && T::wave() == 0)
      Code::units_without_tile(b, [&](int unit, int count) { arrive<s.writes>(b, 0, unit, count); });
  }
  return true;
}

template <class P, int Kind, int Index, class Block>
MONOLAYER_DEVICE bool consume_stages(Block&, stage_list<>) {
  return true;
}
template <class P, int Kind, int Index, class Block, class Code, class... Rest>
MONOLAYER_DEVICE bool consume_stages(Block& b, stage_list<Code, Rest...>) {
  return consume_stage<P, Kind, Index, Code>(b) && consume_stages<P, Kind, Index + 1>(b, stage_list<Rest...>{});
}

template <class P, int Kind, class Block>
MONOLAYER_DEVICE bool consume_layer(Block&, u32, kind_list<>) {
  return true;
}
template <class P, int Kind, class Block, class List, class... Rest>
MONOLAYER_DEVICE bool consume_layer(Block& b, u32 kind, kind_list<List, Rest...>) {
  if (kind != Kind) return consume_layer<P, Kind + 1>(b, kind, kind_list<Rest...>{});
  if (!consume_stages<P, Kind, 0>(b, List{})) return false;
  // The slots that this kind writes have one more use behind them.
  if (!b.sync()) return false;
  constexpr unsigned written = slots_written(P::info.kinds[Kind]);
  for (int slot = 0; slot < max_slots; ++slot)
    if ((written >> slot & 1u) != 0) b.advance_clock(slot);
  return b.sync();
}

// ------------------------------------------------------------------------------------------------ producer wave

template <class P, int Kind, int Index, class Code, class Producer>
MONOLAYER_DEVICE bool produce_stage(Producer& p) {
  using T = typename Producer::target;
  using routing = routing_table<Producer>;
  if constexpr (!std::is_void_v<typename Code::weights>) {
    constexpr stage_info s = P::info.kinds[Kind].stages[Index];
    constexpr bool needs_routing = s.routed || requires { Code::streams_by_routing; };
    if constexpr (s.routed)
      if (!p.wait_routing()) return false;
    const own_tiles mine = own<P, Kind, Index, Code, routing>(T::block(), T::blocks(), p.params.groups);
    for (int ordinal = mine.first; ordinal < mine.count; ordinal += mine.step) {
      if constexpr (needs_routing && !s.routed)
        if (!p.wait_routing()) return false;
      const int tile = mine.tile(ordinal);
      const int runs = Code::template runs<routing>(tile);
      for (int i = 0; i < runs; ++i)
        if (!p.push_run(Code::template run<routing>(*p.entry, tile, i).address, Code::run_chunks,
                        Code::weights::chunk_bytes))
          return false;
    }
  }
  return true;
}

template <class P, int Kind, int Index, class Producer>
MONOLAYER_DEVICE bool produce_stages(Producer&, stage_list<>) {
  return true;
}
template <class P, int Kind, int Index, class Producer, class Code, class... Rest>
MONOLAYER_DEVICE bool produce_stages(Producer& p, stage_list<Code, Rest...>) {
  return produce_stage<P, Kind, Index, Code>(p) && produce_stages<P, Kind, Index + 1>(p, stage_list<Rest...>{});
}
template <class P, int Kind, class Producer>
MONOLAYER_DEVICE bool produce_layer(Producer&, u32, kind_list<>) {
  return true;
}
template <class P, int Kind, class Producer, class List, class... Rest>
MONOLAYER_DEVICE bool produce_layer(Producer& p, u32 kind, kind_list<List, Rest...>) {
  if (kind != Kind) return produce_layer<P, Kind + 1>(p, kind, kind_list<Rest...>{});
  return produce_stages<P, Kind, 0>(p, List{});
}

}  // namespace detail
}  // namespace monolayer
