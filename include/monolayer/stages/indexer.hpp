// The indexer's scores of all keys that a row may see. Formulas: transformers'
// GlmMoeDsa indexer,
//     S[t, s] = sum over heads h of w[t, h] * relu(q[t, h] . k[s]),   w = raw weight / sqrt(heads) / sqrt(128)
// with f32 sums, for the tokens s = 0 .. position(t) of the row's request. q is bf16 and rotated, k as the cache holds
// it.
//
// Keys are the matrix unit's A operand, 16 a step, heads are B's columns. A wave takes as many keys at a time as it has
// lanes, and each lane ends up with one key's score. A score's bits depend on the key, q and w alone: not on the
// number of tiles that share the row, on other rows or on the grid.
#pragma once

#include "monolayer/device/index_cache.hpp"
#include "monolayer/device/inputs.hpp"
#include "monolayer/device/multiply.hpp"
#include "monolayer/device/token_slots.hpp"

namespace monolayer::stages {

/// 1 / sqrt(heads * 128), rounded; exactly 1/64 for 32 heads.
constexpr float index_weight_factor(int heads) {
  double x = 1.0 / (heads * double(index_dim)), root = 1.0;
  for (int i = 0; i < 60; ++i) root = (root + x / root) / 2;
  return float(root);
}

/// Scores of row tile / Stripes: the batches of keys of stripe tile % Stripes, to slot `Scores` (f32 [max_context], a
/// part a row; NaN up to the next multiple of four). Slots: `Iq` bf16 [Heads * 128], `Iw` f32 [>= Heads], `Own`, whose
/// rows hold the row's own key in Format's own form at byte `OwnKey` (a multiple of 16). layer_entry::data[Cache] is
/// the index cache (16-byte aligned). A key that this launch writes, whose slot is a live row's, is read from `Own`. A
/// token whose block table entry names no slot of the caches gets a NaN score, is never picked, and is counted in
/// device_state::bad_entries.
template <int Iq, int Iw, int Own, int Scores, int Heads, class Format, int OwnKey, int Stripes, int Cache>
struct index_scores {
  static_assert(Heads >= 1 && Heads <= 32 && OwnKey % 16 == 0);
  using input = inputs::none;
  using weights = void;
  static constexpr int stripes = Stripes;

  template <class Block>
  MONOLAYER_DEVICE static bool run_tile(Block& b, int tile) {
    using T = typename Block::target;
    const int row = tile / Stripes, stripe = tile % Stripes;
    if (b.column_of(row) < 0) return true;
    const u32 tokens = u32(tokens_of<T>(b.params->batch, row));
    const u32 batches = (tokens + T::wave_size - 1) / T::wave_size;
    if (u32(stripe) >= batches) return true;
    b.staged = 0;
    if (!b.sync()) return false;
    stage(b, row);
    if (!b.sync()) return false;
    const of_row<Block> work(b, row, tokens);
    // Few batches are spread over the stripes first: those are different blocks.
    MONOLAYER_NO_UNROLL
    for (u32 batch = u32(T::wave() * Stripes + stripe); batch < batches; batch += u32(T::consumer_waves * Stripes))
      work.score(b, batch * T::wave_size);
    return true;
  }

  // ---- the staged rows' place: q [padded heads] times 2^activation_shift, w [padded heads], slots of the live rows
  // [8]
  template <class T>
  static constexpr int groups = (Heads + T::columns - 1) / T::columns;  // of B's columns
  template <class T>
  static constexpr int padded_heads = groups<T>* T::columns;
  static constexpr u32 q_stride = index_dim * 2 + 16;
  template <class T>
  static constexpr u32 w_at = u32(padded_heads<T>) * q_stride;
  template <class T>
  static constexpr u32 live_at = w_at<T> + 4 * u32(padded_heads<T>);
  /// Bytes of LDS that a tile needs in place of staged rows.
  template <class T>
  static constexpr u32 scratch_bytes = live_at<T> + 32;

 private:
  template <class Block>
  MONOLAYER_DEVICE static void stage(Block& b, int row) {
    using T = typename Block::target;
    using P = typename Block::program;
    const auto q = slot_view<T, P, Iq>::current(b);
    const auto w = slot_view<T, P, Iw>::current(b);
    const lds_address base = Block::layout::rows;
    for (int piece = Block::thread(); piece < padded_heads<T> * 16; piece += Block::threads) {
      const int head = piece / 16, d = piece % 16 * 8;
      const u32x4 v = head < Heads ? q.load8(row, head * index_dim + d) : u32x4{};
      T::lds_store16(base + u32(head) * q_stride + u32(d) * 2, shifted<T>(v));
    }
    // With the power of two that brings the matrix unit's results to their own scale; exact.
    constexpr int shift = Format::fp8 ? T::e4m3_shift : T::bf16_shift;
    constexpr float factor = index_weight_factor(Heads), power = bits_to_float(u32(127 + shift) << 23);
    for (int head = Block::thread(); head < padded_heads<T>; head += Block::threads) {
      const float raw = head < Heads ? bits_to_float(T::slot_load4(w.at(row, head))) : 0.0f;
      T::lds_store4(base + w_at<T> + 4 * u32(head), float_to_bits(mul(mul(raw, factor), power)));
    }
    for (int j = Block::thread(); j < max_rows_limit; j += Block::threads)
      T::lds_store4(base + live_at<T> + 4 * u32(j),
                    j < b.live ? T::load8(b.params->row_slots + b.row(j)).v[0] : no_slot);
  }

  /// What a wave holds while it scores keys of one row.
  template <class Block>
  struct of_row {
    using T = typename Block::target;
    using P = typename Block::program;
    static constexpr int columns = groups<T>, rows = T::lane_rows;
    static constexpr int at_once = T::wave_size / 16;  // groups of 16 keys in a batch
    static constexpr int loads = Format::fp8 ? 2 : 4;  // of 16 bytes, for a lane's 32 values of one key
    static constexpr int steps_of_load = steps_per_unit / loads;
    static constexpr bool hold_q = T::wave_size == 64;  // q and w in registers; else read from LDS each time
    // Groups whose keys are on their way together: as many as the registers hold.
    static constexpr int in_flight = Format::fp8 && hold_q ? at_once : at_once / 2;
    static constexpr int sums = T::columns == 16 ? 4 : 2;  // rows of D that a lane holds
    static constexpr int row_columns = 4 / sums;           // its columns of each

    token_slots<T> tokens;
    const u8* cache;
    int row;
    u32 count;
    fragment_b q[hold_q ? columns : 1][steps_per_unit];
    float w[hold_q ? columns : 1][row_columns];

    MONOLAYER_DEVICE of_row(const Block& b, int r, u32 n)
        : tokens(b.params->batch, r), cache(layer_data<T>(b.entry(), Cache)), row(r), count(n) {
      if constexpr (hold_q)
        for (int c = 0; c < columns; ++c) {
          for (int s = 0; s < steps_per_unit; ++s) q[c][s] = load_q(c, s);
          for (int i = 0; i < row_columns; ++i) w[c][i] = load_w(c, i);
        }
    }

    /// The first of the 8 values that a lane's k group multiplies in step s; any order serves if keys and q agree. In
    /// fp8 pages 16 values of a key are contiguous, so a lane takes two such pieces and each fills two steps.
    MONOLAYER_DEVICE static u32 first_value(int s) {
      const int g = T::k_group(T::lane());
      return u32(Format::fp8 ? 16 * (g + 4 * (s / 2)) + 8 * (s % 2) : step_k * s + 8 * g);
    }
    MONOLAYER_DEVICE static fragment_b load_q(int c, int s) {
      const u32x4 v = T::lds_load16(Block::layout::rows + u32(c * T::columns + T::b_column(T::lane())) * q_stride +
                                    2 * first_value(s));
      return {{v.v[0], v.v[1], v.v[2], v.v[3]}};
    }
    MONOLAYER_DEVICE static float load_w(int c, int i) {
      return bits_to_float(
          T::lds_load4(Block::layout::rows + w_at<T> + 4 * u32(c * T::columns + T::d_column(T::lane(), i))));
    }
    /// The live column whose row lies in this slot, or -1.
    MONOLAYER_DEVICE static int column_of_slot(u32 slot) {
      int column = -1;
      MONOLAYER_UNROLL
      for (u32 i = 0; i < 2; ++i) {
        const u32x4 live = T::lds_load16(Block::layout::rows + live_at<T> + 16 * i);
        MONOLAYER_UNROLL
        for (int k = 0; k < 4; ++k)
          if (live.v[k] == slot) column = int(4 * i) + k;
      }
      return slot == no_slot ? -1 : column;
    }
    MONOLAYER_DEVICE static const u8* own_key(const Block& b, int column) {
      return slot_view<T, P, Own>::current(b).at(b.row(column), 0) + OwnKey;
    }
    MONOLAYER_DEVICE const u8* page(const Block& b, const key_place& place) const {
      return cache + place.page * b.params->batch.index_block_stride;
    }
    /// 16 bytes of the cache.
    MONOLAYER_DEVICE static u32x4 load_values(const Block& b, const u8* at) {
      if constexpr (Format::alignment < 16)
        if (b.params->batch.index_block_stride % 16 != 0)
          return {{T::load4(at), T::load4(at + 4), T::load4(at + 8), T::load4(at + 12)}};
      return T::load16(at);
    }

    /// Scores of tokens first .. first + wave_size - 1, those below `count`. All lanes of the wave.
    MONOLAYER_DEVICE void score(const Block& b, u32 first) const {
      const int lane = T::lane();
      // The key whose score this lane ends up with: of group lane % at_once (see fold()).
      const u32 mine = first + 16 * u32(lane % at_once) + u32(T::d_row(lane, folded_element()));
      const key_place place = mine < count ? tokens.find(mine) : key_place{no_slot, 0, 0};
      const int my_column = column_of_slot(place.slot);
      const bool some_own = T::ballot(my_column >= 0) != 0;
      float scale = 1.0f;
      if constexpr (Format::fp8) {
        u32 bits = 0;
        if (place.slot != no_slot && my_column < 0)
          bits = T::load4(page(b, place) + Format::scale_offset(tokens.pages.by, place.place));
        if (my_column >= 0) bits = T::slot_load4(own_key(b, my_column) + Format::own_scale);
        scale = bits_to_float(bits);
      }
      float total = 0.0f;
      MONOLAYER_NO_UNROLL
      for (int from = 0; from < at_once; from += in_flight) {
        u32x4 key[in_flight][rows][loads];
        load_keys(b, first + 16 * u32(from), some_own, key);
        // One group after the other from the same registers: unrolled, the code would be there as many times.
        MONOLAYER_NO_UNROLL
        for (int i = from; i < from + in_flight; ++i) {
          const float folded = fold(multiply(key[0]));
          if (lane % at_once == i) total = folded;
          MONOLAYER_UNROLL
          for (int k = 0; k + 1 < in_flight; ++k)
            for (int h = 0; h < rows; ++h)
              for (int l = 0; l < loads; ++l) key[k][h][l] = key[k + 1][h][l];
        }
      }
      if (mine >= align_up(count, 4)) return;  // readers take four scores at a time
      if constexpr (Format::fp8) total = mul(total, scale);
      if (place.slot == no_slot) {
        total = bits_to_float(0x7fc00000u);
        if (mine < count) T::fetch_add(&b.params->state->bad_entries, 1);
      }
      T::slot_store4(slot_view<T, P, Scores>::current(b).at(row, int(mine)), float_to_bits(total));
    }

   private:
    /// This lane's shares of the keys of groups first, first + 16, ...; zeros where there is no key. All look-ups are
    /// on their way together, then all keys.
    MONOLAYER_DEVICE void load_keys(const Block& b, u32 first, bool some_own,
                                    u32x4 (&key)[in_flight][rows][loads]) const {
      const u8* at[in_flight][rows];
      u32 slot[in_flight][rows];
      MONOLAYER_UNROLL
      for (int i = 0; i < in_flight; ++i) {
        [[maybe_unused]] key_place shared{no_slot, 0, 0};
        MONOLAYER_UNROLL
        for (int h = 0; h < rows; ++h) {
          const int row = T::a_row(T::lane(), h);
          const u32 group = first + 16 * u32(i), t = group + u32(row);
          key_place place{no_slot, 0, 0};
          // A group lies in one shuffled page. Where a lane has several keys of it, one look-up serves them.
          if constexpr (Format::block_size_multiple % 16 == 0 && rows > 1) {
            if (h == 0 && group < count) shared = tokens.find(group);
            if (t < count && shared.slot != no_slot)
              place = {shared.slot + u32(row), shared.page, shared.place + u32(row)};
          } else if (t < count) {
            place = tokens.find(t);
          }
          slot[i][h] = place.slot;
          at[i][h] = page(b, place) + Format::value_offset(place.place, 0);
        }
      }
      MONOLAYER_UNROLL
      for (int i = 0; i < in_flight; ++i) MONOLAYER_UNROLL
      for (int h = 0; h < rows; ++h) {
        const bool cached = slot[i][h] != no_slot && (!some_own || column_of_slot(slot[i][h]) < 0);
        MONOLAYER_UNROLL
        for (int l = 0; l < loads; ++l)
          key[i][h][l] =
              cached ? load_values(b, at[i][h] + Format::value_offset(0, first_value(l * steps_of_load))) : u32x4{};
      }
      if (!some_own) return;
      MONOLAYER_UNROLL
      for (int i = 0; i < in_flight; ++i) MONOLAYER_UNROLL
      for (int h = 0; h < rows; ++h) {
        const int column = column_of_slot(slot[i][h]);
        if (column < 0) continue;
        const u8* own = own_key(b, column);
        MONOLAYER_UNROLL
        for (int l = 0; l < loads; ++l)
          key[i][h][l] = T::slot_load16(own + first_value(l * steps_of_load) * (Format::fp8 ? 1 : 2));
      }
    }

    struct row_sums {
      float v[sums];
    };
    /// The steps that load l of the keys fills; it is in key[h][at].
    MONOLAYER_DEVICE void multiply_load(const u32x4 (&key)[rows][loads], int at, int l,
                                        fragment_d (&d)[columns]) const {
      MONOLAYER_UNROLL
      for (int i = 0; i < steps_of_load; ++i) {
        const int s = l * steps_of_load + i;
        fragment_a<rows> a;
        MONOLAYER_UNROLL
        for (int h = 0; h < rows; ++h) {
          const u32x4& piece = key[h][at];
          if constexpr (Format::fp8) {
            const fragment_b wide = widen_stored_e4m3x8<T>({{piece.v[2 * i], piece.v[2 * i + 1]}});
            for (int k = 0; k < 4; ++k) a.v[h][k] = wide.v[k];
          } else {
            for (int k = 0; k < 4; ++k) a.v[h][k] = piece.v[k];
          }
        }
        MONOLAYER_UNROLL
        for (int c = 0; c < columns; ++c) {
          if constexpr (hold_q)
            T::mma(a, q[c][s], d[c]);
          else
            T::mma(a, load_q(c, s), d[c]);
        }
      }
    }
    /// The lane's rows of D, relu'd, weighted and added over its columns, lowest first. Where q is read from LDS, a
    /// true loop: the compiler would else ask for all of q at once, for which there are no registers.
    MONOLAYER_DEVICE row_sums multiply(u32x4 (&key)[rows][loads]) const {
      fragment_d d[columns] = {};
      if constexpr (hold_q) {
        MONOLAYER_UNROLL
        for (int l = 0; l < loads; ++l) multiply_load(key, l, l, d);
      } else {
        MONOLAYER_NO_UNROLL
        for (int l = 0; l < loads; ++l) {
          multiply_load(key, 0, l, d);
          MONOLAYER_UNROLL
          for (int k = 0; k + 1 < loads; ++k)
            for (int h = 0; h < rows; ++h) key[h][k] = key[h][k + 1];
        }
      }
      row_sums r{};
      MONOLAYER_UNROLL
      for (int c = 0; c < columns; ++c) MONOLAYER_UNROLL
      for (int e = 0; e < 4; ++e) {
        const float x = d[c].v[e];  // NaN stays NaN
        float weight;
        if constexpr (hold_q)
          weight = w[c][e % row_columns];
        else
          weight = load_w(c, e % row_columns);
        r.v[e / row_columns] = fma(x < 0.0f ? 0.0f : x, weight, r.v[e / row_columns]);
      }
      return r;
    }

    /// The lanes that hold a row's columns add up their sums in a tree, and share out the rows among them: of each pair
    /// of lanes one goes on with the lower half of the rows, the other with the upper half. At last as many lanes as a
    /// batch has groups hold the same score, that of row d_row(lane, folded_element()).
    MONOLAYER_DEVICE static float fold(row_sums r) {
      constexpr int lanes = T::columns / row_columns;  // of one row: neighbours
      int mask = lanes / 2;
      MONOLAYER_UNROLL
      for (int n = sums; n > 1; n /= 2, mask /= 2) {
        const bool upper = (T::lane() & mask) != 0;
        MONOLAYER_UNROLL
        for (int i = 0; i < n / 2; ++i) {
          const float keep = upper ? r.v[i + n / 2] : r.v[i], give = upper ? r.v[i] : r.v[i + n / 2];
          r.v[i] = add(keep, bits_to_float(T::shuffle_xor(float_to_bits(give), mask)));
        }
      }
      MONOLAYER_UNROLL
      for (; mask > 0; mask /= 2) r.v[0] = add(r.v[0], bits_to_float(T::shuffle_xor(float_to_bits(r.v[0]), mask)));
      return r.v[0];
    }
    MONOLAYER_DEVICE static int folded_element() {
      return T::columns == 16 ? T::lane() % 16 / 4 : T::lane() % 4 / 2 * 2;
    }
  };
};

}  // namespace monolayer::stages
