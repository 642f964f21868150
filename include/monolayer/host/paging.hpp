// Checks of a step's paged caches, positions and lists (batch_view), as far as the host can see them. What only the
// device sees, the values in these arrays, is left out where it is wrong, and counted in device_state::bad_entries.
#pragma once

#include "monolayer/host/checks.hpp"
#include "monolayer/host/plan.hpp"

namespace monolayer {

/// Errors: null or misaligned pointers, block sizes and strides that the cache formats cannot have, slots beyond int32,
/// a missing list where a layer of the span attends to the caller's.
template <class P>
status check_batch(const batch_view& b, int rows, bool needs_list) {
  using kv = typename P::config::kv_cache;
  using keys = typename P::config::index_cache;
  using detail::check_buffer, detail::check_range;
  constexpr long long most = 0x7fffffff;
  constexpr long long most_in_page = 1 << 23;  // offsets of keys in a page are 32-bit
  constexpr u64 most_bytes = u64(1) << 56;     // of a cache
  const auto signed_value = [](u64 v) { return v > u64(1) << 62 ? (1ll << 62) : static_cast<long long>(v); };
  const auto multiple = [](const char* name, u64 seen, u64 of) {
    return seen % of == 0 ? status{}
                          : error(error_code::bad_value, name, std::to_string(seen), "a multiple of " + std::to_string(of));
  };
  const u64 row_count = u64(rows);
  for (const status& s :
       {check_buffer("batch.positions", b.positions, row_count * 8, row_count * 8, 8),
        check_buffer("batch.block_table", b.block_table, 4, 4, 4),
        check_range("batch.block_table_stride", b.block_table_stride, 1, 1ll << 40),
        check_range("batch.block_size", b.block_size, 1, most_in_page),
        multiple("batch.block_size", b.block_size, keys::block_size_multiple),
        check_range("batch.cache_slots", signed_value(b.cache_slots), 1, most),
        check_range("batch.rope_positions", signed_value(b.rope_positions), 1, most),
        check_buffer("batch.rope", b.rope, 16, 16, 16)})
    if (!s) return s;
  const u64 pages = b.cache_slots / b.block_size;
  const long long most_stride = signed_value(most_bytes / (pages < 1 ? 1 : pages));
  for (const status& s :
       {multiple("batch.cache_slots", b.cache_slots, b.block_size),
        check_range("batch.kv_row_stride", signed_value(b.kv_row_stride), kv::bytes, 1ll << 40),
        multiple("batch.kv_row_stride", b.kv_row_stride, 16),
        check_range("batch.kv_block_stride", signed_value(b.kv_block_stride),
                    signed_value(u64(b.block_size - 1) * b.kv_row_stride + kv::bytes), most_stride),
        multiple("batch.kv_block_stride", b.kv_block_stride, 16),
        check_range("batch.index_block_stride", signed_value(b.index_block_stride),
                    signed_value(keys::page_bytes(b.block_size)), most_stride),
        multiple("batch.index_block_stride", b.index_block_stride, keys::alignment)})
    if (!s) return s;
  if (b.requests != nullptr)
    if (status s = check_buffer("batch.requests", b.requests, row_count * 4, row_count * 4, 4); !s) return s;
  if (needs_list || b.list != nullptr || b.list_starts != nullptr)
    for (const status& s : {check_buffer("batch.list_starts", b.list_starts, 8, 8, 4),
                            check_buffer("batch.list", b.list, 4, 4, 4)})
      if (!s) return s;
  return {};
}

}  // namespace monolayer
