// The matrix loop for short k: each wave multiplies whole subtiles of 16 features over all of k, so the waves' sums need
// no combination, and the block no barrier.
//
// multiply.hpp deals the units of a subtile to all waves, which suits long k: with the 2 or 4 units of a head's k most
// waves would only add zeros. Here a tile has many subtiles instead, and wave w takes subtiles w, w + waves, ... A sum is
// one wave's, in ascending k: its bits do not depend on the number of waves.
#pragma once

#include "monolayer/device/multiply.hpp"

namespace monolayer {

/// The product of one tile with staged rows, Tile::padded_k columns of them. Hands each lane the f32 results of one
/// (feature, column) at a time: done(subtile, feature 0..15, column, valid, value). All lanes of a wave call `done`
/// together, eight neighbours with features 0..7 or 8..15 of a column, as store_features wants them; `valid` marks those
/// whose column is live. Stores no more than this block's partials in LDS, which a barrier must have freed.
template <class Tile, class Block, class Done>
MONOLAYER_DEVICE void project_by_wave(Block& b, const staged_column& rows, Done done) {
  using T = typename Block::target;
  using F = typename Tile::format;
  using layout = typename Block::layout;
  constexpr u32 upc = u32(Tile::units_per_chunk), waves = u32(T::consumer_waves);
  constexpr u32 unit_scales = F::chunk_scale_bytes != 0 ? 0u : u32(F::scale_bytes);
  constexpr float factor = result_factor<T, F>();
  const lds_address mine = layout::partials + u32(T::wave()) * layout::partial_wave;
  const u32 first_chunk = b.next_chunk;
  b.next_chunk = first_chunk + u32(Tile::chunks) * Tile::subtiles;
  MONOLAYER_NO_UNROLL
  for (u32 sub = u32(T::wave()); sub < u32(Tile::subtiles); sub += waves) {
    fragment_d sum = {};
    lds_address at = rows.at;
    u32 chunk = first_chunk + sub * u32(Tile::chunks);
    MONOLAYER_NO_UNROLL
    for (u32 c = 0; c < u32(Tile::chunks); ++c, ++chunk) {
      auto w = b.wait_for_block();
      if (!b.ring.wait_full(chunk, w)) {
        fail(b, w, {failure::stream_wait, 0, 0, chunk, 0});
        return;
      }
      const lds_address weights = b.ring.slot(chunk);
      MONOLAYER_NO_UNROLL
      for (u32 u = 0; u < upc; ++u, at += rows.stride)
        multiply_unit<T, F>(sum, weights + u * Tile::unit_bytes, weights + Tile::scales_at + u * unit_scales, at);
      b.ring.release(chunk, ring_credits);
    }
    for (int r = 0; r < 4; ++r) {
      const int column = T::d_column(T::lane(), r);
      if (column < b.live)
        T::lds_store4(mine + u32(column) * layout::partial_column + 4u * u32(T::d_row(T::lane(), r)),
                      float_to_bits(sum.v[r]));
    }
    T::wave_sync();
    MONOLAYER_NO_UNROLL
    for (int first = 0; first < b.live * tile_features; first += T::wave_size) {
      const int item = first + T::lane(), feature = item % tile_features, column = item / tile_features;
      const bool valid = column < b.live;
      float value = 0.0f;
      if (valid)
        value = mul(bits_to_float(T::lds_load4(mine + u32(column) * layout::partial_column + 4u * u32(feature))), factor);
      done(int(sub), feature, column, valid, value);
    }
    T::wave_sync();
  }
}

}  // namespace monolayer
