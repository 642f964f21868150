// Latent attention over a row's list of tokens, in splits.
//
// All heads of a rank share the cache rows, so the rows (keys and, in their first `latent` columns, values at once) are
// the matrix unit's A operand and the heads its columns. A block takes one range of one row's list:
//   staged once    Q[head] = [ql | q_pe], bf16; and where each listed token lies
//   for each step  up to 64 cache rows, widened to bf16 in LDS;
//                  scores = K Q^T, softmax over the steps so far, sums += V^T P^T
// Which wave does what follows from the shapes and the target's number of waves alone. Sums stay f32; P is rounded to
// bf16, and what it is divided by in the end is the sum of the rounded P.
#pragma once

#include "monolayer/device/attention_staging.hpp"
#include "monolayer/device/inputs.hpp"
#include "monolayer/device/multiply.hpp"

namespace monolayer::stages {

/// o_part[row][group][split] = {sums f32 [heads_at_once][latent], max f32 [heads_at_once], sum f32 [heads_at_once]}: the
/// sums over the split's tokens of exp(score - max) * row, not divided; score = (ql . latent + q_pe . rope) *
/// softmax_scale. A split without tokens has max = -inf and sum = 0, and its sums are not written.
///
/// A tile is (head group, row of the launch, split); split s owns entries [s * span, (s + 1) * span) of the row's list,
/// span = index_topk / kv_splits: which split a token is in depends on its place in the list alone. Entries outside the
/// cache are left out and counted (device_state::bad_entries). Tokens that the launch itself writes come from slot `Own`.
///
/// C: max_rows, heads, heads_at_once (<= 16), nope, rope, kv_cache, index_topk, kv_splits, softmax_scale; kv_step (cache rows staged at
/// a time) where it shall not follow from the target.
/// Slots: Q bf16 [heads][nope + rope], rotated; Ql bf16 [heads][latent]; Picks: see token_list; Own: see cache_rows;
/// OPart f32. `KvCache` indexes layer_entry::data.
template <class C, int Q, int Ql, int Picks, int Own, int OPart, int KvCache>
struct attention {
  using input = inputs::none;
  using weights = void;
  using format = typename C::kv_cache;
  static constexpr int heads = C::heads_at_once, splits = C::kv_splits, span = C::index_topk / splits;
  static constexpr int latent = format::latent, rope = format::rope;
  static constexpr int groups = C::heads / heads;
  static constexpr int tiles = groups * C::max_rows * splits;
  /// f32 columns of slot OPart that a tile writes, a multiple of 4.
  static constexpr int tile_columns = (heads * (latent + 2) + 3) / 4 * 4;
  static constexpr int part_columns = groups * splits * tile_columns;
  static_assert(C::heads % heads == 0 && heads <= 16, "attention: heads must be a multiple of heads_at_once, at most 16");
  static_assert(C::index_topk % splits == 0, "attention: kv_splits must divide index_topk");
  static_assert(C::nope % 8 == 0 && rope == C::rope);
  using staging = attention_staging<C, Q, Ql, Own, KvCache>;
  template <class T>
  static constexpr u32 scratch_bytes = attention_areas<C, T>::bytes;

  template <class Block>
  MONOLAYER_DEVICE static bool run_tile(Block& b, int tile) {
    using T = typename Block::target;
    const int split = tile % splits, row = tile / splits % C::max_rows, group = tile / (splits * C::max_rows);
    if (b.column_of(row) < 0) return true;
    const auto list = token_list::of_row<Picks>(b, row, C::index_topk, tile == row * splits && Block::thread() == 0);
    int count = list.count - split * span;
    count = T::opaque(count < 0 ? 0 : count < span ? count : span);
    if (count == 0) {
      if (Block::thread() < 2 * heads)
        T::slot_store4(output<Block>(b, row, group, split) + u64(heads * latent + Block::thread()) * 4,
                       Block::thread() < heads ? minus_infinity : 0);
      return true;
    }
    using areas = attention_areas<C, T>;
    b.staged = 0;
    // The list's entries are on their way while the queries are staged.
    const u32 entry = Block::thread() < count ? list.template entry<T>(split * span + Block::thread()) : 0u;
    staging::stage_queries(b, row, group);
    staging::find_tokens(b, list, split * span, count, group == 0, entry);
    if (!b.sync()) return false;
    running<T> r;
    MONOLAYER_NO_UNROLL
    for (int first = 0; first < count; first += areas::step) {
      if (first != 0 && !b.sync()) return false;
      staging::gather(b, first);
      if (!b.sync()) return false;
      multiply_keys(b);
      if (!b.sync()) return false;
      soften(b, first);
      if (!b.sync()) return false;
      multiply_values(b, r);
    }
    if (!b.sync()) return false;
    return put_sums(b, r, output<Block>(b, row, group, split));
  }

 private:
  template <class T>
  static constexpr int column_groups = (heads + T::columns - 1) / T::columns;

  /// Sums of 32 dims for `Groups` column groups: tile t holds dims 32 unit + 2 i + t, i being the row of D.
  template <int Groups>
  struct unit_sums {
    fragment_d d[2][Groups] = {};
  };
  /// What the waves carry from step to step: a wave keeps the sums of the units wave, wave + waves, ...; the units that do
  /// not go round are dealt out by column group.
  template <class T>
  struct running {
    static constexpr int waves = T::consumer_waves, groups = column_groups<T>;
    static constexpr int rounds = latent / 32 / waves, rest = latent / 32 % waves;
    static_assert(rest * groups <= waves, "attention: a wave has one of the units that are left");
    unit_sums<groups> sums[rounds > 0 ? rounds : 1];
    unit_sums<1> last;
    /// f(sums, unit, first column group) for what this wave keeps.
    template <class F>
    MONOLAYER_DEVICE void each(F f) {
      MONOLAYER_UNROLL
      for (int i = 0; i < rounds; ++i) f(sums[i], T::wave() + i * waves, 0);
      if constexpr (rest != 0)
        if (T::wave() < rest * groups) f(last, rounds * waves + T::wave() / groups, T::wave() % groups);
    }
  };

  template <class Block>
  MONOLAYER_DEVICE static u8* output(const Block& b, int row, int group, int split) {
    return slot_view<typename Block::target, typename Block::program, OPart>::current(b).at(
        row, (group * splits + split) * tile_columns);
  }
  /// LDS address of this lane's column of an operand with one row a head; zeros for a column without a head.
  template <class Block>
  MONOLAYER_DEVICE static staged_column column(int column_group, u32 at, u32 stride) {
    using T = typename Block::target;
    const int head = column_group * T::columns + T::b_column(T::lane());
    const u32 k_offset = u32(T::k_group(T::lane())) * 16u;
    if (head < heads) return {Block::layout::rows + at + u32(head) * stride + k_offset, step_k * 2};
    return {Block::layout::zeros + k_offset, 0};
  }

  /// scores[part][head][slot] = K Q^T over a part of k: a job is (part, 16 slots).
  template <class Block>
  MONOLAYER_DEVICE static void multiply_keys(Block&) {
    using T = typename Block::target;
    using areas = attention_areas<C, T>;
    constexpr int steps = areas::row_steps / areas::score_parts;
    const int lane = T::lane();
    MONOLAYER_NO_UNROLL
    for (int job = T::wave(); job < areas::score_parts * areas::slot_tiles; job += T::consumer_waves) {
      const int slots = job % areas::slot_tiles * 16, part = job / areas::slot_tiles;
      fragment_d d[column_groups<T>] = {};
      MONOLAYER_UNROLL
      for (int s = 0; s < steps; ++s) {
        const u32 k = u32(part * steps + s);
        fragment_a<T::lane_rows> a;
        for (int h = 0; h < T::lane_rows; ++h) {
          const u32x4 v = T::lds_load16(Block::layout::rows + areas::rows + u32(slots + T::a_row(lane, h)) * areas::row_stride +
                                        k * (step_k * 2) + u32(T::k_group(lane)) * 16u);
          for (int i = 0; i < 4; ++i) a.v[h][i] = v.v[i];
        }
        MONOLAYER_UNROLL
        for (int g = 0; g < column_groups<T>; ++g) {
          const staged_column c = column<Block>(g, areas::queries, areas::row_stride);
          const u32x4 v = T::lds_load16(c.at + k * c.stride);
          T::mma(a, fragment_b{{v.v[0], v.v[1], v.v[2], v.v[3]}}, d[g]);
        }
      }
      MONOLAYER_UNROLL
      for (int g = 0; g < column_groups<T>; ++g)
        for (int r = 0; r < 4; ++r) {
          const int head = g * T::columns + T::d_column(lane, r);
          if (head < heads)
            T::lds_store4(Block::layout::rows + areas::scores + u32(part * heads + head) * areas::score_stride +
                              4u * u32(slots + T::d_row(lane, r)),
                          float_to_bits(d[g].v[r]));
        }
    }
  }

  /// Scores to weights, head by head, and by how much the sums so far must shrink.
  template <class Block>
  MONOLAYER_DEVICE static void soften(Block&, int first) {
    using T = typename Block::target;
    using areas = attention_areas<C, T>;
    constexpr int padded = areas::value_steps * step_k, each = (padded + T::wave_size - 1) / T::wave_size;
    constexpr float scale = kv_result_factor<T, format>() * C::softmax_scale;  // a power of two: exact
    MONOLAYER_NO_UNROLL
    for (int head = T::wave(); head < heads; head += T::consumer_waves) {
      const lds_address kept = Block::layout::rows + areas::maxima + 4u * u32(head);
      const float max_before = bits_to_float(T::lds_load4(kept)), sum_before = bits_to_float(T::lds_load4(kept + 64));
      float x[each];
      u32 top = 0;
      MONOLAYER_UNROLL
      for (int n = 0; n < each; ++n) {
        const int slot = n * T::wave_size + T::lane();
        x[n] = bits_to_float(minus_infinity);
        if (slot < areas::step && !staging::template place<Block>(first + slot).absent()) {
          float total = 0.0f;
          MONOLAYER_UNROLL
          for (int part = 0; part < areas::score_parts; ++part)
            total = add(total, bits_to_float(T::lds_load4(Block::layout::rows + areas::scores +
                                                          u32(part * heads + head) * areas::score_stride + 4u * u32(slot))));
          x[n] = mul(total, scale);
        }
        const u32 key = ordered_key(x[n]);
        top = key > top ? key : top;
      }
      top = T::wave_max(top);
      const u32 before = ordered_key(max_before);
      const float max = from_ordered_key(top > before ? top : before);
      const float shrink = float_to_bits(max) == minus_infinity ? 1.0f : exp(sub(max_before, max));
      float total = 0.0f;
      MONOLAYER_UNROLL
      for (int n = 0; n < each; ++n) {
        const int slot = n * T::wave_size + T::lane();
        const float p = float_to_bits(x[n]) == minus_infinity ? 0.0f : exp(sub(x[n], max));  // a NaN stays one
        const u32 rounded = from_float<bf16>(p).bits;
        total = add(total, bits_to_float(rounded << 16));
        if (slot < padded)
          T::lds_store2(Block::layout::rows + areas::softmax + u32(head) * areas::weight_stride + 2u * u32(slot),
                        u16(shifted_bits<T>(rounded)));
      }
      total = wave_sum<T>(total);
      T::wave_sync();  // all lanes have read what lane 0 replaces
      if (T::lane() == 0) {
        T::lds_store4(Block::layout::rows + areas::rescale + 4u * u32(head), float_to_bits(shrink));
        T::lds_store4(kept, float_to_bits(max));
        T::lds_store4(kept + 64, float_to_bits(fma(sum_before, shrink, total)));
      }
    }
  }
  /// A bf16 times 2^activation_shift.
  template <class T>
  MONOLAYER_DEVICE static u32 shifted_bits(u32 bits) {
    constexpr float factor = bits_to_float(u32(127 + T::activation_shift) << 23);
    return from_float<bf16>(mul(bits_to_float(bits << 16), factor)).bits;
  }
  MONOLAYER_DEVICE static float from_ordered_key(u32 key) {
    return bits_to_float(key >= 0x80000000u ? key - 0x80000000u : 0x80000000u | (0x80000000u - key));
  }

  /// sums = sums * shrink + V^T P^T. A lane loads two neighbouring dims of 8 slots and so holds its rows of two A operands:
  /// the even dims and the odd ones.
  template <class Block>
  MONOLAYER_DEVICE static void multiply_values(Block&, running<typename Block::target>& run) {
    using T = typename Block::target;
    using areas = attention_areas<C, T>;
    run.each([&]<int Groups>(unit_sums<Groups>& sums, int unit, int first_group) {
      const int lane = T::lane(), slot0 = 8 * T::k_group(lane);
      MONOLAYER_UNROLL
      for (int g = 0; g < Groups; ++g)
        for (int r = 0; r < 4; ++r) {
          const int head = (first_group + g) * T::columns + T::d_column(lane, r);
          const float shrink =
              head < heads ? bits_to_float(T::lds_load4(Block::layout::rows + areas::rescale + 4u * u32(head))) : 1.0f;
          for (int t = 0; t < 2; ++t) sums.d[t][g].v[r] = mul(sums.d[t][g].v[r], shrink);
        }
      MONOLAYER_NO_UNROLL
      for (int s = 0; s < areas::value_steps; ++s) {
        fragment_a<T::lane_rows> a[2] = {};
        // A step may have fewer than 32 slots; beyond them the operand is zero, as the weights are.
        if (areas::step % step_k == 0 || s * step_k + slot0 < areas::step) {
          MONOLAYER_UNROLL
          for (int h = 0; h < T::lane_rows; ++h) {
            const lds_address at = Block::layout::rows + areas::rows + u32(s * step_k + slot0) * areas::row_stride +
                                   u32(unit * 32 + 2 * T::a_row(lane, h)) * 2u;
            MONOLAYER_UNROLL
            for (int k = 0; k < 4; ++k) {
              const u32 even = T::lds_load4(at + u32(2 * k) * areas::row_stride);
              const u32 odd = T::lds_load4(at + u32(2 * k + 1) * areas::row_stride);
              a[0].v[h][k] = (even & 0xffffu) | odd << 16;
              a[1].v[h][k] = even >> 16 | (odd & 0xffff0000u);
            }
          }
        }
        MONOLAYER_UNROLL
        for (int g = 0; g < Groups; ++g) {
          const staged_column c = column<Block>(first_group + g, areas::softmax, areas::weight_stride);
          const u32x4 v = T::lds_load16(c.at + u32(s) * c.stride);
          const fragment_b p{{v.v[0], v.v[1], v.v[2], v.v[3]}};
          for (int t = 0; t < 2; ++t) T::mma(a[t], p, sums.d[t][g]);
        }
      }
    });
  }

  /// The sums go through LDS, so that they leave in whole lines.
  template <class Block>
  MONOLAYER_DEVICE static bool put_sums(Block& b, running<typename Block::target>& run, u8* to) {
    using T = typename Block::target;
    using areas = attention_areas<C, T>;
    constexpr float factor = kv_result_factor<T, format>();
    const int lane = T::lane();
    run.each([&]<int Groups>(unit_sums<Groups>& sums, int unit, int first_group) {
      MONOLAYER_UNROLL
      for (int g = 0; g < Groups; ++g)
        for (int r = 0; r < 4; ++r) {
          const int head = (first_group + g) * T::columns + T::d_column(lane, r);
          if (head >= heads) continue;
          const lds_address at = Block::layout::rows + u32(head) * areas::sum_stride + u32(unit * 32 + 2 * T::d_row(lane, r)) * 4u;
          for (int t = 0; t < 2; ++t) T::lds_store4(at + 4u * u32(t), float_to_bits(mul(sums.d[t][g].v[r], factor)));
        }
    });
    if (Block::thread() < 2 * heads) {
      const int head = Block::thread() % heads, which = Block::thread() / heads;
      T::slot_store4(to + u64(heads * latent + Block::thread()) * 4,
                     T::lds_load4(Block::layout::rows + areas::maxima + 64u * u32(which) + 4u * u32(head)));
    }
    if (!b.sync()) return false;
    MONOLAYER_NO_UNROLL
    for (int item = Block::thread(); item < heads * latent / 4; item += Block::threads) {
      const int head = item / (latent / 4), k = item % (latent / 4) * 4;
      T::slot_store16(to + u64(item) * 16, T::lds_load16(Block::layout::rows + u32(head) * areas::sum_stride + u32(k) * 4u));
    }
    return true;
  }
};

}  // namespace monolayer::stages
