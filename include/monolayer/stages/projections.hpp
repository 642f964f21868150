// Projections of normalised rows, and the hand-out of heads.
#pragma once

#include "monolayer/device/inputs.hpp"
#include "monolayer/device/mailbox.hpp"
#include "monolayer/device/multiply.hpp"
#include "monolayer/device/rotation.hpp"

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

// ---- Where a projection's results go: `begin(block)` once a tile, then `put` for each (feature, column); all lanes of a
// wave put together.

/// Slot `Slot`, bf16.
template <int Slot>
struct to_slot {
  template <class Block>
  struct target {
    slot_view<typename Block::target, typename Block::program, Slot> view;
    MONOLAYER_DEVICE explicit target(Block& b) : view(decltype(view)::current(b)) {}
    MONOLAYER_DEVICE void put(Block& b, int first, int feature, int column, bool valid, float y) const {
      store_features(b, view, first, feature, column, valid, y);
    }
  };
};

/// Slot `Slot`, f32; each value with its tag where the slot is tagged.
template <int Slot>
struct to_f32_slot {
  template <class Block>
  struct target {
    using T = typename Block::target;
    slot_view<T, typename Block::program, Slot> view;
    MONOLAYER_DEVICE explicit target(Block& b) : view(decltype(view)::current(b)) {}
    MONOLAYER_DEVICE void put(Block& b, int first, int feature, int column, bool valid, float y) const {
      if (!valid) return;
      if constexpr (decltype(view)::s.transport == transport::tagged)
        view.store_tagged(b.row(column), first + feature, y, b.tag());
      else
        T::slot_store4(view.at(b.row(column), first + feature), float_to_bits(y));
    }
  };
};

/// Slot `Slot`, bf16, heads of `HeadDim` columns: columns [From, From + Rope) of each head are rotated by the row's
/// position (interleaved pairs (2i, 2i + 1), in place; batch_view::rope), columns [0, From) are multiplied by the f32
/// factors of layer_entry::data[Factors], [heads][From], where Factors >= 0.
template <int Slot, int HeadDim, int From, int Rope, int Factors = -1>
struct to_rotated_slot {
  static_assert(HeadDim % tile_features == 0 && From % tile_features == 0 && Rope % tile_features == 0);
  template <class Block>
  struct target {
    using T = typename Block::target;
    slot_view<T, typename Block::program, Slot> view;
    MONOLAYER_DEVICE explicit target(Block& b) : view(decltype(view)::current(b)) {}
    MONOLAYER_DEVICE void put(Block& b, int first, int feature, int column, bool valid, float y) const {
      const int in_head = first % HeadDim;  // a tile lies on one side of each border
      if (in_head >= From && in_head < From + Rope) {
        const float other = bits_to_float(T::shuffle_xor(float_to_bits(y), 1));
        if (valid) {
          const rotation r = rotation_of<Rope>(b, b.row(column), (in_head - From + feature) / 2);
          y = feature % 2 == 0 ? fma(y, r.cosine, -mul(other, r.sine)) : fma(y, r.cosine, mul(other, r.sine));
        }
      } else if (Factors >= 0 && in_head < From && valid) {
        const u64 at = u64(first / HeadDim) * From + u64(in_head + feature);
        y = mul(y, bits_to_float(T::load4(layer_data<T>(b.entry(), Factors < 0 ? 0 : Factors) + at * 4)));
      }
      store_features(b, view, first, feature, column, valid, y);
    }
  };
};

/// This rank's partial sums, bf16 pairs pushed to every rank's mailbox.
template <int Slot>
struct to_mailbox {
  template <class Block>
  struct target {
    using T = typename Block::target;
    mailbox_view<Block, Slot> view;
    MONOLAYER_DEVICE explicit target(Block& b) : view(decltype(view)::current(b)) {}
    MONOLAYER_DEVICE void put(Block& b, int first, int feature, int column, bool valid, float y) const {
      const u32 own = pack_bf16(y, 0.0f);
      const u32 pair = own | T::shuffle_xor(own, 1) << 16;
      if (valid && feature % 2 == 0) view.push(b, b.row(column), first + feature, pair);
    }
  };
};

/// y[row][split][N] = x W^T over one of `Splits` ranges of k, in tiles of 16 features; x is the declared input (K columns),
/// y goes to `To`. The tiles of a small matrix are cut along k to keep more blocks busy for less long; whoever reads y adds
/// the splits, in their order.
template <class Input, class To, int K, int N, class Format, int Data, int Splits = 1>
struct projection : plain_stream<weight_tile<Format, K / Splits>, Data> {
  static_assert(N % tile_features == 0, "projection: features must be a multiple of 16");
  static_assert(Splits == 1 || K % (Splits * unit_k) == 0, "projection: each split must be a multiple of 128 columns");
  static constexpr bool combines = true;
  using input = Input;
  using projects = weight_tile<Format, K / Splits>;
  static constexpr int splits = Splits, staged_k = Splits * projects::padded_k, split_tiles = N / tile_features;
  static constexpr int tiles = split_tiles * Splits;

  template <class Block>
  MONOLAYER_DEVICE static void put(Block& b, int tile, int feature, int column, bool valid, const float* y) {
    const typename To::template target<Block> out(b);
    out.put(b, tile * tile_features, feature, column, valid, y[0]);
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
      T::store16(static_cast<u8*>(b.entry().output) + (u64(row) * (Heads * HeadDim) + u64(column)) * 2,
                 q.load8(row, column));
    }
    return true;
  }
};

}  // namespace monolayer::stages
