// Two stages that GLM-5 does not have: a short causal convolution over a per-request state, and gate and up projections
// with a limit. No simulator and no GPU runtime in here: kernels and simulator include the same text.
#pragma once

#include "monolayer/stages/projections.hpp"

namespace custom_layer {

using namespace monolayer;
using monolayer::fma;  // before the C library's and CUDA's, which are global

/// y[row][c] = silu(sum over i = 0 .. taps - 1 of w[i][c] * x[t - (taps - 1) + i][c]), bf16; the sum in f32, oldest value
/// first, values before the request's first token are 0. t is the row's position.
///
/// A tile is (row, tile_columns channels): the stage is by_row, has max_rows * of_row tiles and streams nothing.
/// Slots: X and Y, bf16 [channels]. layer_entry::data: `Weights` bf16 [taps][channels]; `State`, the caller's memory,
/// bf16 [requests][taps][channels]. Row r's request is row_slots[r]; the value of token t lies at place t % taps. The stage
/// writes that place and reads the other ones: a launch must not read from memory what it writes itself. So the rows
/// of one launch are of different requests.
///
/// C: channels, taps, max_rows.
template <class C, int X, int Y, int Weights, int State>
struct short_conv {
  using input = inputs::none;
  using weights = void;
  static constexpr int of_row = 2;  // tiles that share a row's channels
  static constexpr int tile_columns = C::channels / of_row;
  static constexpr int tiles = C::max_rows * of_row;
  static_assert(C::channels % (of_row * 8) == 0, "short_conv: channels must be a multiple of 16");
  static constexpr u64 value_bytes = u64(C::channels) * 2, request_bytes = C::taps * value_bytes;

  template <class Block>
  MONOLAYER_DEVICE static bool run_tile(Block& b, int tile) {
    using T = typename Block::target;
    const int row = tile / of_row, first = tile % of_row * tile_columns;
    if (b.column_of(row) < 0) return true;  // the row is dead; the pipeline arrives for its tile all the same
    const auto x = slot_view<T, typename Block::program, X>::current(b);
    const auto y = slot_view<T, typename Block::program, Y>::current(b);
    const u8* w = layer_data<T>(b.entry(), Weights);
    u8* state = const_cast<u8*>(layer_data<T>(b.entry(), State)) +
                u64(T::load8(b.params->row_slots + row).v[0]) * request_bytes;
    const u32 t = T::load8(b.params->batch.positions + row).v[0];
    MONOLAYER_NO_UNROLL
    for (int c = first + 8 * Block::thread(); c < first + tile_columns; c += 8 * Block::threads) {
      const u32x4 now = x.load8(row, c);
      float sum[8] = {};
      MONOLAYER_UNROLL
      for (int i = 0; i < C::taps; ++i) {
        const u32 back = u32(C::taps - 1 - i);
        u32x4 v = now;
        if (back != 0) v = t >= back ? T::load16(state + (t - back) % C::taps * value_bytes + c * 2) : u32x4{};
        const u32x4 tap = T::load16(w + i * value_bytes + c * 2);
        for (int k = 0; k < 4; ++k) {
          sum[2 * k] = fma(low_bf16(v.v[k]), low_bf16(tap.v[k]), sum[2 * k]);
          sum[2 * k + 1] = fma(high_bf16(v.v[k]), high_bf16(tap.v[k]), sum[2 * k + 1]);
        }
      }
      T::store16(state + t % C::taps * value_bytes + c * 2, now);
      u32x4 out;
      for (int k = 0; k < 4; ++k) out.v[k] = pack_bf16(silu(sum[2 * k]), silu(sum[2 * k + 1]));
      y.store8(row, c, out);
    }
    return true;
  }
};

/// act[row][f] = silu(min(g, limit)) * clamp(u, -limit, limit), bf16, with g = x G^T and u = x U^T in f32; NaN stays NaN.
/// A tile is 16 features: it streams the gate's 16 rows, then the same rows of up. `Input` stages x, K columns.
///
/// C: limit.
template <class C, class Input, int Slot, int K, int Width, class Format, int Data>
struct limited_gate_up : stages::plain_stream<weight_tile<Format, K, 2>, Data> {
  static_assert(Width % tile_features == 0, "limited_gate_up: the width of a rank must be a multiple of 16");
  static constexpr bool combines = true;  // waves meet in project() alone, so a tile may follow another without a barrier
  using input = Input;
  static constexpr int tiles = Width / tile_features;

  template <class Block>
  MONOLAYER_DEVICE static bool run_tile(Block& b, int tile) {
    const auto act = slot_view<typename Block::target, typename Block::program, Slot>::current(b);
    return project<weight_tile<Format, K, 2>>(b, [&](int feature, int column, bool valid, float (&y)[2]) {
      const float gate = y[0] > C::limit ? C::limit : y[0];
      const float up = y[1] > C::limit ? C::limit : y[1] < -C::limit ? -C::limit : y[1];
      stages::store_features(b, act, tile * tile_features, feature, column, valid, mul(silu(gate), up));
    });
  }
};

}  // namespace custom_layer
