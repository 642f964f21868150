// The K largest of n f32 scores, exactly, by one block. Decode's indexer asks for 2048 of up to a few hundred thousand.
//
// Scores are compared by ordered_key(): -0 equals +0, NaN is never picked, as if it were absent. Equal scores go to the
// smallest index. To have no ties at all, a score is taken together with its index: rank() is one 53-bit number, a
// total order. The result is the set of the min(K, scores that are no NaN) largest ranks, in ascending order of the
// indices.
//
// Every step is a sum of integers in LDS, so nothing depends on the order in which waves get there:
//   survivors   the scores with ranks of at least some bound, gathered in LDS in any order; they hold all picks
//   select      finds the bound of the `wanted` largest digit by digit, 2048 bins a digit: a histogram of those that
//   agree in
//               all digits before, and the bin in which the count from above reaches `wanted`
//   order       the picks set bits of a bitmap of indices; counting its bits gives each pick its place
// Up to `Capacity` scores survive as they are. Of more, an evenly spaced sample of `Capacity` scores guesses a bound
// above which about 1.5 K lie: one pass over the scores gathers them. Where the guess was wrong (fewer than K, or more
// than fit; with a capacity below 2 K, for small LDS, there is none), select runs over all scores, a pass a digit,
// until what is left fits. That always happens: ranks differ.
#pragma once

#include "monolayer/device/block.hpp"

namespace monolayer {

/// The candidates that top_k keeps room for: a power of two, twice K or more.
constexpr int top_k_capacity(int k) {
  int n = 128;
  while (n < 2 * k) n *= 2;
  return n;
}

/// Block is a target's block of consumer waves: `target`, threads, thread(), sync().
template <class T, int K, int Capacity = top_k_capacity(K)>
struct top_k {
  static_assert(Capacity >= K && (Capacity & (Capacity - 1)) == 0 && Capacity >= 128,
                "top_k: the capacity is a power of two and at least K");
  static constexpr bool guesses = Capacity >= 2 * K;
  static constexpr int index_bits = 21;
  static constexpr int max_n = 1 << index_bits;

  // LDS, from a multiple of 16
  static constexpr u32 bins = 2048, window = bins * 32;  // the bitmap of `window` indices takes the histogram's place
  static constexpr u32 histogram_bytes = bins / 32 * 36 * 4;
  static constexpr u32 counter = histogram_bytes;  // of the survivors
  static constexpr u32 wave_totals = counter + 16;
  static constexpr u32 keys = wave_totals + 16 * 4;
  static constexpr u32 indices = keys + 4 * u32(Capacity);
  static constexpr u32 picks = indices + 4 * u32(Capacity);
  static constexpr u32 bytes = picks + 4 * u32(K);

  /// load4(i) returns the bits of scores i .. i + 3, i a multiple of 4 below n; those from n on are NaN. Afterwards
  /// pick(base, place) is the index of a pick, places 0 .. count - 1 in ascending order of the indices, for all threads. 0
  /// <= n < max_n. All waves call it; the LDS must be free (a sync() before). False: the block leaves.
  template <class Block, class Load4>
  MONOLAYER_DEVICE static bool run(Block& b, lds_address base, int n, Load4 load4, int& count) {
    // What comes next: all scores survive; a bound from the sample; one from all scores; the picks, from the survivors.
    enum { whole, guess, all, exact };
    int step = whole;
    u64 bound = least_rank;
    u32 total = 0, wanted = 0;
    if (n > Capacity) step = guesses ? guess : all;
    if (step == guess) {
      // Quads, evenly spaced. They lie in the survivors' place; K / n of them are among the K largest.
      constexpr u32 sampled = u32(Capacity) / 4;
      MONOLAYER_NO_UNROLL
      for (u32 q = u32(Block::thread()); q < sampled; q += u32(Block::threads)) {
        const u32 first = u32(u64(q) * (u32(n) / 4) / sampled) * 4;
        const u32x4 v = load4(int(first));
        u32x4 key, index;
        MONOLAYER_UNROLL
        for (u32 j = 0; j < 4; ++j) key.v[j] = ordered_key(bits_to_float(v.v[j])), index.v[j] = first + j;
        T::lds_store16(base + keys + 16 * q, key);
        T::lds_store16(base + indices + 16 * q, index);
      }
      total = u32(Capacity);
    }
    MONOLAYER_NO_UNROLL
    for (;;) {
      if (step != whole) {
        wanted = step == guess                     ? u32(u64(K) * u32(Capacity) / u32(n)) * 3 / 2 + 1
                 : step == exact && total < u32(K) ? total
                                                   : u32(K);
        if (!select(b, base, step == all ? n : 0, load4, total, wanted, step == all ? u32(Capacity) : wanted,
                    step == guess ? 31 : 0, bound))
          return false;
      }
      if (step == exact) break;
      if (!gather(b, base, n, load4, bound, total)) return false;
      step = step == guess && (total < u32(K) || total > u32(Capacity)) ? all : exact;
    }
    return order(b, base, n, total, bound, wanted, count);
  }
  MONOLAYER_DEVICE static u32 pick(lds_address base, int place) { return T::lds_load4(base + picks + 4 * u32(place)); }

 private:
  static constexpr u32 least_number = 0x00800000u;         // the key of -infinity
  static constexpr u64 least_rank = u64(1) << index_bits;  // above every NaN

  MONOLAYER_DEVICE static u64 rank(u32 key, u32 index) { return u64(key) << index_bits | (u32(max_n) - 1 - index); }
  MONOLAYER_DEVICE static u32 bin_at(u32 bin) { return 4 * (bin + bin / 32 * 4); }  // 32 bins, then 16 bytes of padding

  /// The score with this key.
  MONOLAYER_DEVICE static float score_of(u32 key) {
    return bits_to_float(key < 0x80000000u ? 0x80000000u | (0x80000000u - key) : key - 0x80000000u);
  }

  // Scores are read in quads, several of which are on their way together. What happens to a score is written once and
  // done to the first quad's registers, into which the others move up: unrolled, it would be there 16 times.
  static constexpr int quads = 4;
  template <class Block, class Load4>
  MONOLAYER_DEVICE static void load_quads(int first, int n, Load4 load4, u32x4 (&v)[quads]) {
    MONOLAYER_UNROLL
    for (int i = 0; i < quads; ++i) {
      const int at = first + 4 * Block::threads * i;
      v[i] = at < n ? load4(at) : u32x4{{~0u, ~0u, ~0u, ~0u}};
    }
  }
  MONOLAYER_DEVICE static void move_up(u32x4 (&v)[quads]) {
    MONOLAYER_UNROLL
    for (int i = 0; i + 1 < quads; ++i) v[i] = v[i + 1];
  }

  /// f(key, index) of each score that is no NaN. Threads on their own.
  template <class Block, class Load4, class F>
  MONOLAYER_DEVICE static void each_score(const Block&, int n, Load4 load4, F f) {
    MONOLAYER_NO_UNROLL
    for (int first = 4 * Block::thread(); first < n; first += 4 * Block::threads * quads) {
      u32x4 v[quads];
      load_quads<Block>(first, n, load4, v);
      MONOLAYER_NO_UNROLL
      for (int i = 0; i < quads; ++i) {
        MONOLAYER_UNROLL
        for (int j = 0; j < 4; ++j) {
          const u32 key = ordered_key(bits_to_float(v[0].v[j]));
          if (key != 0) f(key, u32(first + 4 * Block::threads * i + j));
        }
        move_up(v);
      }
    }
  }
  /// The same of each of the first `total` survivors.
  template <class Block, class F>
  MONOLAYER_DEVICE static void each_survivor(const Block&, lds_address base, u32 total, F f) {
    MONOLAYER_NO_UNROLL
    for (u32 i = u32(Block::thread()); i < total; i += u32(Block::threads)) {
      const u32 key = T::lds_load4(base + keys + 4 * i);
      if (key != 0) f(key, T::lds_load4(base + indices + 4 * i));
    }
  }

  /// Gathers the scores of at least `bound`. `total` is how many there are: those beyond `Capacity` are not kept.
  template <class Block, class Load4>
  MONOLAYER_DEVICE static bool gather(Block& b, lds_address base, int n, Load4 load4, u64 bound, u32& total) {
    if (Block::thread() == 0) T::lds_store4(base + counter, 0);
    if (!b.sync()) return false;
    // rank >= bound, as a comparison of scores: this is the one pass over all of them.
    const u32 least_key = u32(bound >> index_bits);
    const float least = score_of(least_key < least_number ? least_number : least_key);
    const int last_tie = max_n - 1 - int(u32(bound) & u32(max_n - 1));
    const auto survives = [&](u32 bits, int index) {
      const float score = bits_to_float(bits);
      return score > least || (score == least && index <= last_tie);
    };
    MONOLAYER_NO_UNROLL
    for (int first = 4 * Block::thread(); first < n; first += 4 * Block::threads * quads) {
      u32x4 v[quads];
      load_quads<Block>(first, n, load4, v);
      u32 own = 0;
      MONOLAYER_UNROLL
      for (int i = 0; i < quads; ++i) MONOLAYER_UNROLL
      for (int j = 0; j < 4; ++j) own += survives(v[i].v[j], first + 4 * Block::threads * i + j) ? 1 : 0;
      if (own == 0) continue;
      u32 place = T::lds_fetch_add(base + counter, own);
      MONOLAYER_NO_UNROLL
      for (int i = 0; i < quads; ++i) {
        MONOLAYER_UNROLL
        for (int j = 0; j < 4; ++j) {
          const int index = first + 4 * Block::threads * i + j;
          if (!survives(v[0].v[j], index)) continue;
          if (place < u32(Capacity)) {
            T::lds_store4(base + keys + 4 * place, ordered_key(bits_to_float(v[0].v[j])));
            T::lds_store4(base + indices + 4 * place, u32(index));
          }
          ++place;
        }
        move_up(v);
      }
    }
    if (!b.sync()) return false;
    total = u32(T::opaque(int(T::lds_load4(base + counter))));
    return true;
  }

  /// The bin in which the count from the highest bin down reaches `wanted`. All lanes of each wave.
  struct crossing {
    u32 bin, above, inside;  // counts: of the bins above, of the bin itself
  };
  /// Sum of `own` over the lanes above this one; over all lanes.
  MONOLAYER_DEVICE static u32 sum_above(u32 own, u32& all) {
    u32 above = 0;
    all = own;
    MONOLAYER_UNROLL
    for (int mask = 1; mask < T::wave_size; mask *= 2) {
      const u32 other = T::shuffle_xor(all, mask);
      if ((T::lane() & mask) == 0) above += other;
      all += other;
    }
    return above;
  }
  /// `wanted` becomes the sum of all bins where that is less.
  MONOLAYER_DEVICE static crossing find(lds_address base, u32& wanted) {
    constexpr u32 per_lane = bins / T::wave_size;  // 32 or 64
    u32 own = 0, all;
    MONOLAYER_UNROLL
    for (u32 i = 0; i < per_lane; i += 4) {
      const u32x4 v = T::lds_load16(base + bin_at(u32(T::lane()) * per_lane + i));
      own += v.v[0] + v.v[1] + v.v[2] + v.v[3];
    }
    u32 above = sum_above(own, all);
    if (wanted > all) wanted = all;
    // One lane's range of bins holds the crossing. Its number and what lies above it, in one word: counts are below
    // max_n.
    const u32 range = T::wave_max(above < wanted && wanted <= above + own ? u32(T::lane()) << index_bits | above : 0u);
    const u32 first = (range >> index_bits) * per_lane;
    // The same inside that range: one or two bins a lane.
    constexpr u32 share = per_lane > T::wave_size ? per_lane / T::wave_size : 1;
    u32 in_bin[share];
    own = 0;
    MONOLAYER_UNROLL
    for (u32 i = 0; i < share; ++i) {
      const u32 bin = u32(T::lane()) * share + i;
      own += in_bin[i] = bin < per_lane ? T::lds_load4(base + bin_at(first + bin)) : 0;
    }
    above = range % u32(max_n) + sum_above(own, all);
    u32 found = 0;
    MONOLAYER_UNROLL
    for (u32 i = share; i-- > 0; above += in_bin[i])
      if (above < wanted && wanted <= above + in_bin[i]) found = (u32(T::lane()) * share + i) << index_bits | above;
    found = T::wave_max(found);
    const u32 bin = first + (found >> index_bits);
    return {bin, found % u32(max_n), T::lds_load4(base + bin_at(bin))};
  }

  /// `bound`: the least rank of the `wanted` largest among the survivors, or among the first n scores where n != 0; or
  /// a lower one, above which still at most `room` lie; or one that is right in the digits down to `last_shift`.
  template <class Block, class Load4>
  MONOLAYER_DEVICE static bool select(Block& b, lds_address base, int n, Load4 load4, u32 total, u32 wanted, u32 room,
                                      int last_shift, u64& bound) {
    u64 prefix = 0;  // of the ranks still in question
    u32 above = 0;   // ranks above those
    MONOLAYER_NO_UNROLL
    for (int shift = 53; shift > last_shift;) {
      const int width = shift == 31 || shift == 10 ? 10 : 11,
                next = shift - width;              // 11 11 10, then 11 10 of the index
      if (shift != 53 && !b.sync()) return false;  // the bins before have been read; at first they are free
      for (u32 at = 16 * u32(Block::thread()); at < histogram_bytes; at += 16 * u32(Block::threads))
        T::lds_store16(base + at, zeros<T>());
      if (!b.sync()) return false;
      const auto add = [&](u32 key, u32 index) {
        const u64 r = rank(key, index);
        if (r >> shift == prefix) T::lds_fetch_add(base + bin_at(u32(r >> next) & ((1u << width) - 1)), 1);
      };
      if (n != 0)
        each_score(b, n, load4, add);
      else
        each_survivor(b, base, total, add);
      if (!b.sync()) return false;
      u32 rest = wanted - above;
      const crossing c = find(base, rest);
      wanted = above + rest;
      prefix = prefix << width | c.bin;
      shift = next;
      above += c.above;
      bound = prefix << shift;
      if (above + c.inside <= room || above + c.inside == wanted) break;
    }
    if (bound < least_rank) bound = least_rank;
    return true;
  }

  /// Puts the `wanted` survivors of at least `bound` in order.
  template <class Block>
  MONOLAYER_DEVICE static bool order(Block& b, lds_address base, int n, u32 total, u64 bound, u32 wanted, int& count) {
    u32 done = 0;
    MONOLAYER_NO_UNROLL
    for (u32 first = 0; first < u32(n) && done < wanted; first += window) {
      const u32 left = u32(n) - first, words = left < window ? (left + 31) / 32 : bins;
      if (!b.sync()) return false;
      for (u32 at = 16 * u32(Block::thread()); at < 4 * words; at += 16 * u32(Block::threads))
        T::lds_store16(base + at, zeros<T>());
      if (!b.sync()) return false;
      each_survivor(b, base, total, [&](u32 key, u32 index) {
        if (rank(key, index) >= bound && index - first < window)
          T::lds_fetch_add(base + 4 * ((index - first) / 32), 1u << (index % 32));
      });
      if (!b.sync()) return false;
      // A thread owns neighbouring words.
      const u32 share = (words + u32(Block::threads) - 1) / u32(Block::threads);
      const u32 begin = u32(Block::thread()) * share, end = begin + share < words ? begin + share : words;
      u32 own = 0, all;
      for (u32 word = begin; word < end; ++word) own += u32(popcount(T::lds_load4(base + 4 * word)));
      const u32 above = sum_above(own, all);
      if (T::lane() == 0) T::lds_store4(base + wave_totals + 4 * u32(T::wave()), all);
      if (!b.sync()) return false;
      u32 place = done + all - above - own;
      for (int w = 0; w < T::consumer_waves; ++w) {
        const u32 of_wave = T::lds_load4(base + wave_totals + 4 * u32(w));
        if (w < T::wave()) place += of_wave;
        done += of_wave;
      }
      for (u32 word = begin; word < end; ++word)
        for (u32 bits = T::lds_load4(base + 4 * word); bits != 0; bits &= bits - 1)
          T::lds_store4(base + picks + 4 * place++, first + 32 * word + u32(popcount((bits & -bits) - 1)));
    }
    count = int(done);
    return b.sync();
  }
};

}  // namespace monolayer
