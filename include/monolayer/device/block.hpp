// What a stage sees of the block that runs it: the live rows, the current layer, views of the slots, the staged rows,
// and the barrier of the consumer waves. Nothing here waits for another block (sync.hpp does), so neither can a stage.
#pragma once

#include <type_traits>

#include "monolayer/core/math.hpp"
#include "monolayer/core/types.hpp"
#include "monolayer/core/walk_table.hpp"
#include "monolayer/device/lds_layout.hpp"
#include "monolayer/device/watch.hpp"

namespace monolayer {

/// A block's place in the grid: found again for each stage, since it is cheaper to find than to hold.
struct grid_place {
  int block, blocks;
  int groups, group, members, index;  // this block is member `index` of the `members` blocks of its locality group

  template <class T>
  MONOLAYER_DEVICE static grid_place find(int block, int blocks, int groups) {
    if (groups <= 1 || blocks % groups != 0) return {block, blocks, 1, 0, blocks, block};
    return {block, blocks, groups, block % groups, blocks / groups, block / groups};
  }
};

/// A wave-uniform number that is needed now and then.
template <class T>
class parked {
 public:
  MONOLAYER_DEVICE parked() : value_(T::park(0)) {}
  MONOLAYER_DEVICE operator u32() const { return u32(T::opaque(value_)); }
  MONOLAYER_DEVICE parked& operator=(u32 x) {
    value_ = T::park(int(x));
    return *this;
  }

 private:
  int value_;
};

/// The same of 64 bits.
template <class T>
class parked64 {
 public:
  MONOLAYER_DEVICE operator u64() const { return u64(u32(high_)) << 32 | u32(low_); }
  MONOLAYER_DEVICE parked64& operator=(u64 x) {
    low_ = u32(x);
    high_ = u32(x >> 32);
    return *this;
  }

 private:
  parked<T> low_, high_;
};

namespace detail {
struct nothing {};  // the type of a member that a target does without
}

/// A pointer, the same in all lanes, to what was written before the launch. What was loaded through it before is not
/// kept: the parameters are 300 bytes, and held from stage to stage they would fill CDNA's scalar registers.
template <class T, class To>
class parked_pointer {
 public:
  MONOLAYER_DEVICE operator const To*() const {
    if constexpr (T::few_scalars)
      return static_cast<const To*>(T::opaque(reinterpret_cast<const void*>(u64(word_))));
    else
      return static_cast<const To*>(T::opaque(pointer_));
  }
  MONOLAYER_DEVICE parked_pointer& operator=(const To* p) {
    if constexpr (T::few_scalars)
      word_ = reinterpret_cast<u64>(p);
    else
      pointer_ = p;
    return *this;
  }

 private:
  [[no_unique_address]] std::conditional_t<T::few_scalars, parked64<T>, detail::nothing> word_;
  [[no_unique_address]] std::conditional_t<T::few_scalars, detail::nothing, const To*> pointer_{};
};

/// Zeros, made where they are needed: the compiler would hold them in four registers from the kernel's start.
template <class T>
MONOLAYER_DEVICE u32x4 zeros() {
  const u32 zero = u32(T::opaque(0));
  return {{zero, zero, zero, zero}};
}

template <class T, class Program>
struct block {
  using target = T;
  using program = Program;
  using layout = lds_layout<T, Program>;
  using memory = slot_layout<Program, T::arrivals>;
  static constexpr program_info info = Program::info;
  static constexpr int threads = T::consumer_waves * T::wave_size;
  /// The wave that arrives. Wave 0 waits; an arrival takes as long as the stores before it, and the next wait begins meanwhile.
  static constexpr int arriving_wave = T::consumer_waves - 1;

  parked_pointer<T, launch_params> all_params;
  const launch_params* params;  // the same, of the current stage
  typename T::consumer_group group;
  typename T::ring ring;
  parked<T> layer;     // index in the span
  parked<T> kind;      // of the layer
  parked<T> stage;     // index in the kind
  parked<T> tile;
  u32 next_chunk = 0;  // number of the first chunk of the current tile
  parked<T> combined;  // tiles that ended with combine() so far
  parked<T> syncs;
  parked<T> staged;    // number of the input that the staged rows hold, of this layer; 0: of none
  int live = 0;        // live rows; column j of the matrix unit is the j-th of them

  MONOLAYER_DEVICE block(const launch_params& p, ring_geometry g) : params(&p), group(layout::group), ring(g) {
    all_params = params;
    if constexpr (T::few_scalars) {
      grid_.number = u32(T::block());
      grid_.blocks = u32(T::blocks());
    }
  }

  /// T::block() and T::blocks().
  MONOLAYER_DEVICE u32 number() const {
    if constexpr (T::few_scalars)
      return grid_.number;
    else
      return u32(T::block());
  }
  MONOLAYER_DEVICE u32 blocks() const {
    if constexpr (T::few_scalars)
      return grid_.blocks;
    else
      return u32(T::blocks());
  }

  MONOLAYER_DEVICE static int thread() { return T::wave() * T::wave_size + T::lane(); }
  /// Row of the launch that column j holds.
  MONOLAYER_DEVICE int row(int j) const { return int(T::lds_load4(layout::live_rows + 4 * u32(j))); }
  /// The live column that holds a row of the launch, -1 for a row that is not live. All lanes ask for the same row.
  MONOLAYER_DEVICE int column_of(int row) const {
    int column = -1;
    for (int j = 0; j < info.max_rows; ++j)
      if (j < live && this->row(j) == row) column = j;
    return T::opaque(column);  // the compiler learns that all lanes get the same
  }
  /// The current layer's entry in the span.
  MONOLAYER_DEVICE const layer_entry& entry() const { return params->layers[u32(layer)]; }
  /// Low 32 bits of the current layer's epoch.
  MONOLAYER_DEVICE u32 tag() const { return tag_; }
  MONOLAYER_DEVICE void set_tag(u32 tag) { tag_ = tag; }

  /// The table's row of the current stage; asked for anew where it is needed, since it is cheaper to find than to hold.
  MONOLAYER_DEVICE const stage_row& table() const {
    return walk_table<Program, T::arrivals>.stages[T::opaque(int(kind))][T::opaque(int(stage))];
  }
  /// Whether the current layer's kind writes a slot.
  MONOLAYER_DEVICE bool writes(int slot) const {
    return (walk_table<Program, T::arrivals>.kinds[T::opaque(int(kind))].writes >> slot & 1u) != 0;
  }

  /// Barrier of the consumer waves. False: the block leaves; all waves get the same answer, because a wave that gives
  /// up names the first barrier at which the others shall follow it (see abort()).
  MONOLAYER_DEVICE bool sync() {
    group.sync();
    const u32 now = syncs + 1, at = T::lds_flag_load(layout::abort_flag);
    syncs = now;
    return at == 0 || at > now;
  }
  /// This wave gives up: the block leaves at the wave's next barrier. The wave itself goes on to that barrier.
  MONOLAYER_DEVICE void abort() { T::lds_flag_store(layout::abort_flag, syncs + 1); }

  /// How long to wait for blocks of this GPU. After the first layer they may themselves wait for a peer that is late but
  /// not lost, for instance in a reduction in which this block has no tile.
  MONOLAYER_DEVICE u64 local_deadline_ns() const {
    return info.ranks > 1 && layer != 0 ? params->local_deadline_ns + params->peer_deadline_ns : params->local_deadline_ns;
  }
  MONOLAYER_DEVICE watch<T> wait_for_block() const { return {layout::abort_flag, params->state, local_deadline_ns()}; }

  /// LDS address of column j's staged row, for rows of `bytes` bytes.
  MONOLAYER_DEVICE static lds_address staged_row(int j, u32 bytes) {
    return layout::rows + u32(j) * (bytes + staged_row_pad);
  }

  MONOLAYER_DEVICE static slot_clock clock(int slot) {
    const u32x4 c = T::lds_load16(layout::clocks + 16 * u32(slot));
    return {c.v[0], c.v[1], c.v[2]};
  }
  template <int Slot>
  MONOLAYER_DEVICE slot_clock clock() const {
    return clock(Slot);
  }
  /// The current layer's use of a slot is behind: one thread says so, a sync() stands before and after.
  MONOLAYER_DEVICE void advance_clock(int slot) {
    const lds_address at = layout::clocks + 16 * u32(slot);
    T::lds_store16(at, {{T::lds_load4(at) + 1, tag(), 1, 0}});
  }

 private:
  parked<T> tag_;
  // Where the numbers come in scalar registers they are parked; elsewhere a special register holds them anyway.
  struct parked_grid {
    parked<T> number, blocks;
  };
  [[no_unique_address]] std::conditional_t<T::few_scalars, parked_grid, detail::nothing> grid_;
};

/// The payload of one use of a slot. Rows are the launch's rows, columns the slot's.
template <class T, class Program, int Slot>
struct slot_view {
  static constexpr slot_info s = Program::info.slots[Slot];
  static constexpr u64 row_bytes = slot_row_bytes(s);
  static_assert(s.type != element::token && s.scope != scope::peers);
  u8* base;

  template <class Block>
  MONOLAYER_DEVICE static slot_view use(const Block& b, u32 number) {
    using memory = typename Block::memory;
    const u32 buffer = s.buffers == 1 ? 0 : number % u32(s.buffers);
    constexpr u64 first = memory::payload_offset(Slot), bytes = memory::buffer_bytes(Slot);
    return {b.params->slots + first + buffer * bytes};
  }
  /// The use that this layer writes and reads.
  template <class Block>
  MONOLAYER_DEVICE static slot_view current(const Block& b) {
    return use(b, b.template clock<Slot>().uses);
  }

  MONOLAYER_DEVICE u8* at(int row, int column) const {
    return base + u64(row) * row_bytes +
           u64(column) * (s.transport == transport::tagged ? 8 : element_bytes(s.type));
  }
  /// 8 bf16 from a column that is a multiple of 8.
  MONOLAYER_DEVICE u32x4 load8(int row, int column) const { return T::slot_load16(at(row, column)); }
  MONOLAYER_DEVICE void store8(int row, int column, u32x4 v) const { T::slot_store16(at(row, column), v); }
  /// One f32 with its tag.
  MONOLAYER_DEVICE void store_tagged(int row, int column, float v, u32 tag) const {
    T::tagged_store(at(row, column), u64(tag) << 32 | float_to_bits(v));
  }
};

}  // namespace monolayer
