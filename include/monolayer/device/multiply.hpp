// The matrix loop of a tile: weights from the ring, rows from LDS, sums in registers.
//
// A tile's units are dealt to as many parts as there are waves, in turn, and the wave that has a part adds its units in
// ascending order: what is added in which order is fixed by the configuration. Different waves work on different chunks at the
// same time and meet only in end_sums(), which adds the parts' sums in the order of the parts.
#pragma once

#include "monolayer/device/sync.hpp"

namespace monolayer {

/// Where a lane finds the rows of a tile: at + unit * stride is the first k that its k group holds. A column without a
/// row finds zeros, again and again: stride 0.
struct staged_column {
  lds_address at;
  u32 stride;
};

/// What a lane takes from LDS for one unit. `codes` is the unit's codes; `scales` its scales (mxfp4, fp8_block, fp8_steps) or the
/// chunk's (fp8_channel).
template <class T, class F>
struct unit_operands {
  static constexpr int loads = steps_per_unit * T::lane_rows * F::piece_bytes / 16;
  u32x4 code[loads];
  fragment_b b[steps_per_unit];
  u32 scale_bytes[T::lane_rows];
  lds_address scales;

  MONOLAYER_DEVICE void load(lds_address codes, lds_address scales_at, lds_address rows) {
    const int lane = T::lane();
    scales = scales_at;
    MONOLAYER_UNROLL
    for (int i = 0; i < loads; ++i) code[i] = T::lds_load16(codes + u32(i) * 16u * T::wave_size + u32(lane) * 16u);
    MONOLAYER_UNROLL
    for (int s = 0; s < steps_per_unit; ++s) {
      const u32x4 v = T::lds_load16(rows + u32(s) * step_k * 2);
      for (int i = 0; i < 4; ++i) b[s].v[i] = v.v[i];
    }
    for (int h = 0; h < T::lane_rows; ++h)
      scale_bytes[h] = is_mxfp4<F> ? T::lds_load4(scales + 4u * u32(T::a_row(lane, h))) : 0u;
  }
  MONOLAYER_DEVICE u32 code_word(int i) const { return code[i / 4].v[i % 4]; }
};

/// sum += weights(unit) * rows(unit): 16 features x 128 k x columns.
template <class T, class F>
MONOLAYER_DEVICE void add_unit(fragment_d& sum, const unit_operands<T, F>& u) {
  constexpr int words = F::piece_bytes / 4;  // of a piece
  constexpr bool mx_sums = is_mxfp4<F> && T::mxfp4_scales_sums;
  static_assert(!mx_sums || T::lane_rows == 2, "the rows of D that a lane holds must be its rows of A");
  constexpr bool step_sums = mx_sums || has_step_scale<F>;  // a sum of its own for each scale block
  u32x4 factors = {};
  if constexpr (has_step_scale<F>) factors = T::lds_load16(u.scales);
  fragment_d d = {};
  if constexpr (!has_sum_scale<F> && !step_sums) d = sum;
  MONOLAYER_UNROLL
  for (int s = 0; s < steps_per_unit; ++s) {
    fragment_a<T::lane_rows> a;
    for (int h = 0; h < T::lane_rows; ++h) {
      const int word = (s * T::lane_rows + h) * words;
      if constexpr (is_mxfp4<F>) {
        const fragment_b w = T::widen_e2m1x8(u.code_word(word), (u.scale_bytes[h] >> (8 * s)) & 0xffu);
        for (int i = 0; i < 4; ++i) a.v[h][i] = w.v[i];
      } else if constexpr (F::piece_bytes == 8) {
        const fragment_b w = T::widen_e4m3x8(u32x2{u.code_word(word), u.code_word(word + 1)});
        for (int i = 0; i < 4; ++i) a.v[h][i] = w.v[i];
      } else {
        for (int i = 0; i < 4; ++i) a.v[h][i] = u.code_word(word + i);
      }
    }
    if constexpr (step_sums) d = {};
    T::mma(a, u.b[s], d);
    if constexpr (step_sums)
      for (int r = 0; r < 4; ++r) {
        const u32 factor = has_step_scale<F> ? factors.v[s] : (u.scale_bytes[r / 2 % T::lane_rows] >> (8 * s) & 0xffu) << 23;
        sum.v[r] = fma(d.v[r], bits_to_float(factor), sum.v[r]);
      }
  }
  if constexpr (has_sum_scale<F>) {
    constexpr bool by_feature = F::chunk_scale_bytes != 0;
    for (int r = 0; r < 4; ++r) {
      const u32 at = by_feature ? 4u * u32(T::d_row(T::lane(), r)) : 0u;
      sum.v[r] = fma(d.v[r], bits_to_float(T::lds_load4(u.scales + at)), sum.v[r]);
    }
  } else if constexpr (!step_sums) {
    sum = d;
  }
}

/// Both: the loads of one unit, and its product.
template <class T, class F>
MONOLAYER_DEVICE void multiply_unit(fragment_d& sum, lds_address codes, lds_address scales, lds_address rows) {
  unit_operands<T, F> u;
  u.load(codes, scales, rows);
  add_unit(sum, u);
}

/// The power of two that brings a format's sums to the weights' and rows' own scale.
template <class T, class F>
MONOLAYER_HOST_DEVICE constexpr float result_factor() {
  constexpr int shift = is_mxfp4<F> ? T::mxfp4_shift : F::piece_bytes == 8 ? T::e4m3_shift : T::bf16_shift;
  return bits_to_float(u32(127 + shift) << 23);
}

/// What the matrix loop has to know of a weight_tile when it is compiled: all tiles of one class share its instructions.
template <class F, int UnitsPerChunk>
struct tile_class {
  using format = F;
  static constexpr int units_per_chunk = UnitsPerChunk;
  static constexpr u32 unit_bytes = weight_tile<F, unit_k * UnitsPerChunk>::unit_bytes;
  static constexpr u32 scales_at = units_per_chunk * unit_bytes;
};
template <class Tile>
using class_of_tile = tile_class<typename Tile::format, Tile::units_per_chunk>;

/// Units of a tile that a wave takes at once: neighbours in one chunk, one wait for both, all their loads in flight. The
/// codes of one bf16 unit fill as many registers as those of two FP8 units.
template <class Tile>
inline constexpr u32 units_at_once = Tile::format::piece_bytes <= 8 && Tile::units_per_chunk % 2 == 0 ? 2 : 1;

/// What it learns at run time, from a table.
struct tile_shape {
  u32 subtiles, chunks;  // chunks of one subtile
  u32 shares;            // of one subtile, each of which one wave takes
  u32 whole_chunks;      // a share is a chunk; else units_at_once units
  u32 turn;              // from tile to tile: see part_of_wave()
  u32 row_bytes;         // of a staged row
  u32 split_tiles, split_bytes;  // where split_bytes != 0, tile t multiplies from byte t / split_tiles * split_bytes of it

  /// Whole chunks are dealt where that is even.
  template <class T, class Tile>
  static constexpr tile_shape of(u32 staged_k = u32(Tile::padded_k), u32 split_tiles = 1) {
    static_assert(T::consumer_waves % Tile::subtiles == 0, "as many waves work on each subtile of a tile");
    constexpr u32 waves = u32(T::consumer_waves), team = waves / u32(Tile::subtiles);
    constexpr bool whole = u32(Tile::chunks) % team == 0;
    constexpr u32 share = whole ? u32(Tile::units_per_chunk) : units_at_once<Tile>, shares = u32(Tile::units) / share;
    static_assert(whole || team % (u32(Tile::units_per_chunk) / share) == 0);
    const bool split = staged_k != u32(Tile::padded_k);
    return {u32(Tile::subtiles), u32(Tile::chunks), shares, whole, (waves - shares % team) % waves, staged_k * 2,
            split ? split_tiles : 1u, split ? u32(Tile::padded_k) * 2 : 0u};
  }
};

namespace detail {

/// Waits until a chunk has landed. False: the block leaves.
template <class Block>
MONOLAYER_DEVICE bool wait_for_chunk(Block& b, u32 chunk) {
  if constexpr (requires { b.ring.landed(chunk); })  // mostly it has: no watch is set up then
    if (b.ring.landed(chunk)) return true;
  auto w = b.wait_for_block();
  if (b.ring.wait_full(chunk, w)) return true;
  fail(b, w, {failure::stream_wait, 0, 0, chunk, 0});
  return false;
}

}  // namespace detail

/// Adds units [in_chunk, in_chunk + count) of chunk `chunk`, AtOnce at a time. False: the block leaves.
template <class Tile, u32 AtOnce, class Block>
MONOLAYER_DEVICE bool multiply_units(Block& b, fragment_d& sum, u32 chunk, u32 in_chunk, u32 count, lds_address at,
                                     u32 stride) {
  using T = typename Block::target;
  using F = typename Tile::format;
  if (!detail::wait_for_chunk(b, chunk)) return false;
  constexpr u32 next_scales = F::chunk_scale_bytes != 0 ? 0u : u32(F::scale_bytes);
  lds_address codes = b.ring.slot(chunk) + in_chunk * Tile::unit_bytes;
  lds_address scales = b.ring.slot(chunk) + Tile::scales_at + in_chunk * next_scales;
  MONOLAYER_NO_UNROLL
  for (u32 done = 0; done < count; done += AtOnce) {
    unit_operands<T, F> u[AtOnce];
    MONOLAYER_UNROLL
    for (u32 i = 0; i < AtOnce; ++i) u[i].load(codes + i * Tile::unit_bytes, scales + i * next_scales, at + i * stride);
    codes += AtOnce * Tile::unit_bytes, scales += AtOnce * next_scales, at += AtOnce * stride;
    MONOLAYER_UNROLL
    for (u32 i = 0; i < AtOnce; ++i) add_unit(sum, u[i]);
  }
  b.ring.release(chunk, ring_credits / u32(Tile::units_per_chunk) * count);
  return true;
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

namespace detail {

/// Waits, in LDS, until ready(); an abort of the block ends the wait too. All lanes of a wave.
template <class Block, class Ready>
MONOLAYER_DEVICE bool wait_in_block(Block& b, Ready ready) {
  using T = typename Block::target;
  const auto missing = [&] { return T::ballot(!ready()) != 0; };
  if (missing()) {
    auto w = b.wait_for_block();
    while (missing())
      if (T::ballot(w.give_up()) != 0) {
        w.timed_out = T::ballot(w.timed_out) != 0;
        fail(b, w, {failure::stream_wait, 0, 0, b.next_chunk, 0});
        return false;
      }
  }
  T::wave_sync();  // what a lane has seen holds for all
  return true;
}

/// Into how many groups a tile's results are cut, one a wave.
template <class Block>
MONOLAYER_DEVICE int sum_groups(const Block& b) {
  return (b.live * 16 + Block::target::wave_size - 1) / Block::target::wave_size;
}

}  // namespace detail

// How a tile ends. Each wave leaves its partial sums in a buffer and goes on to the next tile; 32 or 64 results at a time
// are added by one wave, another one each time, as soon as all waves have stored. Two words in LDS tell: a wave
// stores into a buffer when the tile that used it before has been added. Nothing else stops a wave between tiles.

/// Where this wave's partial sums of the next tile go; the buffer is free.
template <class Block>
MONOLAYER_DEVICE lds_address begin_sums(Block& b) {
  using T = typename Block::target;
  using layout = typename Block::layout;
  const u32 tile = b.combined + 1;
  b.combined = tile;
  static_assert(max_rows_limit * 16 <= T::consumer_waves * T::wave_size);
  const lds_address added = layout::added + 4u * u32(T::lane() < detail::sum_groups(b) ? T::lane() : 0);
  detail::wait_in_block(b, [&] { return i32(T::lds_flag_load_own(added) + layout::partial_buffers - tile) >= 0; });
  return layout::partials + tile % layout::partial_buffers * layout::partial_bytes;
}

/// This wave has stored its sums of the tile. The results are dealt to the waves: add(feature 0..15, column, valid) is
/// called by all lanes of a wave together, `valid` where the column is live.
template <class Block, class Add>
MONOLAYER_DEVICE void end_sums(Block& b, Add add) {
  using T = typename Block::target;
  using layout = typename Block::layout;
  T::wave_sync();
  if (T::lane() == 0) T::lds_flag_store(layout::stored + 4u * u32(T::wave()), b.combined);
  // Which group is this wave's: the groups of one tile after the other go to one wave after the other. Found twice, since
  // it is cheaper to find than to hold.
  const auto group_of_wave = [&] {
    const int group = T::wave() - int(b.combined * u32(detail::sum_groups(b)) % u32(T::consumer_waves));
    return group < 0 ? group + T::consumer_waves : group;
  };
  const int item = group_of_wave() * T::wave_size + T::lane();
  if (item - T::lane() >= b.live * 16) return;
  const lds_address stored = layout::stored + 4u * u32(T::lane() < T::consumer_waves ? T::lane() : 0);
  if (!detail::wait_in_block(b, [&] { return i32(T::lds_flag_load_own(stored) - b.combined) >= 0; })) return;
  add(item % 16, item / 16, item / 16 < b.live);
  T::wave_sync();
  if (T::lane() == 0) T::lds_flag_store(layout::added + 4u * u32(group_of_wave()), b.combined);
}

/// Which part of the current tile this wave has: with each tile the part `turn` further on, so that the waves take the first
/// parts by turns where these have more to do than the others.
template <class Block>
MONOLAYER_DEVICE u32 part_of_wave(const Block& b, u32 turn) {
  constexpr u32 waves = u32(Block::target::consumer_waves);
  const u32 wave = u32(Block::target::wave());
  if (turn == 0) return wave;
  const u32 part = wave + b.combined * turn % waves;
  return part < waves ? part : part - waves;
}

/// Adds part `part` of the product of the current tile with `rows` to `sum`, at the weights' and rows' own scale; what follows
/// in the ring is the next tile's. The parts of a tile are one for each wave, as many of each subtile, whose shares are dealt
/// to its parts in turn: what belongs to a part decides the order of the sum, so no other row may have a say in it.
template <class Class, class Block>
MONOLAYER_DEVICE void multiply_tile(Block& b, const tile_shape& shape, staged_column rows, u32 part, fragment_d& sum) {
  using T = typename Block::target;
  constexpr u32 upc = u32(Class::units_per_chunk), waves = u32(T::consumer_waves), fewest = units_at_once<Class>;
  const bool whole = shape.whole_chunks != 0;
  const u32 share = whole ? upc : fewest, chunk_shares = whole ? 1u : upc / fewest;
  const u32 team = waves / shape.subtiles, sub = part * shape.subtiles / waves;
  u32 s = part - sub * team;
  // What a part has lies at the same place of its chunks, every step-th chunk.
  const u32 in_chunk = s % chunk_shares * fewest, step = team / chunk_shares;
  u32 chunk = b.next_chunk + sub * shape.chunks + s / chunk_shares;
  lds_address at = rows.at + s * share * rows.stride;
  MONOLAYER_NO_UNROLL
  for (; s < shape.shares; s += team, chunk += step, at += team * share * rows.stride)
    if (!multiply_units<Class, fewest>(b, sum, chunk, in_chunk, share, at, rows.stride)) break;
  b.next_chunk += shape.chunks * shape.subtiles;
  constexpr float factor = result_factor<T, typename Class::format>();
  if constexpr (factor != 1.0f)
    for (float& x : sum.v) x = mul(x, factor);
}

/// Adds the parts' sums of the current tile in their order and hands lanes the f32 results of one (feature, column):
/// done(feature 0..15, column, valid, float (&)[Subtiles]), of which the first `subtiles` are meant. All lanes of a wave
/// call `done` together; `valid` marks those whose column is live. A block whose waves give up leaves at its next sync().
template <int Subtiles, class Block, class Done>
MONOLAYER_DEVICE void combine(Block& b, u32 subtiles, u32 part, const fragment_d& sum, Done done) {
  using T = typename Block::target;
  using layout = typename Block::layout;
  static_assert(Subtiles == 1 || Subtiles == projected_subtiles);
  constexpr int parts = T::consumer_waves;
  const lds_address base = begin_sums(b);
  const int lane = T::lane();
  MONOLAYER_UNROLL
  for (int r = 0; r < 4; ++r) {
    const int column = T::d_column(lane, r);
    if (column < b.live)
      T::lds_store4(base + part * layout::partial_wave + u32(column) * layout::partial_column + 4u * u32(T::d_row(lane, r)),
                    float_to_bits(sum.v[r]));
  }
  end_sums(b, [&](int feature, int column, bool valid) MONOLAYER_INLINED {
    const bool two = Subtiles == 2 && subtiles == 2;
    float first = 0.0f, total = 0.0f;
    if (valid) {
      const lds_address at = base + u32(column) * layout::partial_column + 4u * u32(feature);
      MONOLAYER_UNROLL
      for (int p = 0; p < parts; ++p) {
        if (p == parts / 2) first = total, total = two ? 0.0f : total;
        total = add(total, bits_to_float(T::lds_load4(at + u32(p) * layout::partial_wave)));
      }
    }
    float result[Subtiles];
    result[Subtiles - 1] = total;
    result[0] = two ? first : total;
    done(feature, column, valid, result);
  });
}

/// The product of the current tile, of type Tile, with whole staged rows of Tile::padded_k columns, for a stage with a
/// run_tile() of its own; `done` as combine() has it.
template <class Tile, class Block, class Done>
MONOLAYER_DEVICE bool project(Block& b, Done done) {
  constexpr tile_shape shape = tile_shape::of<typename Block::target, Tile>();
  const u32 part = part_of_wave(b, shape.turn);
  fragment_d sum = {};
  multiply_tile<class_of_tile<Tile>>(b, shape, own_column(b, shape.row_bytes), part, sum);
  combine<Tile::subtiles>(b, shape.subtiles, part, sum, done);
  return true;
}

}  // namespace monolayer
