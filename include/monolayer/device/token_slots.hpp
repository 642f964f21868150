// Where the tokens of a row's request lie in the paged caches.
#pragma once

#include "monolayer/device/block.hpp"

namespace monolayer {

/// Division by a number that is known at run time only, by one multiplication; exact for all 32-bit numbers.
struct divider {
  u32 by, reciprocal;  // ceil(2^32 / by); 0 for 1
  MONOLAYER_HOST_DEVICE constexpr explicit divider(u32 d) : by(d), reciprocal(0xffffffffu / d + 1) {}
  MONOLAYER_HOST_DEVICE constexpr u32 quotient(u32 n) const {
    if (by == 1) return n;
    const u32 q = u32(u64(n) * reciprocal >> 32);  // or one more than it should be
    return u64(q) * by > n ? q - 1 : q;
  }
};

/// No slot: the block table names none for the token, or one that the caches do not have.
inline constexpr u32 no_slot = ~0u;

/// A token's place: page of the caches, place in it, and both as a global slot.
struct key_place {
  u32 slot, page, place;
};

/// The tokens of the request of row `row`: token t lies in page block_table[request][t / block_size], place t %
/// block_size. Pages that the caches do not have whole do not exist; global slots are numbers below 2^32 - 1.
template <class T>
struct token_slots {
  const int* table;  // of the request
  u32 entries, cache_pages;
  divider pages;

  MONOLAYER_DEVICE token_slots(const batch_view& batch, int row) : pages(batch.block_size) {
    const int request = batch.requests != nullptr ? int(T::load4(batch.requests + row)) : row;
    const long long first = request * batch.block_table_stride;
    table = batch.block_table + first;
    // A request that cannot exist has no tokens.
    entries = request < 0 ? 0 : batch.block_table_stride < 0xffffffff ? u32(batch.block_table_stride) : 0xffffffffu;
    cache_pages = pages.quotient(batch.cache_slots < no_slot ? u32(batch.cache_slots) : no_slot);
  }
  MONOLAYER_DEVICE key_place find(u32 t) const {
    const u32 entry = pages.quotient(t);
    return entry < entries ? in_page(t, entry, T::load4(table + entry)) : key_place{no_slot, 0, 0};
  }
  /// The slots of several tokens; the table is asked for all of them before the first answer is used.
  template <int N>
  MONOLAYER_DEVICE void find(const u32 (&t)[N], u32 (&slot)[N]) const {
    u32 entry[N], page[N];
    MONOLAYER_UNROLL
    for (int i = 0; i < N; ++i) slot[i] = no_slot;
    if (entries == 0) return;  // perhaps there is no table
    MONOLAYER_UNROLL
    for (int i = 0; i < N; ++i) {
      entry[i] = pages.quotient(t[i]);
      page[i] = T::load4(table + (entry[i] < entries ? entry[i] : 0));
    }
    MONOLAYER_UNROLL
    for (int i = 0; i < N; ++i)
      if (entry[i] < entries) slot[i] = in_page(t[i], entry[i], page[i]).slot;
  }

 private:
  /// Token t by the page that the table's entry names for it; a negative one is a large one.
  MONOLAYER_DEVICE key_place in_page(u32 t, u32 entry, u32 page) const {
    if (page >= cache_pages) return {no_slot, 0, 0};
    const u32 place = t - entry * pages.by;
    return {page * pages.by + place, page, place};
  }
};

/// Tokens that a row attends to: its own and those before it. A live row's position has been checked (kernel.hpp).
template <class T>
MONOLAYER_DEVICE int tokens_of(const batch_view& batch, int row) {
  return int(T::load8(batch.positions + row).v[0]) + 1;
}

}  // namespace monolayer
