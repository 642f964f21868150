// Projections of normalised rows, and the hand-out of heads.
#pragma once

#include "monolayer/device/inputs.hpp"
#include "monolayer/device/multiply.hpp"

namespace monolayer::stages {

/// Packed weights of a stage whose tiles each stream one run from layer_entry::data[Data].
template <class Tile, int Data>
struct plain_stream {
  using weights = Tile;
  static constexpr int run_chunks = Tile::chunks * Tile::subtiles;
  template <class Routing>
  MONOLAYER_DEVICE static int runs(int) {
    return 1;
  }
  template <class Routing>
  MONOLAYER_DEVICE static const u8* run(const layer_entry& entry, int tile, int) {
    return layer_data<typename Routing::T>(entry, Data) + u64(tile) * Tile::bytes;
  }
};

/// Writes a tile's results as bf16: feature f of column j goes to (row of j, first + f).
template <class View, class Block>
MONOLAYER_DEVICE void store_features(Block& b, const View& view, int first, int feature, int column, bool valid,
                                     float value) {
  const u32x4 eight = gather8<typename Block::target>(value);
  if (valid && feature % 8 == 0) view.store8(b.row(column), first + feature, eight);
}

/// y[row][N] = x W^T, bf16, in tiles of 16 features; x is the declared input (K columns).
template <class Input, int Slot, int K, int N, class Format, int Data>
struct projection : plain_stream<weight_tile<Format, K>, Data> {
  static_assert(N % tile_features == 0, "projection: features must be a multiple of 16");
  using input = Input;
  static constexpr int slot = Slot;
  static constexpr int tiles = N / tile_features;

  template <class Block>
  MONOLAYER_DEVICE static bool run_tile(Block& b, int tile) {
    using T = typename Block::target;
    const auto out = slot_view<T, typename Block::program, Slot>::current(b);
    return project<weight_tile<Format, K>>(b, [&](int feature, int column, bool valid, float (&y)[1]) {
      store_features(b, out, tile * tile_features, feature, column, valid, y[0]);
    });
  }
};

/// Copies each head of slot `Slot` to the layer's output, bf16 [rows][heads * head_dim], as soon as that head is
/// complete.
template <int Slot, int Heads, int HeadDim>
struct store_heads {
  static_assert(HeadDim % 8 == 0);
  using input = inputs::none;
  using weights = void;

  template <class Block>
  MONOLAYER_DEVICE static bool run_tile(Block& b, int head) {
    using T = typename Block::target;
    const auto q = slot_view<T, typename Block::program, Slot>::current(b);
    for (int i = Block::thread(); i < b.live * HeadDim / 8; i += Block::threads) {
      const int row = b.row(i / (HeadDim / 8)), column = head * HeadDim + i % (HeadDim / 8) * 8;
      T::store16(static_cast<u8*>(b.entry->output) + (u64(row) * (Heads * HeadDim) + u64(column)) * 2,
                 q.load8(row, column));
    }
    return true;
  }
};

}  // namespace monolayer::stages
