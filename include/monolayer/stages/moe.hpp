// Mixture of experts: shared and routed gate/up, down. Formulas: transformers' GlmMoeDsa (sigmoid scores,
// choice by score + bias, normalised weights times the scaling factor). A chosen expert's weight multiplies its
// activation before that is rounded to bf16, so the down-projection is one long sum over experts.
#pragma once

#include "monolayer/stages/projections.hpp"

namespace monolayer::stages {

/// act[row][I] = silu(y G^T) * (y U^T), bf16; a tile streams 16 gate features, then the matching 16 up features.
template <class Input, int Slot, int K, int I, class Format, int Data>
struct gate_up : plain_stream<weight_tile<Format, K, 2>, Data> {
  static_assert(I % tile_features == 0, "gate_up: the expert width of a rank must be a multiple of 16");
  static constexpr bool combines = true;
  using input = Input;
  using projects = weight_tile<Format, K, 2>;
  static constexpr int tiles = I / tile_features;

  template <class Block>
  MONOLAYER_DEVICE static void put(Block& b, int tile, int feature, int column, bool valid, const float* y) {
    const auto out = slot_view<typename Block::target, typename Block::program, Slot>::current(b);
    store_features(b, out, tile * tile_features, feature, column, valid, mul(silu(y[0]), y[1]));
  }
};

/// The same for each chosen expert: tile = (distinct expert d, 16 features c); slot columns are [top_k][I].
template <class Input, int Slot, int K, int I, class Format, int Data>
struct routed_gate_up {
  static constexpr bool routed = true;
  static constexpr bool combines = true;
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

  using projects = weights;
  template <class Block>
  MONOLAYER_DEVICE static void put(Block& b, int tile, int feature, int column, bool valid, const float* y) {
    using routing = routing_table<Block>;
    const auto out = slot_view<typename Block::target, typename Block::program, Slot>::current(b);
    const int d = tile / column_tiles, first = tile % column_tiles * tile_features;
    const int place = valid ? routing::place(d, column) : -1;
    const float weight = place >= 0 ? routing::weight(column, place) : 0.0f;
    store_features(b, out, place * I + first, feature, column, place >= 0, mul(mul(silu(y[0]), y[1]), weight));
  }

  /// Arrival units: (row, place) x column tile. How many a tile served; and a lane's share of how many no tile serves: those
  /// of dead rows and of places that a row's NaN scores left empty.
  template <class Block>
  MONOLAYER_DEVICE static int count_of_tile(const Block& b, int tile) {
    const u32x2 places = routing_table<Block>::places(tile / column_tiles);
    int n = 0;
    for (int j = 0; j < max_rows_limit; ++j)
      if (j < b.live && routing_table<Block>::place_of(places, j) >= 0) ++n;
    return n;
  }
  template <class Block>
  MONOLAYER_DEVICE static int count_without_tile(const Block& b) {
    using T = typename Block::target;
    int n = T::lane() == 0 ? (Block::info.max_rows - b.live) * Block::info.top_k : 0;
    for (int i = T::lane(); i < b.live * Block::info.top_k; i += T::wave_size)
      if (routing_table<Block>::weight(0, i) < 0.0f) ++n;
    return n * column_tiles;
  }
  /// The same one by one: emit(first unit, count).
  template <class Block, class Emit>
  MONOLAYER_DEVICE static void units_of_tile(const Block& b, int tile, Emit emit) {
    MONOLAYER_NO_UNROLL
    for (int j = 0; j < b.live; ++j) {
      const int place = routing_table<Block>::place(tile / column_tiles, j);
      if (place >= 0) emit((b.row(j) * Block::info.top_k + place) * column_tiles + tile % column_tiles, 1);
    }
  }
  template <class Block, class Emit>
  MONOLAYER_DEVICE static void units_without_tile(const Block& b, Emit emit) {
    constexpr int top_k = Block::info.top_k;
    int j = 0;
    MONOLAYER_NO_UNROLL
    for (int row = 0; row < Block::info.max_rows; ++row) {
      const bool live = j < b.live && b.row(j) == row;
      MONOLAYER_NO_UNROLL
      for (int place = 0; place < top_k; ++place)
        if (!live || routing_table<Block>::weight(j, place) < 0.0f)
          emit((row * top_k + place) * column_tiles, column_tiles);
      if (live) ++j;
    }
  }
};

/// This rank's share of sum_e D_e act_e, bf16 pairs pushed to every rank: a tile owns 16 columns of the residual stream.
/// A wave multiplies half an expert at a time (an item; the shared expert's come first, the distinct experts' follow), and
/// leaves the products in LDS at (half, place): each row has one expert at each place, so no two items meet, and whichever
/// wave took an item, the sum over places in their order has the same bits.
template <class Input, int Slot, int N, int I, class Format, int SharedData, int RoutedData>
struct experts_down {
  static_assert(N % tile_features == 0);
  static constexpr bool combines = true;
  using input = Input;
  using weights = weight_tile<Format, I>;
  static constexpr bool streams_by_routing = true;
  static constexpr int tiles = N / tile_features;
  static constexpr int run_chunks = weights::chunks;
  static constexpr u64 expert_bytes = weights::bytes * tiles;
  // Of an expert, where no chunk is cut but an only one.
  static constexpr int halves = weights::chunks % 2 == 0 || (weights::chunks == 1 && weights::units % 2 == 0) ? 2 : 1;
  static constexpr int item_units = weights::units / halves;
  static constexpr int of_chunk = item_units < weights::units_per_chunk ? item_units : weights::units_per_chunk;
  static constexpr int at_once = item_units % int(units_at_once<weights>) == 0 ? int(units_at_once<weights>) : 1;

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
    using layout = typename Block::layout;
    using routing = routing_table<Block>;
    constexpr int top_k = Block::info.top_k;
    constexpr u32 expert_row = weights::padded_k * 2, of_half = u32(top_k + 1) * layout::partial_wave;
    static_assert(halves * of_half <= layout::partial_bytes);
    const typename to_mailbox<Slot>::template target<Block> out(b);
    const lds_address partials = begin_sums(b);
    const staged_column rows = own_column(b, (top_k + 1) * expert_row);
    const int count = 1 + routing::distinct_experts();
    MONOLAYER_NO_UNROLL
    for (int item = int(part_of_wave(b, u32(T::consumer_waves - count * halves % T::consumer_waves))); item < count * halves;
         item += T::consumer_waves) {
      const int run = item / halves, half = item % halves;
      // The places of the columns' choice of this expert: this lane's column of B, and its columns of D below.
      const u32x2 places = run == 0 ? routing::all_at(top_k) : routing::places(run - 1);
      staged_column chosen{layout::zeros + u32(T::k_group(T::lane())) * 16u, 0};
      const int place = routing::place_of(places, T::b_column(T::lane()));
      if (rows.stride != 0 && place >= 0) chosen = {rows.at + u32(place) * expert_row, rows.stride};
      fragment_d sum = {};
      MONOLAYER_NO_UNROLL
      for (int unit = half * item_units; unit < (half + 1) * item_units; unit += of_chunk) {
        const u32 chunk = b.next_chunk + u32(run * run_chunks + unit / weights::units_per_chunk);
        if (!multiply_units<weights, u32(at_once)>(b, sum, chunk, u32(unit % weights::units_per_chunk), u32(of_chunk),
                                                   chosen.at + u32(unit) * chosen.stride, chosen.stride))
          break;
      }
      const int lane = T::lane();
      const lds_address to = partials + u32(half) * of_half;
      MONOLAYER_UNROLL
      for (int r = 0; r < 4; ++r) {
        const int j = T::d_column(lane, r), at = routing::place_of(places, j);
        if (j < b.live && at >= 0)
          T::lds_store4(to + u32(at) * layout::partial_wave + u32(j) * layout::partial_column + 4u * u32(T::d_row(lane, r)),
                        float_to_bits(sum.v[r]));
      }
    }
    b.next_chunk += u32(count * run_chunks);
    end_sums(b, [&](int feature, int j, bool valid) {
      float total = 0.0f;
      MONOLAYER_UNROLL
      for (int place = 0; place <= top_k; ++place) {
        const bool taken = valid && (place == top_k || routing::weight(j, place) >= 0.0f);
        MONOLAYER_UNROLL
        for (int half = 0; half < halves; ++half)
          if (taken)
            total = add(total, bits_to_float(T::lds_load4(partials + u32(half) * of_half + u32(place) * layout::partial_wave +
                                                          u32(j) * layout::partial_column + 4u * u32(feature))));
      }
      out.put(b, tile * tile_features, feature, j, valid, mul(total, result_factor<T, Format>()));
    });
    return true;
  }
};

/// out = residual + sum over ranks, in tiles of `Columns` columns. Residual::of(block) has load8; a Last sum of a layer
/// also writes the span's output when the layer is the last of its span.
template <int Partial, class Residual, int Out, int N, int Columns, bool Last>
struct all_reduce {
  static_assert(N % Columns == 0 && Columns % 8 == 0);
  using input = inputs::none;
  using weights = void;
  static constexpr int tiles = N / Columns;

  template <class Block>
  MONOLAYER_DEVICE static bool run_tile(Block& b, int tile) {
    using T = typename Block::target;
    const auto sums = mailbox_view<Block, Partial>::current(b);
    const auto residual = Residual::of(b);
    const auto out = slot_view<T, typename Block::program, Out>::current(b);
    const bool last = Last && b.layer + 1 == u32(b.params->layer_count);
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

/// Residuals: the stream that entered the layer, or a slot of this layer.
template <int Hidden>
struct stream_residual {
  template <class Block>
  MONOLAYER_DEVICE static auto of(const Block& b) {
    return inputs::residual_stream<Hidden, Block>::newest(b);
  }
};
template <int Slot>
struct slot_residual {
  template <class Block>
  MONOLAYER_DEVICE static auto of(const Block& b) {
    return slot_view<typename Block::target, typename Block::program, Slot>::current(b);
  }
};

}  // namespace monolayer::stages
