// What surrounds latent attention: queries into the latent space (absorb), results out of it (v_up). Both multiply by the
// halves of kv_b, head by head. k is short there, so a wave takes whole subtiles (wave_multiply.hpp).
#pragma once

#include "monolayer/device/wave_multiply.hpp"
#include "monolayer/stages/attention.hpp"
#include "monolayer/stages/projections.hpp"

namespace monolayer::stages {

/// ql[row][head][latent] = q_nope[row][head] W_UK[head], bf16. A tile is (head, 128 of latent). W_UK is [nope][latent];
/// as weights its features are latent, its k is nope. Of fp8_channel checkpoints the weights are bare codes: the factors
/// belong to k here, and whoever wrote q has multiplied them in.
///
/// C: heads, nope, rope, kv_cache, attention_weights. Slots: Q bf16 [heads][nope + rope], Ql bf16 [heads][latent].
template <class C, int Q, int Ql, int Data>
struct absorb : plain_stream<weight_tile<typename absorbed_format<typename C::attention_weights>::type, C::nope, 8>, Data> {
  using input = inputs::none;
  using weights = weight_tile<typename absorbed_format<typename C::attention_weights>::type, C::nope, 8>;
  static constexpr int latent = C::kv_cache::latent;
  static constexpr int tile_columns = weights::subtiles * tile_features;
  static constexpr int of_head = latent / tile_columns;
  static constexpr int tiles = C::heads * of_head;
  static_assert(latent % tile_columns == 0 && C::nope % 8 == 0 && C::rope % 8 == 0);
  template <class T>
  static constexpr u32 scratch_bytes = u32(C::max_rows) * (weights::padded_k * 2 + staged_row_pad);

  template <class Block>
  MONOLAYER_DEVICE static bool run_tile(Block& b, int tile) {
    using T = typename Block::target;
    const int head = tile / of_head, first = tile * tile_columns;
    const auto q = slot_view<T, typename Block::program, Q>::current(b);
    const auto ql = slot_view<T, typename Block::program, Ql>::current(b);
    constexpr int pieces = weights::padded_k / 8;
    b.staged = 0;
    MONOLAYER_NO_UNROLL
    for (int i = Block::thread(); i < b.live * pieces; i += Block::threads) {
      const int j = i / pieces, k = i % pieces * 8;
      const u32x4 v = k < C::nope ? q.load8(b.row(j), head * (C::nope + C::rope) + k) : u32x4{};
      T::lds_store16(Block::staged_row(j, weights::padded_k * 2) + u32(k) * 2, shifted<T>(v));
    }
    if (!b.sync()) return false;
    project_by_wave<weights>(b, own_column(b, weights::padded_k * 2),
                             [&](int subtile, int feature, int column, bool valid, float y) {
                               store_features(b, ql, first + subtile * tile_features, feature, column, valid, y);
                             });
    return true;
  }
};

/// o[row][head][v_dim] = ol[row][head] W_UV[head]^T, bf16; ol is what the splits of attention give together:
///   ol = (sum over splits of exp(max_s - max) sums_s) / (sum over splits of exp(max_s - max) sum_s),
/// in f32, split after split in four groups and then the groups in order, rounded to bf16 once; 0 for a row without tokens. A tile is (head, 128 of
/// v_dim, or all of it where that is less).
///
/// C: heads, v_dim, kv_cache, attention_weights. Attention: the stage that writes slot OPart. O bf16 [heads][v_dim].
template <class C, class Attention, int OPart, int O, int Data>
struct v_up : plain_stream<weight_tile<typename C::attention_weights, C::kv_cache::latent,
                                       (C::v_dim < 128 ? C::v_dim : 128) / tile_features>,
                           Data> {
  using input = inputs::none;
  static constexpr int latent = C::kv_cache::latent;
  static constexpr int tile_columns = C::v_dim < 128 ? C::v_dim : 128;
  using weights = weight_tile<typename C::attention_weights, latent, tile_columns / tile_features>;
  static constexpr int of_head = C::v_dim / tile_columns;
  static constexpr int tiles = C::heads * of_head;
  static constexpr int splits = Attention::splits;
  static_assert(C::v_dim % tile_columns == 0 && tile_columns % tile_features == 0);
  static_assert(latent % unit_k == 0 && splits <= 32, "v_up: latent must be a multiple of 128, kv_splits at most 32");
  /// Splits are merged in groups, side by side, so that most of a row's sums are on their way at once.
  static constexpr int group_splits = (splits + 3) / 4, split_groups = (splits + group_splits - 1) / group_splits;
  static constexpr u32 row_bytes = latent * 2 + staged_row_pad, group_bytes = latent * 4;
  /// Rows merged at a time: as many as a quarter of the LDS holds.
  template <class T>
  static constexpr int merged_rows = [] {
    const int fit = int(T::lds_bytes / 4 / (split_groups * group_bytes));
    return fit < 1 ? 1 : fit < C::max_rows ? fit : C::max_rows;
  }();
  // After the staged rows: f32 [max_rows][splits], what a split's sums are multiplied by; f32 [merged_rows][split_groups]
  // [latent], what the groups add up to.
  static constexpr u32 weights_at = u32(C::max_rows) * row_bytes;
  static constexpr u32 groups_at = weights_at + (u32(C::max_rows) * splits * 4 + 15) / 16 * 16;
  template <class T>
  static constexpr u32 scratch_bytes = groups_at + u32(merged_rows<T>) * split_groups * group_bytes;

  template <class Block>
  MONOLAYER_DEVICE static bool run_tile(Block& b, int tile) {
    using T = typename Block::target;
    const int head = tile / of_head, first = tile * tile_columns;
    const auto part = slot_view<T, typename Block::program, OPart>::current(b);
    const auto o = slot_view<T, typename Block::program, O>::current(b);
    b.staged = 0;
    weigh_splits(b, part, head);
    MONOLAYER_NO_UNROLL
    for (int row = 0; row < b.live; row += merged_rows<T>) {
      if (!b.sync()) return false;
      add_groups(b, part, head, row);
      if (!b.sync()) return false;
      merge_groups(b, row);
    }
    if (!b.sync()) return false;
    project_by_wave<weights>(b, own_column(b, latent * 2),
                             [&](int subtile, int feature, int column, bool valid, float y) {
                               store_features(b, o, first + subtile * tile_features, feature, column, valid, y);
                             });
    return true;
  }

 private:
  template <class Block>
  MONOLAYER_DEVICE static lds_address weight_at(int j, int split) {
    return Block::layout::rows + weights_at + u32(j * splits + split) * 4u;
  }
  MONOLAYER_DEVICE static int column_of(int head, int split) {
    return (head / Attention::heads * splits + split) * Attention::tile_columns;
  }

  /// One wave a row, one lane a split.
  template <class Block, class View>
  MONOLAYER_DEVICE static void weigh_splits(Block& b, const View& part, int head) {
    using T = typename Block::target;
    MONOLAYER_NO_UNROLL
    for (int j = T::wave(); j < b.live; j += T::consumer_waves) {
      float max = bits_to_float(0xff800000u), sum = 0.0f;
      if (T::lane() < splits) {
        const u8* at = part.at(b.row(j), column_of(head, T::lane()) + Attention::heads * latent + head % Attention::heads);
        max = bits_to_float(T::slot_load4(at));
        sum = bits_to_float(T::slot_load4(at + 4 * Attention::heads));
      }
      float largest = max;
      MONOLAYER_UNROLL
      for (int mask = 16; mask > 0; mask /= 2) {  // the splits fit 32 lanes
        const float other = bits_to_float(T::shuffle_xor(float_to_bits(largest), mask));
        largest = other > largest ? other : largest;
      }
      // A split without tokens has nothing but a sum of 0.
      const float weight = sum == 0.0f ? 0.0f : exp(sub(max, largest));
      const float total = wave_sum<T>(mul(sum, weight));
      if (T::lane() < splits)
        T::lds_store4(weight_at<Block>(j, T::lane()), float_to_bits(sum == 0.0f ? 0.0f : div(weight, total)));
    }
  }

  /// Rows first .. first + merged_rows - 1: a thread adds 4 dims of a group of splits.
  template <class Block, class View>
  MONOLAYER_DEVICE static void add_groups(Block& b, const View& part, int head, int first) {
    using T = typename Block::target;
    constexpr int pieces = latent / 4, of_row = split_groups * pieces, in_flight = group_splits < 8 ? group_splits : 8;
    const int rows = b.live - first < merged_rows<T> ? b.live - first : merged_rows<T>;
    MONOLAYER_NO_UNROLL
    for (int item = Block::thread(); item < rows * of_row; item += Block::threads) {
      const int j = first + item / of_row, group = item % of_row / pieces, k = item % pieces * 4;
      const u8* at = part.at(b.row(j), column_of(head, group * group_splits) + head % Attention::heads * latent + k);
      float sum[4] = {};
      MONOLAYER_NO_UNROLL
      for (int s = 0; s < group_splits; s += in_flight, at += in_flight * Attention::tile_columns * 4) {
        const auto weight = [&](int i) {
          const int split = group * group_splits + s + i;
          if (s + i >= group_splits || split >= splits) return 0.0f;
          return bits_to_float(T::lds_load4(weight_at<Block>(j, split)));
        };
        u32x4 v[in_flight];
        MONOLAYER_UNROLL
        for (int i = 0; i < in_flight; ++i) {
          v[i] = u32x4{};
          if (weight(i) != 0.0f) v[i] = T::slot_load16(at + i * Attention::tile_columns * 4);
        }
        MONOLAYER_UNROLL
        for (int i = 0; i < in_flight; ++i)
          for (int n = 0; n < 4; ++n) sum[n] = fma(bits_to_float(v[i].v[n]), weight(i), sum[n]);
      }
      u32x4 word;
      for (int n = 0; n < 4; ++n) word.v[n] = float_to_bits(sum[n]);
      T::lds_store16(Block::layout::rows + groups_at + u32(item) * 16u, word);
    }
  }
  /// Adds the groups in ascending order and stages the rows: a thread has 8 dims of one.
  template <class Block>
  MONOLAYER_DEVICE static void merge_groups(Block& b, int first) {
    using T = typename Block::target;
    constexpr int pieces = latent / 8;
    const int rows = b.live - first < merged_rows<T> ? b.live - first : merged_rows<T>;
    MONOLAYER_NO_UNROLL
    for (int item = Block::thread(); item < rows * pieces; item += Block::threads) {
      const int j = item / pieces, k = item % pieces * 8;
      float ol[8] = {};
      MONOLAYER_UNROLL
      for (int group = 0; group < split_groups; ++group)
        for (int i = 0; i < 2; ++i) {
          const u32x4 v = T::lds_load16(Block::layout::rows + groups_at + u32(j * split_groups + group) * group_bytes +
                                        u32(k + 4 * i) * 4u);
          for (int n = 0; n < 4; ++n) ol[4 * i + n] = add(ol[4 * i + n], bits_to_float(v.v[n]));
        }
      u32x4 packed;
      for (int n = 0; n < 4; ++n) packed.v[n] = pack_bf16(ol[2 * n], ol[2 * n + 1]);
      T::lds_store16(Block::staged_row(first + j, latent * 2) + u32(k) * 2, shifted<T>(packed));
    }
  }
};

}  // namespace monolayer::stages
