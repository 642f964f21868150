// Where the indexer's keys lie: the caller's paged caches, and the copy in slot `own`. Host and device use these
// formulas.
//
// A cache is pages of `block_size` places, `index_block_stride` bytes apart; a global slot s is place s % block_size of
// page s / block_size. Sources: vLLM's indexer cache and AITER's indexer_k_quant_and_cache.
//   bf16_keys        place * 256: 128 bf16
//   fp8_keys<Page>   block_size * 128 value bytes (e4m3fn), then block_size f32 scales, powers of two; 132 bytes a
//   place.
//     plain           value d of place o at o * 128 + d
//     shuffled_16x16  at (o / 16) * 2048 + (d / 16) * 256 + (o % 16) * 16 + d % 16: 16 keys x 16 values are contiguous.
//                     block_size is a multiple of 16. vLLM and SGLang use it on ROCm whenever block_size > 1.
// In slot `own` a key is 256 bytes (bf16), or 128 value bytes in order, the scale, and padding up to 144 bytes.
#pragma once

#include "monolayer/arch/target.hpp"

namespace monolayer {

inline constexpr int index_dim = 128;  // values of a key

/// The order of the values in an fp8 page.
struct plain {
  static constexpr const char* name = "plain";
  static constexpr u32 block_size_multiple = 1;
  MONOLAYER_HOST_DEVICE static constexpr u32 value_offset(u32 place, u32 d) { return place * index_dim + d; }
};
struct shuffled_16x16 {
  static constexpr const char* name = "shuffled_16x16";
  static constexpr u32 block_size_multiple = 16;
  MONOLAYER_HOST_DEVICE static constexpr u32 value_offset(u32 place, u32 d) {
    return place / 16 * 2048 + d / 16 * 256 + place % 16 * 16 + d % 16;
  }
};

struct bf16_keys {
  static constexpr const char* name = "bf16_keys";
  static constexpr bool fp8 = false;
  static constexpr u32 block_size_multiple = 1;
  static constexpr u32 own_bytes = 2 * index_dim;  // in slot `own`
  /// Pages and rows of caches start at multiples of this.
  static constexpr u32 alignment = 16;
  MONOLAYER_HOST_DEVICE static constexpr u64 page_bytes(u32 block_size) { return u64(block_size) * 256; }
  MONOLAYER_HOST_DEVICE static constexpr u32 value_offset(u32 place, u32 d) { return place * 256 + d * 2; }
};

template <class Page>
struct fp8_keys {
  static constexpr const char* name = Page::block_size_multiple == 1 ? "fp8_keys<plain>" : "fp8_keys<shuffled_16x16>";
  static constexpr bool fp8 = true;
  static constexpr u32 block_size_multiple = Page::block_size_multiple;
  static constexpr u32 own_bytes = 144;
  static constexpr u32 own_scale = index_dim;  // byte offset of the scale in slot `own`
  /// A plain page of one place has 132 bytes, so plain pages may start at any multiple of 4.
  static constexpr u32 alignment = Page::block_size_multiple == 1 ? 4 : 16;
  MONOLAYER_HOST_DEVICE static constexpr u64 page_bytes(u32 block_size) { return u64(block_size) * (index_dim + 4); }
  MONOLAYER_HOST_DEVICE static constexpr u32 value_offset(u32 place, u32 d) { return Page::value_offset(place, d); }
  MONOLAYER_HOST_DEVICE static constexpr u32 scale_offset(u32 block_size, u32 place) {
    return block_size * index_dim + place * 4;
  }
};

}  // namespace monolayer
