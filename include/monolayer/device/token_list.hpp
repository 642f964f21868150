// The tokens that a row attends to: picked by an indexer of this span, or listed by the caller; and where their cache
// rows lie.
#pragma once

#include "monolayer/device/kv_cache.hpp"

namespace monolayer {

/// A row's list of global slots, u32.
struct token_list {
  const u8* at;
  int count;
  bool picked;  // in a slot of this launch, else the caller's memory

  /// The picks of this layer where its kind writes slot `Picks` (u32 [most], then their count), else those of an earlier
  /// layer of the span, else the caller's list. Of a list with more than `most` entries the first `most` count; the rest
  /// are bad entries, and a list that ends before it starts is one, counted by the caller that passes `report`.
  template <int Picks, class Block>
  MONOLAYER_DEVICE static token_list of_row(Block& b, int row, int most, bool report) {
    using T = typename Block::target;
    using view = slot_view<T, typename Block::program, Picks>;
    const slot_clock clock = b.template clock<Picks>();
    const bool current = b.writes(Picks);
    if (current || clock.in_span != 0) {
      const u8* at = view::use(b, current ? clock.uses : clock.uses - 1).at(row, 0);
      const int count = int(T::slot_load4(at + u64(most) * 4));
      return {at, count < most ? count : most, true};
    }
    const batch_view& v = b.params->batch;
    const int first = int(T::load4(v.list_starts + row)), end = int(T::load4(v.list_starts + row + 1));
    if (first < 0 || end < first) {  // no list: as an empty one
      if (report) T::fetch_add(&b.params->state->bad_entries, 1);
      return {reinterpret_cast<const u8*>(v.list), 0, false};
    }
    const int count = end - first;
    if (report && count > most) T::fetch_add(&b.params->state->bad_entries, u32(count - most));
    return {reinterpret_cast<const u8*>(v.list + first), count < most ? count : most, false};
  }
  template <class T>
  MONOLAYER_DEVICE u32 entry(int i) const {
    return picked ? T::slot_load4(at + u64(i) * 4) : T::load4(at + u64(i) * 4);
  }
};

/// Where a listed token's row lies. Rows are multiples of 16 bytes apart; the lowest bit says that the row is not in the
/// cache: then it is in slot `Own`, because this launch writes it and memory may not be asked, or, with no other bit, the
/// entry is left out.
struct token_place {
  u32 low, high;

  MONOLAYER_DEVICE static token_place none() { return {1, 0}; }
  MONOLAYER_DEVICE bool absent() const { return low == 1 && high == 0; }
  MONOLAYER_DEVICE bool cached() const { return (low & 1) == 0; }
  MONOLAYER_DEVICE bool own() const { return !cached() && !absent(); }
  MONOLAYER_DEVICE const u8* address() const { return reinterpret_cast<const u8*>(u64(high) << 32 | (low & ~1u)); }
};

/// The slots of the live rows' own tokens, [column]; ~0, which is no slot, in the columns without a row.
struct own_tokens {
  u32x4 slots[2];

  /// Each wave gathers them for itself, in 32 bytes of LDS a wave from `scratch` on.
  template <class Block>
  MONOLAYER_DEVICE static own_tokens of(const Block& b, lds_address scratch) {
    using T = typename Block::target;
    static_assert(Block::info.max_rows <= 8);
    const lds_address mine = scratch + 32u * u32(T::wave());
    if (T::lane() < 8)
      T::lds_store4(mine + 4u * u32(T::lane()), T::lane() < b.live ? own_token_slot(b, b.row(T::lane())) : ~0u);
    T::wave_sync();
    return {{T::lds_load16(mine), T::lds_load16(mine + 16)}};
  }
  template <int Own, class Block>
  MONOLAYER_DEVICE token_place find(const Block& b, u32 slot, const u8* cache) const {
    using T = typename Block::target;
    if (slot >= b.params->batch.cache_slots) return token_place::none();
    int column = -1;
    MONOLAYER_UNROLL
    for (int j = 0; j < Block::info.max_rows; ++j) column = slots[j / 4].v[j % 4] == slot ? j : column;
    const u8* at = column < 0 ? cache + kv_strides(b).offset(slot)
                              : slot_view<T, typename Block::program, Own>::current(b).at(b.row(column), 0);
    const u64 word = reinterpret_cast<u64>(at);
    return {u32(word) | (column < 0 ? 0u : 1u), u32(word >> 32)};
  }
};

}  // namespace monolayer
