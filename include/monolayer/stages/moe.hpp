// Mixture of experts: router, shared and routed gate/up, down. Formulas: transformers' GlmMoeDsa (sigmoid scores,
// choice by score + bias, normalised weights times the scaling factor). A chosen expert's weight multiplies its
// activation before that is rounded to bf16, so the down-projection is one long sum over experts.
#pragma once

#include "monolayer/device/mailbox.hpp"
#include "monolayer/stages/projections.hpp"

namespace monolayer::stages {

/// Partial logits[row][split][experts] = y W^T over one of `Splits` ranges of k, in f32, W bf16; tagged words. A tile is
/// (split, 16 experts): the matrix is small, so its tiles are cut along k to keep more blocks busy for less long.
template <class Input, int Slot, int K, int Experts, int Splits, int Data>
struct router : plain_stream<weight_tile<bf16_weights, K / Splits>, Data> {
  static_assert(Experts % tile_features == 0, "router: experts must be a multiple of 16");
  static_assert(K % (Splits * unit_k) == 0, "router: each split must be a multiple of 128 columns");
  using input = Input;
  using weights = weight_tile<bf16_weights, K / Splits>;
  static constexpr int of_split = Experts / tile_features;
  static constexpr int tiles = of_split * Splits;

  template <class Block>
  MONOLAYER_DEVICE static bool run_tile(Block& b, int tile) {
    using T = typename Block::target;
    const auto out = slot_view<T, typename Block::program, Slot>::current(b);
    staged_column rows = own_column(b, K * 2);
    if (rows.stride != 0) rows.at += u32(tile / of_split) * weights::padded_k * 2;
    return project<weights>(b, rows, [&](int feature, int column, bool valid, float (&y)[1]) {
      if (valid) out.store_tagged(b.row(column), tile * tile_features + feature, y[0], b.tag());
    });
  }
};

/// act[row][I] = silu(y G^T) * (y U^T), bf16; a tile streams 16 gate features, then the matching 16 up features.
template <class Input, int Slot, int K, int I, class Format, int Data>
struct gate_up : plain_stream<weight_tile<Format, K, 2>, Data> {
  static_assert(I % tile_features == 0, "gate_up: the expert width of a rank must be a multiple of 16");
  using input = Input;
  static constexpr int tiles = I / tile_features;

  template <class Block>
  MONOLAYER_DEVICE static bool run_tile(Block& b, int tile) {
    using T = typename Block::target;
    const auto out = slot_view<T, typename Block::program, Slot>::current(b);
    return project<weight_tile<Format, K, 2>>(b, [&](int feature, int column, bool valid, float (&y)[2]) {
      store_features(b, out, tile * tile_features, feature, column, valid, mul(silu(y[0]), y[1]));
    });
  }
};

/// The same for each chosen expert: tile = (distinct expert d, 16 features c); slot columns are [top_k][I].
template <class Input, int Slot, int K, int I, class Format, int Data>
struct routed_gate_up {
  using input = Input;
  using weights = weight_tile<Format, K, 2>;
  static constexpr int column_tiles = I / tile_features;
  static constexpr int run_chunks = weights::chunks * 2;
  static constexpr u64 expert_bytes = weights::bytes * column_tiles;

  template <class Routing>
  MONOLAYER_DEVICE static int tile_count() {
    return Routing::distinct_experts() * column_tiles;
  }
  template <class Routing>
  MONOLAYER_DEVICE static int runs(int) {
    return 1;
  }
  template <class Routing>
  MONOLAYER_DEVICE static const u8* run(const layer_entry& entry, int tile, int) {
    return layer_data<typename Routing::T>(entry, Data) + u64(Routing::expert(tile / column_tiles)) * expert_bytes +
            u64(tile % column_tiles) * weights::bytes;
  }

  template <class Block>
  MONOLAYER_DEVICE static bool run_tile(Block& b, int tile) {
    using T = typename Block::target;
    using routing = routing_table<Block>;
    const auto out = slot_view<T, typename Block::program, Slot>::current(b);
    const int d = tile / column_tiles, first = tile % column_tiles * tile_features;
    return project<weights>(b, [&](int feature, int column, bool valid, float (&y)[2]) {
      const int place = valid ? routing::place(d, column) : -1;
      const float weight = place >= 0 ? routing::weight(column, place) : 0.0f;
      store_features(b, out, place * I + first, feature, column, place >= 0, mul(mul(silu(y[0]), y[1]), weight));
    });
  }

  /// Arrival units: (row, place) x column tile. emit(first unit, count) for what this tile served ...
  template <class Block, class Emit>
  MONOLAYER_DEVICE static void units_of_tile(const Block& b, int tile, Emit emit) {
    MONOLAYER_NO_UNROLL
    for (int j = 0; j < b.live; ++j) {
      const int place = routing_table<Block>::place(tile / column_tiles, j);
      if (place >= 0) emit((b.row(j) * Block::info.top_k + place) * column_tiles + tile % column_tiles, 1);
    }
  }
  /// ... and for what no tile serves: dead rows, and places that a row's NaN scores left empty.
  template <class Block, class Emit>
  MONOLAYER_DEVICE static void units_without_tile(const Block& b, Emit emit) {
    constexpr int top_k = Block::info.top_k;
    int j = 0;
    MONOLAYER_NO_UNROLL
    for (int row = 0; row < Block::info.max_rows; ++row) {
      const bool live = j < b.live && b.row(j) == row;
      for (int place = 0; place < top_k; ++place)
        if (!live || routing_table<Block>::weight(j, place) < 0.0f)
          emit((row * top_k + place) * column_tiles, column_tiles);
      if (live) ++j;
    }
  }
};

/// This rank's share of sum_e D_e act_e, bf16 pairs pushed to every rank: a tile owns 16 columns of the residual
/// stream and adds the shared expert, then the distinct experts in ascending order.
template <class Input, int Slot, int N, int I, class Format, int SharedData, int RoutedData>
struct experts_down {
  static_assert(N % tile_features == 0);
  using input = Input;
  using weights = weight_tile<Format, I>;
  static constexpr bool streams_by_routing = true;
  static constexpr int tiles = N / tile_features;
  static constexpr int run_chunks = weights::chunks;
  static constexpr u64 expert_bytes = weights::bytes * tiles;

  template <class Routing>
  MONOLAYER_DEVICE static int runs(int) {
    return 1 + Routing::distinct_experts();
  }
  template <class Routing>
  MONOLAYER_DEVICE static const u8* run(const layer_entry& entry, int tile, int i) {
    const u8* expert = i == 0 ? layer_data<typename Routing::T>(entry, SharedData)
                              : layer_data<typename Routing::T>(entry, RoutedData) +
                                    u64(Routing::expert(i - 1)) * expert_bytes;
    return expert + u64(tile) * weights::bytes;
  }

  template <class Block>
  MONOLAYER_DEVICE static bool run_tile(Block& b, int tile) {
    using T = typename Block::target;
    using routing = routing_table<Block>;
    constexpr int top_k = Block::info.top_k;
    const auto out = mailbox_view<Block, Slot>::current(b);
    constexpr u32 expert_row = weights::padded_k * 2;
    const staged_column rows = own_column(b, (top_k + 1) * expert_row);
    const int column = T::b_column(T::lane());
    fragment_d sums[1] = {};
    // Which wave takes an expert's units follows from the expert's number, not from its place among this batch's.
    multiply_run<weights>(b, sums[0], b.next_chunk, 0, {rows.at + (rows.stride != 0 ? top_k * expert_row : 0), rows.stride});
    const int distinct = routing::distinct_experts();
    MONOLAYER_NO_UNROLL
    for (int d = 0; d < distinct; ++d) {
      const int place = rows.stride != 0 ? routing::place(d, column) : -1;
      const staged_column chosen = place < 0 ? staged_column{Block::layout::zeros + u32(T::k_group(T::lane())) * 16u, 0}
                                             : staged_column{rows.at + u32(place) * expert_row, rows.stride};
      multiply_run<weights>(b, sums[0], b.next_chunk + u32((d + 1) * run_chunks),
                            u32(routing::expert(d) + 1) * weights::units, chosen);
    }
    const int count = 1 + distinct;
    b.next_chunk += u32(count * run_chunks);
    const int first = tile * tile_features;
    return combine<weights>(b, sums, [&](int feature, int j, bool valid, float (&y)[1]) {
      const u32 own = from_float<bf16>(y[0]).bits;
      const u32 pair = own | T::shuffle_xor(own, 1) << 16;
      if (valid && feature % 2 == 0) out.push(b, b.row(j), first + feature, pair);
    });
  }
};

/// hidden' = hidden + sum over ranks, in tiles of `Columns` columns; the last layer of a span also writes the output.
template <int Partial, int Hidden, int N, int Columns>
struct all_reduce {
  static_assert(N % Columns == 0 && Columns % 8 == 0);
  using input = inputs::none;
  using weights = void;
  static constexpr int tiles = N / Columns;

  template <class Block>
  MONOLAYER_DEVICE static bool run_tile(Block& b, int tile) {
    using T = typename Block::target;
    const auto sums = mailbox_view<Block, Partial>::current(b);
    const auto residual = inputs::residual_stream<Hidden, Block>::newest(b);
    const auto out = slot_view<T, typename Block::program, Hidden>::current(b);
    const bool last = b.layer + 1 == u32(b.params->layer_count);
    MONOLAYER_NO_UNROLL
    for (int i = Block::thread(); i < b.live * Columns / 8; i += Block::threads) {
      const int row = b.row(i / (Columns / 8)), column = tile * Columns + i % (Columns / 8) * 8;
      const u32x4 h = residual.load8(row, column);
      float total[8];
      sums.sum8(b, row, column, total);
      u32x4 y;
      for (int k = 0; k < 4; ++k)
        y.v[k] = pack_bf16(add(low_bf16(h.v[k]), total[2 * k]), add(high_bf16(h.v[k]), total[2 * k + 1]));
      out.store8(row, column, y);
      if (last) T::store16(static_cast<u8*>(b.params->output) + (u64(row) * N + u64(column)) * 2, y);
    }
    return true;
  }
};

}  // namespace monolayer::stages
