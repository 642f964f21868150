// The matrix loop of a tile: weights from the ring, rows from LDS, sums in registers.
//
// A tile's units are dealt to the waves in turn, and a wave adds its units in ascending order, so which wave adds what in
// which order is fixed by the configuration. Different waves work on different chunks at the same time and meet only
// in combine(), which adds the waves' partial sums in wave order.
#pragma once

#include "monolayer/device/sync.hpp"

namespace monolayer {

/// Where a lane finds the rows of a tile: at + unit * stride is the first k that its k group holds. A column without a
/// row finds zeros, again and again: stride 0.
struct staged_column {
  lds_address at;
  u32 stride;
};

/// sum += weights(unit) * rows(unit): 16 features x 128 k x columns. `codes` is the unit's codes in LDS; `scales` its
/// scales (mxfp4, fp8_block) or the chunk's (fp8_channel).
template <class T, class F>
MONOLAYER_DEVICE void multiply_unit(fragment_d& sum, lds_address codes, lds_address scales, lds_address rows) {
  constexpr int pieces = steps_per_unit * T::lane_rows;
  constexpr int loads = pieces * F::piece_bytes / 16;
  constexpr int words = F::piece_bytes / 4;  // of a piece
  const int lane = T::lane();  // asked for once: all loads are issued before the first is used
  u32x4 code[loads];
  MONOLAYER_UNROLL
  for (int i = 0; i < loads; ++i) code[i] = T::lds_load16(codes + u32(i) * 16u * T::wave_size + u32(lane) * 16u);
  fragment_b b[steps_per_unit];
  MONOLAYER_UNROLL
  for (int s = 0; s < steps_per_unit; ++s) {
    const u32x4 v = T::lds_load16(rows + u32(s) * step_k * 2);
    for (int i = 0; i < 4; ++i) b[s].v[i] = v.v[i];
  }
  u32 scale_bytes[T::lane_rows] = {};
  if constexpr (is_mxfp4<F>)
    for (int h = 0; h < T::lane_rows; ++h)
      scale_bytes[h] = T::lds_load4(scales + 4u * u32(T::a_row(lane, h)));
  constexpr bool step_sums = is_mxfp4<F> && T::mxfp4_scales_sums;  // a sum of its own for each scale block
  static_assert(!step_sums || T::lane_rows == 2, "the rows of D that a lane holds must be its rows of A");
  fragment_d d = {};
  if constexpr (!has_sum_scale<F> && !step_sums) d = sum;
  MONOLAYER_UNROLL
  for (int s = 0; s < steps_per_unit; ++s) {
    fragment_a<T::lane_rows> a;
    for (int h = 0; h < T::lane_rows; ++h) {
      const int word = (s * T::lane_rows + h) * words;
      auto code_word = [&](int i) { return code[(word + i) / 4].v[(word + i) % 4]; };
      if constexpr (is_mxfp4<F>) {
        const fragment_b w = T::widen_e2m1x8(code_word(0), (scale_bytes[h] >> (8 * s)) & 0xffu);
        for (int i = 0; i < 4; ++i) a.v[h][i] = w.v[i];
      } else if constexpr (F::piece_bytes == 8) {
        const fragment_b w = T::widen_e4m3x8(u32x2{code_word(0), code_word(1)});
        for (int i = 0; i < 4; ++i) a.v[h][i] = w.v[i];
      } else {
        for (int i = 0; i < 4; ++i) a.v[h][i] = code_word(i);
      }
    }
    if constexpr (step_sums) d = {};
    T::mma(a, b[s], d);
    if constexpr (step_sums)
      for (int r = 0; r < 4; ++r)
        sum.v[r] = fma(d.v[r], bits_to_float((scale_bytes[r / 2] >> (8 * s) & 0xffu) << 23), sum.v[r]);
  }
  if constexpr (has_sum_scale<F>) {
    constexpr bool by_feature = F::chunk_scale_bytes != 0;
    for (int r = 0; r < 4; ++r) {
      const u32 at = by_feature ? 4u * u32(T::d_row(lane, r)) : 0u;
      sum.v[r] = fma(d.v[r], bits_to_float(T::lds_load4(scales + at)), sum.v[r]);
    }
  } else if constexpr (!step_sums) {
    sum = d;
  }
}

/// The power of two that brings a format's sums to the weights' and rows' own scale.
template <class T, class F>
MONOLAYER_HOST_DEVICE constexpr float result_factor() {
  constexpr int shift = is_mxfp4<F> ? T::mxfp4_shift : F::piece_bytes == 8 ? T::e4m3_shift : T::bf16_shift;
  return bits_to_float(u32(127 + shift) << 23);
}

/// Adds this wave's share of a run of `Tile::units` units to `sum`. The run's first chunk is `chunk`; its units are dealt
/// to the waves in turn, the first to wave `turn` % waves. What `turn` says must not depend on other rows: which wave
/// adds a product decides the order of the sum.
template <class Tile, class Block>
MONOLAYER_DEVICE void multiply_run(Block& b, fragment_d& sum, u32 chunk, u32 turn, staged_column rows) {
  using T = typename Block::target;
  using F = typename Tile::format;
  constexpr u32 upc = u32(Tile::units_per_chunk), waves = u32(T::consumer_waves);
  static_assert(waves % upc == 0);
  u32 u = (u32(T::wave()) + waves - turn % waves) % waves;
  // A wave's units lie at the same place of their chunks, every (waves / upc)-th chunk.
  const u32 in_chunk = u % upc;
  const u32 codes = in_chunk * Tile::unit_bytes;
  const u32 scales = Tile::scales_at + (F::chunk_scale_bytes != 0 ? 0u : in_chunk * u32(F::scale_bytes));
  chunk += u / upc;
  lds_address at = rows.at + u * rows.stride;
  MONOLAYER_NO_UNROLL
  for (; u < u32(Tile::units); u += waves, chunk += waves / upc, at += waves * rows.stride) {
    auto w = b.wait_for_block();
    if (!b.ring.wait_full(chunk, w)) {
      fail(b, w, {failure::stream_wait, 0, 0, chunk, 0});
      return;
    }
    const lds_address weights = b.ring.slot(chunk);
    multiply_unit<T, F>(sum, weights + codes, weights + scales, at);
    b.ring.release(chunk, ring_credits / upc);
  }
}

/// The staged row of this lane's column, rows of `bytes` bytes; zeros when there is none.
template <class Block>
MONOLAYER_DEVICE staged_column own_column(const Block& b, u32 bytes) {
  using T = typename Block::target;
  const int column = T::b_column(T::lane());
  const u32 k_offset = u32(T::k_group(T::lane())) * 16u;
  if (column < b.live) return {Block::staged_row(column, bytes) + k_offset, unit_k * 2};
  return {Block::layout::zeros + k_offset, 0};
}

/// Adds the waves' sums in wave order and hands each thread the f32 results of one (feature, column):
/// done(feature 0..15, column, valid, float (&)[subtiles]). All lanes of a wave call `done` together; `valid` marks
/// those whose column is live. No barrier follows. False: the block leaves.
template <class Tile, class Block, class Done>
MONOLAYER_DEVICE bool combine(Block& b, const fragment_d (&sums)[Tile::subtiles], Done done) {
  using T = typename Block::target;
  using layout = typename Block::layout;
  constexpr u32 of_subtile = layout::partial_wave * T::consumer_waves;
  const lds_address base = layout::partials;
  MONOLAYER_UNROLL
  for (int sub = 0; sub < Tile::subtiles; ++sub)
    for (int r = 0; r < 4; ++r) {
      const int column = T::d_column(T::lane(), r);
      if (column < b.live)
        T::lds_store4(base + u32(sub) * of_subtile + u32(T::wave()) * layout::partial_wave +
                          u32(column) * layout::partial_column + 4u * u32(T::d_row(T::lane(), r)),
                      float_to_bits(sums[sub].v[r]));
    }
  if (!b.sync()) return false;
  constexpr float factor = result_factor<T, typename Tile::format>();
  MONOLAYER_NO_UNROLL
  for (int first = T::wave() * T::wave_size; first < b.live * 16; first += Block::threads) {
    const int item = first + T::lane(), feature = item % 16, column = item / 16;
    const bool valid = column < b.live;
    float result[Tile::subtiles] = {};
    if (valid)
      for (int sub = 0; sub < Tile::subtiles; ++sub) {
        float total = 0.0f;
        MONOLAYER_UNROLL
        for (int w = 0; w < T::consumer_waves; ++w)
          total = add(total, bits_to_float(T::lds_load4(base + u32(sub) * of_subtile + u32(w) * layout::partial_wave +
                                                        u32(column) * layout::partial_column + 4u * u32(feature))));
        result[sub] = mul(total, factor);
      }
    done(feature, column, valid, result);
  }
  return true;
}

/// The product of one tile of a projection with `rows`, Tile::padded_k columns of them.
template <class Tile, class Block, class Done>
MONOLAYER_DEVICE bool project(Block& b, const staged_column& rows, Done done) {
  fragment_d sums[Tile::subtiles] = {};
  MONOLAYER_UNROLL
  for (int sub = 0; sub < Tile::subtiles; ++sub)
    multiply_run<Tile>(b, sums[sub], b.next_chunk + u32(sub * Tile::chunks), u32(sub) * Tile::units, rows);
  b.next_chunk += u32(Tile::chunks) * Tile::subtiles;
  return combine<Tile>(b, sums, done);
}
/// The same with whole staged rows of Tile::padded_k columns.
template <class Tile, class Block, class Done>
MONOLAYER_DEVICE bool project(Block& b, Done done) {
  return project<Tile>(b, own_column(b, Tile::padded_k * 2), done);
}

}  // namespace monolayer
