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
#include <utility>

#include "monolayer/device/inputs.hpp"

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

  template <class T>
  MONOLAYER_DEVICE int tile(int ordinal, int per_part) const {
    if (groups == 1) return ordinal;
    per_part = T::opaque(per_part);  // the division's preparations would be held from tile to tile
    return (group + groups * (ordinal / per_part)) * per_part + ordinal % per_part;
  }
};

/// `offset` shifts the owners of a stage's tiles, so that stages that can run side by side start on different blocks.
MONOLAYER_HOST_DEVICE constexpr int first_ordinal(int index, int members, int offset) {
  const int shift = int(u32(offset) % u32(members));
  return index < shift ? index - shift + members : index - shift;
}

/// Owners of a stage start where the tiles of the stages before it in the kind ended (as planned, not as routed).
MONOLAYER_HOST_DEVICE constexpr int owner_offset(const kind_info& kind, int stage) {
  int at = 0;
  for (int i = 0; i < stage; ++i)
    if (!kind.stages[i].routed) at += kind.stages[i].tiles;
  return at;
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

// Stages are numbered through all kinds. The walk is written once, over run-time numbers; what differs between stages
// is looked up by with_stage. So each piece of code is in the kernel once, whatever the number of stages: an
// instruction cache holds 64 KiB on CDNA.

/// The stage with that number: its code, its kind, its index in the kind.
template <int Number, int Kind, int Index, class Kinds>
struct find_stage;
template <int Number, int Kind, int Index, class... Lists>
struct find_stage<Number, Kind, Index, kind_list<stage_list<>, Lists...>>
    : find_stage<Number, Kind + 1, 0, kind_list<Lists...>> {};
template <int Number, int Kind, int Index, class Code, class... Codes, class... Lists>
struct find_stage<Number, Kind, Index, kind_list<stage_list<Code, Codes...>, Lists...>>
    : find_stage<Number - 1, Kind, Index + 1, kind_list<stage_list<Codes...>, Lists...>> {};
template <int Kind, int Index, class Code, class... Codes, class... Lists>
struct find_stage<0, Kind, Index, kind_list<stage_list<Code, Codes...>, Lists...>> {
  using code = Code;
  static constexpr int kind = Kind, index = Index;
};

template <class P, int Number>
struct stage_of : find_stage<Number, 0, 0, typename P::kinds> {
  static constexpr kind_info kind_table = P::info.kinds[stage_of::kind];
  static constexpr stage_info table = kind_table.stages[stage_of::index];
  static constexpr int parts = parts_of_stage(P::info, table);
  static constexpr int owners_from = owner_offset(kind_table, stage_of::index);
  static constexpr bool own_reads = has_own_reads(table);
};

template <class... Lists>
constexpr int count_stages(kind_list<Lists...>) {
  return (Lists::count + ... + 0);
}
template <class P>
inline constexpr int stage_count = count_stages(typename P::kinds{});

/// Calls f.template operator()<stage_of<P, number>>().
template <class P, int Number = 0, class F>
MONOLAYER_DEVICE void with_stage(int number, F f) {
  if constexpr (Number < stage_count<P>) {
    if (number == Number)
      f.template operator()<stage_of<P, Number>>();
    else
      with_stage<P, Number + 1>(number, f);
  }
}

/// The numbers of a kind's stages, none for a kind that the program lacks, and the slots that they write.
struct stage_range {
  int first, count;
  unsigned writes;
};
template <class P, int Kind = 0>
MONOLAYER_DEVICE stage_range stages_of_kind(int kind, int first = 0) {
  if constexpr (Kind < P::info.kind_count) {
    constexpr int count = P::info.kinds[Kind].stage_count;
    constexpr unsigned writes = slots_written(P::info.kinds[Kind]);
    if (kind == Kind) return {first, count, writes};
    return stages_of_kind<P, Kind + 1>(kind, first + count);
  } else {
    return {};
  }
}

/// What decides which tiles of a stage a block owns.
struct tile_plan {
  int tiles = 0, parts = 1, per_part = 0, owners_from = 0;
  bool by_group = false;

  template <class Stage>
  MONOLAYER_HOST_DEVICE static constexpr tile_plan of() {
    constexpr int tiles = Stage::table.tiles, parts = Stage::parts;
    return {tiles, parts, tiles / parts, Stage::owners_from, Stage::table.by_group};
  }
};

/// For a routed stage the count is the most that the routing can give.
MONOLAYER_DEVICE own_tiles own(const grid_place& g, const tile_plan& s) {
  if (!s.by_group) return {first_ordinal(g.block, g.blocks, s.owners_from), g.blocks, s.tiles, 1, 0};
  const int own_parts = g.group < s.parts ? (s.parts - g.group + g.groups - 1) / g.groups : 0;
  return {first_ordinal(g.index, g.members, s.owners_from), g.members, own_parts * s.per_part, g.groups, g.group};
}

// ---------------------------------------------------------------------------------------------- consumer waves

/// The different inputs of a program's stages, and whether a stage's input is or contains one of them.
template <class... Inputs>
struct input_set {
  template <class Input>
  static constexpr bool has = (std::is_same_v<Input, Inputs> || ...);
  template <class Input>
  using with = input_set<Inputs..., Input>;
};
template <class Set, class Input>
struct add_input {
  using type = std::conditional_t<Set::template has<Input>, Set, typename Set::template with<Input>>;
};
template <class Set>
struct add_input<Set, inputs::none> {
  using type = Set;
};
template <class Set, class First, class Second>
struct add_input<Set, inputs::both<First, Second>>
    : add_input<typename add_input<Set, First>::type, Second> {};

template <class P, int Number = 0, class Set = input_set<>>
constexpr auto inputs_of_program() {
  if constexpr (Number == stage_count<P>)
    return Set{};
  else
    return inputs_of_program<P, Number + 1, typename add_input<Set, typename stage_of<P, Number>::code::input>::type>();
}

template <class P, class Block, class... Inputs>
MONOLAYER_DEVICE bool prepare_inputs(Block& b, int number, input_set<Inputs...>) {
  u32 wanted = 0;
  with_stage<P>(number, [&]<class Stage>() {
    using own_inputs = typename add_input<input_set<>, typename Stage::code::input>::type;
    constexpr u32 bits = [] {
      u32 all = 0, bit = 1;
      ((all |= own_inputs::template has<Inputs> ? bit : 0, bit <<= 1), ...);
      return all;
    }();
    wanted = bits;
  });
  u32 bit = 1;
  return ((((wanted & bit) == 0 || Inputs::prepare(b)) && (bit <<= 1) != 0) && ...);
}

/// The first consumer wave waits for what tile `tile` of a stage reads: the one part of `own` reads, and all parts of
/// the others at the stage's first wait.
template <class P, class Block>
MONOLAYER_DEVICE void wait_reads(Block& b, int number, bool first_wait, int tile) {
  using T = typename Block::target;
  using memory = typename Block::memory;
  if (T::wave() != 0) return;
  MONOLAYER_NO_UNROLL
  for (int i = 0; i < max_reads; ++i) {
    slot_arrivals from{};
    bool earlier = false;
    int first = 0, count = 0;
    with_stage<P>(number, [&]<class Stage>() {
      auto read = [&]<int Read>() {
        constexpr slot_read r = Stage::table.reads[Read];
        if constexpr (r.slot >= 0) {
          constexpr slot_info s = P::info.slots[r.slot];
          if (i == Read && s.transport == transport::counted) {
            from = slot_arrivals::template of<P, memory, r.slot>();
            earlier = r.earlier;
            if constexpr (r.reach == reach::own)
              first = tile / (Stage::table.tiles / s.parts), count = 1;
            else if (first_wait)
              count = s.parts;
          }
        }
      };
      [&]<int... Reads>(std::integer_sequence<int, Reads...>) {
        (read.template operator()<Reads>(), ...);
      }(std::make_integer_sequence<int, max_reads>{});
    });
    if (count != 0) wait_parts(b, from, earlier, first, count);
  }
}

/// The first consumer wave arrives for a tile of a stage that writes a counted slot.
template <class P, class Block>
MONOLAYER_DEVICE void arrive_for_tile(Block& b, int number, int tile) {
  using memory = typename Block::memory;
  slot_arrivals to{};
  int part = 0, unit = 0, count = 0;
  with_stage<P>(number, [&]<class Stage>() {
    constexpr stage_info s = Stage::table;
    if constexpr (s.writes >= 0) {
      constexpr slot_info slot = P::info.slots[s.writes];
      if constexpr (slot.transport == transport::counted) {
        if constexpr (s.routed) {
          constexpr slot_arrivals routed_to = slot_arrivals::template of<P, memory, s.writes>();
          Stage::code::units_of_tile(b, tile, [&](int first, int n) { arrive(b, routed_to, 0, first, n); });
        } else {
          constexpr int per_part = s.tiles / slot.parts;
          to = slot_arrivals::template of<P, memory, s.writes>();
          part = tile / per_part;
          unit = (tile - part * per_part) * s.units_per_tile;
          count = s.units_per_tile;
        }
      }
    }
  });
  if (count != 0) arrive(b, to, part, unit, count);
}

template <class P, class Block>
MONOLAYER_DEVICE bool consume_stage(Block& b, int number) {
  using T = typename Block::target;
  using routing = routing_table<Block>;
  b.params = reload<T>(b.params);
  number = T::opaque(number);
  b.tile = 0;
  T::trace(b.layer, b.stage, 0);
  tile_plan plan;
  // Every block needs the routing before it can know whether it owns a tile of a routed stage: it prepares the input
  // first.
  bool find_tiles = false, ready = false;
  with_stage<P>(number, [&]<class Stage>() {
    plan = tile_plan::of<Stage>();
    find_tiles = Stage::table.routed;
  });
  own_tiles mine = own(grid_place::find<T>(int(b.number), int(b.blocks), b.params->groups), plan);
  MONOLAYER_NO_UNROLL
  for (int ordinal = mine.first; find_tiles || ordinal < mine.count; ordinal += mine.step) {
    const int tile = mine.tile<T>(ordinal, plan.per_part);
    // What follows from these is found again for each tile; the compiler would hold it all in registers.
    number = T::opaque(number);
    b.live = T::opaque(b.live);
    b.tile = u32(tile);
    T::trace(b.layer, b.stage, u32(tile));
    bool own_reads = false;
    with_stage<P>(number, [&]<class Stage>() { own_reads = Stage::own_reads; });
    if (!ready || own_reads) {
      wait_reads<P>(b, number, !ready, tile);
      if (!b.sync()) return false;
      if (!ready && !prepare_inputs<P>(b, number, inputs_of_program<P>())) return false;
      ready = true;
    }
    if (find_tiles) {
      find_tiles = false;
      with_stage<P>(number, [&]<class Stage>() {
        if constexpr (Stage::table.routed) mine.count = Stage::code::template tile_count<routing>();
      });
      ordinal -= mine.step;
      continue;
    }
    bool good = false;
    with_stage<P>(number, [&]<class Stage>() { good = Stage::code::run_tile(b, tile); });
    T::drain_stores();
    if (!good || !b.sync()) return false;
    if (T::wave() == 0) arrive_for_tile<P>(b, number, tile);
  }
  with_stage<P>(number, [&]<class Stage>() {
    constexpr stage_info s = Stage::table;
    if constexpr (s.routed && s.writes >= 0) {
      constexpr slot_arrivals to = slot_arrivals::template of<P, typename Block::memory, s.writes>();
      if (mine.first == 0 && T::wave() == 0)
        Stage::code::units_without_tile(b, [&](int unit, int count) { arrive(b, to, 0, unit, count); });
    }
  });
  return true;
}

template <class P, class Block>
MONOLAYER_DEVICE bool consume_layer(Block& b, u32 kind_number) {
  using T = typename Block::target;
  parked<T> kind;
  kind = kind_number;
  auto stages = [&] { return stages_of_kind<P>(int(kind)); };
  MONOLAYER_NO_UNROLL
  for (b.stage = 0; int(b.stage) < stages().count; b.stage = b.stage + 1)
    if (!consume_stage<P>(b, stages().first + int(b.stage))) return false;
  // The slots that this kind writes have one more use behind them.
  if (!b.sync()) return false;
  const int slot = Block::thread();
  if (slot < max_slots && (stages().writes >> slot & 1u) != 0) b.advance_clock(slot);
  return b.sync();
}

// ------------------------------------------------------------------------------------------------ producer wave
// The stages only say what they stream; one loop pushes it.

template <class P, class Producer>
MONOLAYER_DEVICE bool produce_layer(Producer& p, u32 kind) {
  using T = typename Producer::target;
  using routing = routing_table<Producer>;
  const stage_range stages = stages_of_kind<P>(int(kind));
  MONOLAYER_NO_UNROLL
  for (int stage = 0; stage < stages.count; ++stage) {
    const int number = T::opaque(stages.first + stage);
    p.params = reload<T>(p.params);
    bool streams = false, routed = false, by_routing = false;
    tile_plan plan;
    with_stage<P>(number, [&]<class Stage>() {
      plan = tile_plan::of<Stage>();
      streams = !std::is_void_v<typename Stage::code::weights>;
      routed = Stage::table.routed;
      by_routing = routed || requires { Stage::code::streams_by_routing; };
    });
    if (!streams) continue;
    if (by_routing && !p.wait_routing()) return false;
    u32 bytes = 0;
    int chunks = 0, tiles = plan.tiles;
    with_stage<P>(number, [&]<class Stage>() {
      if constexpr (!std::is_void_v<typename Stage::code::weights>) {
        if constexpr (Stage::table.routed) tiles = Stage::code::template tile_count<routing>();
        bytes = Stage::code::weights::chunk_bytes;
        chunks = Stage::code::run_chunks;
      }
    });
    own_tiles mine = own(grid_place::find<T>(T::opaque(T::block()), T::blocks(), p.params->groups), plan);
    if (routed) mine.count = tiles;
    MONOLAYER_NO_UNROLL
    for (int ordinal = mine.first; ordinal < mine.count; ordinal += mine.step) {
      const int tile = mine.tile<T>(ordinal, plan.per_part);
      int runs = 0;
      with_stage<P>(number, [&]<class Stage>() {
        if constexpr (!std::is_void_v<typename Stage::code::weights>) runs = Stage::code::template runs<routing>(tile);
      });
      const auto address_of = [&](u32 c) {
        const u8* from = nullptr;
        with_stage<P>(number, [&]<class Stage>() {
          if constexpr (!std::is_void_v<typename Stage::code::weights>) {
            constexpr u32 run_chunks = u32(Stage::code::run_chunks);
            from = Stage::code::template run<routing>(*p.entry, tile, int(c / run_chunks)) +
                   u64(c % run_chunks) * Stage::code::weights::chunk_bytes;
          }
        });
        return from;
      };
      if (!p.push(u32(runs * chunks), bytes, address_of)) return false;
    }
  }
  return true;
}

}  // namespace detail
}  // namespace monolayer
