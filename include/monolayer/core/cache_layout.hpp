// The paged cache of latent attention as engines lay it out: row formats and where a global slot lies. Host and device
// use the same functions.
//
// A cache is cut into blocks of block_size slots; the engine chooses the strides, so that padding and caches that share
// pages are possible. Lists of slots are int32, so a slot number fits 31 bits; byte offsets are 64-bit.
#pragma once

#include "monolayer/arch/target.hpp"

namespace monolayer {

/// 512 latent values after RMSNorm, then 64 rotated ones (pairs stay adjacent), bf16: 1152 bytes.
struct bf16_rows {
  static constexpr const char* name = "bf16_rows";
  static constexpr int latent = 512, rope = 64;
  static constexpr int element_bytes = 2;
  static constexpr u32 bytes = (latent + rope) * element_bytes;
};

/// The same in e4m3fn without a scale, rounded to nearest even, saturating at 448: 576 bytes.
struct fp8_rows {
  static constexpr const char* name = "fp8_rows";
  static constexpr int latent = 512, rope = 64;
  static constexpr int element_bytes = 1;
  static constexpr u32 bytes = (latent + rope) * element_bytes;
};

/// The format of a cache's rows. Rows are moved 16 bytes at a time.
template <class F>
concept kv_row_format = requires {
  requires F::bytes == u32((F::latent + F::rope) * F::element_bytes);
  requires F::element_bytes == 1 || F::element_bytes == 2;
  requires F::latent % 32 == 0 && F::rope % 32 == 0;
};
static_assert(kv_row_format<bf16_rows> && kv_row_format<fp8_rows>);

/// Where slots lie in a cache: bytes from its base.
struct cache_strides {
  u64 block, row;  // bytes from block to block, from slot to slot of a block
  u32 block_size;  // slots of a block

  MONOLAYER_HOST_DEVICE constexpr u64 offset(u32 slot) const {
    return u64(slot / block_size) * block + u64(slot % block_size) * row;
  }
};
static_assert(cache_strides{100, 7, 16}.offset(35) == 2 * 100 + 3 * 7);
// Far slots need all 64 bits.
static_assert(cache_strides{64 * 576, 576, 64}.offset(0x7fffffffu) == 0x7fffffffull * 576);

}  // namespace monolayer
