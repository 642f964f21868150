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

/// Which tiles of a stage a block owns: a pure function of the table, the grid and the block. Ordinals run over the
/// tiles of the block's locality group where the stage is by_group, else over all tiles.
struct own_tiles {
  int first, step, count;  // ordinals first, first + step, ... < count
  int groups, group;

  MONOLAYER_HOST_DEVICE constexpr int tile(int ordinal, int per_part) const {
    return groups == 1 ? ordinal : (group + groups * (ordinal / per_part)) * per_part + ordinal % per_part;
  }
};

/// `offset` shifts the owners of a stage's tiles, so that stages that can run side by side start on different blocks.
MONOLAYER_HOST_DEVICE constexpr int first_ordinal(int index, int members, int offset) {
  int first = index - offset;
  while (first < 0) first += members;
  return first;
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

/// The same parameters, but the compiler may keep nothing that it loaded from them before: they are 300 bytes, and held
/// from stage to stage they would fill CDNA's scalar registers.
template <class T>
MONOLAYER_DEVICE const launch_params* reload(const launch_params* p) {
  return static_cast<const launch_params*>(T::opaque(p));
}

template <class P, int Kind, int Index, class Code, class Routing>
MONOLAYER_DEVICE own_tiles own(const grid_place& g) {
  constexpr stage_info s = P::info.kinds[Kind].stages[Index];
  constexpr int offset = owner_offset(P::info.kinds[Kind], Index);
  if constexpr (s.routed) {
    return {first_ordinal(g.block, g.blocks, offset), g.blocks, Code::template tile_count<Routing>(), 1, 0};
  } else if constexpr (!s.by_group) {
    return {first_ordinal(g.block, g.blocks, offset), g.blocks, s.tiles, 1, 0};
  } else {
    constexpr int parts = parts_of_stage(P::info, s), per_part = s.tiles / parts;
    int own_parts = 0;
    for (int part = g.group; part < parts; part += g.groups) ++own_parts;
    return {first_ordinal(g.index, g.members, offset), g.members, own_parts * per_part, g.groups, g.group};
  }
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
  constexpr int stage_parts = parts_of_stage(P::info, s);
  constexpr int offset = owner_offset(P::info.kinds[Kind], Index);
  b.params = reload<T>(b.params);
  b.grid = b.grid.template opaque<T>();
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
  const own_tiles mine = own<P, Kind, Index, Code, routing>(b.grid);
  MONOLAYER_NO_UNROLL
  for (int ordinal = mine.first; ordinal < mine.count; ordinal += mine.step) {
    const int tile = mine.tile(ordinal, s.tiles / stage_parts);
    constexpr int per_part = s.tiles / to.parts;
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
    if (first_ordinal(b.grid.block, b.grid.blocks, offset) == 0 && T::wave() == 0)
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
  MONOLAYER_NO_UNROLL
  for (int slot = 0; slot < max_slots; ++slot)
    if ((written >> slot & 1u) != 0) b.advance_clock(slot);
  return b.sync();
}

// ------------------------------------------------------------------------------------------------ producer wave
// The stages only say what they stream; one loop pushes it, so that the ring's code is there once.

/// Calls f.template operator()<Index, Code>() for the stage with that index.
template <int Index, class F>
MONOLAYER_DEVICE void with_stage(int, F, stage_list<>) {}
template <int Index, class F, class Code, class... Rest>
MONOLAYER_DEVICE void with_stage(int index, F f, stage_list<Code, Rest...>) {
  if (index == Index)
    f.template operator()<Index, Code>();
  else
    with_stage<Index + 1>(index, f, stage_list<Rest...>{});
}

template <class P, int Kind, class Producer, class List>
MONOLAYER_DEVICE bool produce_stages(Producer& p, List list) {
  using T = typename Producer::target;
  using routing = routing_table<Producer>;
  MONOLAYER_NO_UNROLL
  for (int stage = 0; stage < List::count; ++stage) {
    p.params = reload<T>(p.params);
    p.grid = p.grid.template opaque<T>();
    bool streams = false, by_routing = false;
    with_stage<0>(stage, [&]<int Index, class Code>() {
      streams = !std::is_void_v<typename Code::weights>;
      by_routing = P::info.kinds[Kind].stages[Index].routed || requires { Code::streams_by_routing; };
    }, list);
    if (!streams) continue;
    if (by_routing && !p.wait_routing()) return false;
    own_tiles mine{};
    u32 bytes = 0;
    int chunks = 0, per_part = 1;
    with_stage<0>(stage, [&]<int Index, class Code>() {
      if constexpr (!std::is_void_v<typename Code::weights>) {
        mine = own<P, Kind, Index, Code, routing>(p.grid);
        per_part = P::info.kinds[Kind].stages[Index].tiles / parts_of_stage(P::info, P::info.kinds[Kind].stages[Index]);
        bytes = Code::weights::chunk_bytes;
        chunks = Code::run_chunks;
      }
    }, list);
    MONOLAYER_NO_UNROLL
    for (int ordinal = mine.first; ordinal < mine.count; ordinal += mine.step) {
      const int tile = mine.tile(ordinal, per_part);
      int runs = 1;
      MONOLAYER_NO_UNROLL
      for (int i = 0; i < runs; ++i) {
        const u8* from = nullptr;
        with_stage<0>(stage, [&]<int Index, class Code>() {
          if constexpr (!std::is_void_v<typename Code::weights>) {
            runs = Code::template runs<routing>(tile);
            from = Code::template run<routing>(*p.entry, tile, i).address;
          }
        }, list);
        if (!p.push_run(from, chunks, bytes)) return false;
      }
    }
  }
  return true;
}

template <class P, int Kind, class Producer>
MONOLAYER_DEVICE bool produce_layer(Producer&, u32, kind_list<>) {
  return true;
}
template <class P, int Kind, class Producer, class List, class... Rest>
MONOLAYER_DEVICE bool produce_layer(Producer& p, u32 kind, kind_list<List, Rest...>) {
  if (kind != Kind) return produce_layer<P, Kind + 1>(p, kind, kind_list<Rest...>{});
  return produce_stages<P, Kind>(p, List{});
}

}  // namespace detail
}  // namespace monolayer
