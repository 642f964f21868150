// The walk over layers, stages and tiles, for the producer wave and for the consumer waves. The pipeline waits for what
// a stage reads, has its input staged, runs its tiles and arrives for what they wrote; stages do none of it.
//
// A program P supplies `info` (the tables), `codes` (a code_list that stage_info::code indexes), sizes for the block's LDS
// (`largest_chunk`, `staged_bytes_per_row`), and `experts` where stages are routed. A code is a stateless
// struct, described in docs/architecture.md:
//   input            prepare(block): brings the input into LDS; the pipeline calls it before the block's first tile
//   weights          a weight_tile, or void when nothing is streamed
//   run_chunks       chunks of one run
//   runs<Routing>(tile), run<Routing>(layer_entry, tile, i)   the runs of chunks that the tile streams
//   run_tile(block, tile)   computes and stores; it can wait for weights, never for other blocks. Or, where that is one
//                    product with the whole staged rows:
//   projects, put(block, tile, feature, column, valid, y)   its weight_tile, and what becomes of the results, y[i] of
//                    subtile i. All such codes share their instructions. One whose tiles multiply a part of the rows each
//                    says so: tile t columns [t / split_tiles * projects::padded_k, + projects::padded_k) of staged_k.
//   routed stages    tile_count<Routing>(), units_of_tile, units_without_tile
#pragma once

#include <type_traits>
#include <utility>

#include "monolayer/device/products.hpp"
#include "monolayer/device/stage_inputs.hpp"

namespace monolayer {

/// Which tiles of a stage a block owns: a pure function of the table, the grid and the block. Ordinals run over the
/// tiles of the block's locality group where the stage is by_group, else over all tiles.
struct own_tiles {
  int first, step, count;  // ordinals first, first + step, ... < count
  int groups, group;

  template <class T>
  MONOLAYER_DEVICE int tile(int ordinal, int per_part) const {
    if (T::opaque(groups) == 1) return ordinal;
    per_part = T::opaque(per_part);  // the division's preparations would be held from tile to tile
    return (group + groups * (ordinal / per_part)) * per_part + ordinal % per_part;
  }
  /// The inverse, for tiles of this block's group.
  template <class T>
  MONOLAYER_DEVICE int ordinal(int tile, int per_part) const {
    if (T::opaque(groups) == 1) return tile;
    per_part = T::opaque(per_part);
    return tile / per_part / groups * per_part + tile % per_part;
  }
};

/// `offset` shifts the owners of a stage's tiles, so that stages that can run side by side start on different blocks.
MONOLAYER_HOST_DEVICE constexpr int first_ordinal(int index, int members, int offset) {
  const int shift = int(u32(offset) % u32(members));
  return index < shift ? index - shift + members : index - shift;
}

namespace detail {

/// The same parameters, but the compiler may keep nothing that it loaded from them before: they are 300 bytes, and held
/// from stage to stage they would fill CDNA's scalar registers.
template <class T>
MONOLAYER_DEVICE const launch_params* reload(const launch_params* p) {
  return static_cast<const launch_params*>(T::opaque(p));
}

/// For a routed stage the count is the most that the routing can give.
MONOLAYER_DEVICE own_tiles own(const grid_place& g, const stage_row& s) {
  if (!s.by_group) return {first_ordinal(g.block, g.blocks, s.owners_from), g.blocks, s.tiles, 1, 0};
  const int own_parts = g.group < s.parts ? (s.parts - g.group + g.groups - 1) / g.groups : 0;
  return {first_ordinal(g.index, g.members, s.owners_from), g.members, own_parts * s.per_part, g.groups, g.group};
}

// ---------------------------------------------------------------------------------------------- consumer waves

/// For the tiles with ordinals from, from + step, .. < end, and for what no tile serves where `rest` says so: the units with
/// which a counter of a slot of one part is added to.
template <class P, class Block>
MONOLAYER_DEVICE u32 units_of_tiles(const Block& b, const own_tiles& mine, int from, int end, bool rest) {
  using T = typename Block::target;
  const stage_row& s = b.table();
  if (s.routed == 0) return u32((end - from + mine.step - 1) / mine.step * s.units_per_tile);
  u32 units = 0;
  with_code<P>(s.code, [&]<class Code>() {
    if constexpr (requires { Code::routed; }) {
      MONOLAYER_NO_UNROLL
      for (int ordinal = from + T::lane() * mine.step; ordinal < end; ordinal += T::wave_size * mine.step)
        units += u32(Code::count_of_tile(b, ordinal));
      if (rest) units += u32(Code::count_without_tile(b));
    }
  });
  MONOLAYER_UNROLL
  for (int mask = T::wave_size / 2; mask > 0; mask /= 2) units += T::shuffle_xor(units, mask);
  return units;
}

/// One consumer wave arrives for the same tiles, which have been stored, unit by unit at a slot of one part.
template <class P, class Block>
MONOLAYER_DEVICE void arrive_for_tiles(Block& b, const own_tiles& mine, int from, int end, bool rest) {
  using T = typename Block::target;
  const stage_row& s = b.table();
  MONOLAYER_NO_UNROLL
  for (int ordinal = from; ordinal < end; ordinal += mine.step) {
    const int tile = mine.tile<T>(ordinal, s.per_part);
    if (s.routed == 0) {
      arrive(b, s.to, 0, tile * s.units_per_tile, s.units_per_tile);
    } else {
      with_code<P>(s.code, [&]<class Code>() {
        if constexpr (requires { Code::routed; })
          Code::units_of_tile(b, tile, [&](int first, int n) { arrive(b, s.to, 0, first, n); });
      });
    }
  }
  if (rest)
    with_code<P>(s.code, [&]<class Code>() {
      if constexpr (requires { Code::routed; })
        Code::units_without_tile(b, [&](int first, int n) { arrive(b, s.to, 0, first, n); });
    });
}

/// Runs the tiles b.tile, b.tile + blocks, ... < end, the first one in any case, and leaves b.tile at the last: tiles of code
/// number `code`, where that is like Code, number Number of all, and Code is the first of those.
template <class P, class Code, int Number, class Block, class... Codes>
MONOLAYER_DEVICE bool run_alike(Block& b, int code, u32 end, bool& good, code_list<Codes...> codes) {
  using T = typename Block::target;
  constexpr u64 all = all_alike<Code, Codes...>();
  if constexpr (!lowest(all, Number)) return false;
  if ((all >> code & 1) == 0) return false;
  static_assert(projecting<Code> != (requires(Block& x) { Code::run_tile(x, 0); }),
                "a code has run_tile(), or projects and put()");
  MONOLAYER_NO_UNROLL
  for (;;) {
    if constexpr (projecting<Code>) {
      project_code<P>(b, code, std::make_integer_sequence<int, int(sizeof...(Codes))>{}, codes);
      good = true;
    } else {
      good = Code::run_tile(b, int(u32(b.tile)));
    }
    if constexpr (!requires { Code::combines; }) return true;
    // All lanes agree; a compiler that does not know it masks lanes in every loop around this one.
    if (T::opaque(int(good)) == 0 || b.tile + b.blocks() >= end) return true;
    b.tile = b.tile + b.blocks();
    T::trace(b.layer, b.stage, b.tile);
  }
}
template <class P, class Block, int... Numbers, class... Codes>
MONOLAYER_DEVICE bool run_tiles(Block& b, int code, u32 end, std::integer_sequence<int, Numbers...>, code_list<Codes...> codes) {
  static_assert(sizeof...(Codes) <= 64);
  bool good = false;
  static_cast<void>((run_alike<P, Codes, Numbers>(b, code, end, good, codes) || ...));
  return Block::target::opaque(int(good)) != 0;
}

/// Bit i: code i ends its tiles with begin_sums() and end_sums(), so that one tile needs no barrier before the next.
template <class... Codes>
constexpr u64 combining(code_list<Codes...>) {
  return bits_of(requires { Codes::combines; }...);
}

/// What the tables say of a stage and the walk asks for between a wait and an arrival: one word, found before the wait, since
/// whoever waits for this block also waits for each look at a table.
template <class T>
class stage_head {
 public:
  template <class P, class Block>
  MONOLAYER_DEVICE static stage_head of(const Block& b, const own_tiles& mine) {
    const stage_row& s = b.table();
    const bool combines = (combining(typename P::codes{}) >> T::opaque(s.code) & 1) != 0;
    stage_head h;
    h.word_ = u32(s.code) | (s.routed != 0) << 8 | (s.own_reads != 0) << 9 | (s.to.parts > 1) << 10 |
              (s.to.parts == 1) << 11 | (mine.groups > 1) << 12 | combines << 13 |
              input_table<P>.of[T::opaque(s.code)] << 16;
    return h;
  }
  MONOLAYER_DEVICE int code() const { return int(word_ & 0xffu); }
  MONOLAYER_DEVICE bool routed() const { return (word_ >> 8 & 1) != 0; }
  MONOLAYER_DEVICE bool own_reads() const { return (word_ >> 9 & 1) != 0; }  // a tile waits for its own part
  // Whether it arrives: each tile at its own part, or all at once at the only one. A tagged slot's words need neither.
  MONOLAYER_DEVICE bool by_part() const { return (word_ >> 10 & 1) != 0; }
  MONOLAYER_DEVICE bool at_once() const { return (word_ >> 11 & 1) != 0; }
  MONOLAYER_DEVICE bool by_group() const { return (word_ >> 12 & 1) != 0; }  // groups own its tiles, and there are several
  MONOLAYER_DEVICE bool combines() const { return (word_ >> 13 & 1) != 0; }
  MONOLAYER_DEVICE u32 inputs() const { return word_ >> 16; }

 private:
  parked<T> word_;
};

template <class P, class Block>
MONOLAYER_DEVICE bool consume_stage(Block& b) {
  using T = typename Block::target;
  using routing = routing_table<Block>;
  b.params = b.all_params;
  T::trace(b.layer, b.stage, 0);
  const auto all_own = [&] {
    const int groups = b.table().by_group != 0 ? reload<T>(b.params)->groups : 1;
    return own(grid_place::find<T>(int(b.number()), int(b.blocks()), groups), b.table());
  };
  parked<T> first, count;  // ordinals
  const own_tiles mine = all_own();
  first = u32(mine.first), count = u32(mine.count);
  // Every block needs the routing before it can know whether it owns a tile of a routed stage: it prepares the input
  // first.
  const auto head = stage_head<T>::template of<P>(b, mine);
  bool find_tiles = head.routed(), ready = false;
  if (!find_tiles && first >= count) return true;  // nothing to do here, and nobody to tell
  b.tile = u32(mine.template tile<T>(mine.first, b.table().per_part));
  MONOLAYER_NO_UNROLL
  for (;;) {
    if (!find_tiles) T::trace(b.layer, b.stage, b.tile);
    // What follows from it is found again for each tile; the compiler would hold it all in registers.
    b.live = T::opaque(b.live);
    if (!ready || head.own_reads()) {
      wait_reads(b, b.table(), !ready, int(u32(b.tile)));
      if (!b.sync()) return false;
      if (!ready &&
          T::opaque(int(prepare_inputs(b, head.inputs(), inputs_of<input_set<>>(typename P::codes{})))) == 0)
        return false;
      ready = true;
    }
    if (find_tiles) {
      find_tiles = false;
      with_code<P>(head.code(), [&]<class Code>() {
        if constexpr (requires { Code::routed; }) count = u32(Code::template tile_count<routing>());
      });
      if (first >= count) break;
      T::trace(b.layer, b.stage, b.tile);
    }
    // Tiles that meet in their sums alone follow one another without a look at the table, unless somebody waits for one of
    // them. Arrivals at a slot of one part wait for the block's last tile: nobody could use an earlier one.
    const u32 end = head.combines() && !head.by_part() && !head.by_group() && !head.own_reads() ? u32(count) : 0u;
    if (!run_tiles<P>(b, head.code(), end, std::make_integer_sequence<int, P::codes::count>{}, typename P::codes{}))
      return false;
    if (end != 0) break;  // those were all
    u32 ordinal = b.tile;
    if (head.by_group()) ordinal = u32(all_own().template ordinal<T>(int(ordinal), b.table().per_part));
    ordinal += head.by_group() ? u32(all_own().step) : b.blocks();
    const bool last = T::opaque(int(ordinal >= count)) != 0;
    if (last && !head.by_part()) break;
    T::drain_stores();
    // Where and with what one arrives is found before the barrier: between it and the arrival others only wait.
    const bool arrives = head.by_part() && T::wave() == Block::arriving_wave;
    const int tile = int(u32(b.tile)), part = arrives ? tile / b.table().write_per_part : 0;
    if (!b.sync()) return false;
    if (arrives) {
      const stage_row& s = b.table();
      arrive(b, s.to, part, (tile - part * s.write_per_part) * s.units_per_tile, s.units_per_tile);
    }
    if (last) break;
    b.tile = head.by_group() ? u32(all_own().template tile<T>(int(ordinal), b.table().per_part)) : ordinal;
  }
  // Without an arrival nothing is left to do: waves that are late still read LDS, which the others do not change before
  // the block's next barrier.
  if (!head.at_once()) return true;
  T::drain_stores();
  const bool arrives = T::wave() == Block::arriving_wave, rest = head.routed() && first == 0;
  if constexpr (T::arrivals == arrival_kind::counter) {
    const u32 units = arrives ? units_of_tiles<P>(b, all_own(), int(u32(first)), int(u32(count)), rest) : 0;
    if (!b.sync()) return false;
    if (arrives) arrive(b, b.table().to, 0, 0, int(units));
  } else {
    if (!b.sync()) return false;
    if (arrives) arrive_for_tiles<P>(b, all_own(), int(u32(first)), int(u32(count)), rest);
  }
  return true;
}

template <class P, class Block>
MONOLAYER_DEVICE bool consume_layer(Block& b, u32 kind) {
  using T = typename Block::target;
  b.kind = kind;
  b.staged = 0;
  const auto kind_table = [&]() -> const kind_row& { return walk_table<P, T::arrivals>.kinds[T::opaque(int(b.kind))]; };
  MONOLAYER_NO_UNROLL
  for (b.stage = 0; int(b.stage) < kind_table().stages; b.stage = b.stage + 1)
    if (!consume_stage<P>(b)) return false;
  // The slots that this kind writes have one more use behind them.
  if (!b.sync()) return false;
  const int slot = Block::thread();
  if (slot < max_slots && (kind_table().writes >> slot & 1u) != 0) b.advance_clock(slot);
  if (slot < 2) T::lds_store4(Block::layout::known + 4u * u32(slot), 0);
  return b.sync();
}

// ------------------------------------------------------------------------------------------------ producer wave
// The stages only say what they stream; one loop pushes it.

template <class P, class Producer>
MONOLAYER_DEVICE bool produce_layer(Producer& p, u32 kind) {
  using T = typename Producer::target;
  using routing = routing_table<Producer>;
  const auto& table = walk_table<P, T::arrivals>;
  const int stages = table.kinds[T::opaque(int(kind))].stages;
  MONOLAYER_NO_UNROLL
  for (int stage = 0; stage < stages; ++stage) {
    const stage_row& row = table.stages[T::opaque(int(kind))][T::opaque(stage)];
    const int code = row.code;
    p.params = reload<T>(p.params);
    u32 bytes = 0;
    int chunks = 0;
    bool by_routing = false;
    with_code<P>(code, [&]<class Code>() {
      if constexpr (!std::is_void_v<typename Code::weights>) {
        bytes = Code::weights::chunk_bytes;
        chunks = Code::run_chunks;
        by_routing = requires { Code::routed; } || requires { Code::streams_by_routing; };
      }
    });
    if (bytes == 0) continue;
    if (by_routing && !p.wait_routing()) return false;
    own_tiles mine = own(grid_place::find<T>(T::opaque(T::block()), T::blocks(), p.params->groups), row);
    if (row.routed != 0)
      with_code<P>(code, [&]<class Code>() {
        if constexpr (requires { Code::routed; }) mine.count = Code::template tile_count<routing>();
      });
    MONOLAYER_NO_UNROLL
    for (int ordinal = mine.first; ordinal < mine.count; ordinal += mine.step) {
      const int tile = mine.tile<T>(ordinal, row.per_part);
      int runs = 0;
      with_code<P>(code, [&]<class Code>() {
        if constexpr (!std::is_void_v<typename Code::weights>) runs = Code::template runs<routing>(tile);
      });
      const auto address_of = [&](u32 c) {
        const u8* from = nullptr;
        with_code<P>(code, [&]<class Code>() {
          if constexpr (!std::is_void_v<typename Code::weights>) {
            constexpr u32 run_chunks = u32(Code::run_chunks);
            from = Code::template run<routing>(*p.entry, tile, int(c / run_chunks)) +
                   u64(c % run_chunks) * Code::weights::chunk_bytes;
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
