// The K largest of n f32 scores, exactly, by one block. Decode's indexer asks for 2048 of up to a few hundred thousand.
//
// Scores are compared by ordered_key(): -0 equals +0, NaN is never picked, as if it were absent. Equal scores go to the
// smallest index. To have no ties at all, a score is taken together with its index: rank() is one 53-bit number, a
// total order. The result is the set of the min(K, scores that are no NaN) largest ranks, in ascending order of the
// indices.
//
// Every step is a sum of integers in LDS, so nothing depends on the order in which waves get there:
//   survivors   the scores with ranks of at least some bound, gathered in LDS in any order; they hold all picks
//   select      finds the bound of the `wanted` largest: a histogram of 2048 bins over the ranks from the least to the
//               largest, the bin in which the count from above reaches `wanted`, the same inside that bin; a bin with no
//               more ranks than a wave has lanes is sorted by counting instead
//   order       the picks set bits of a bitmap of indices; counting its bits gives each pick its place
// Up to `Capacity` scores survive as they are. Of more, an evenly spaced sample guesses a bound above which about 1.5 K
// lie: one pass over the scores gathers them. Where the guess was wrong (fewer than K, or more than fit; with a capacity
// below 2 K, for small LDS, there is none), select runs over all scores, a pass a histogram, until what is left fits.
// That always happens: ranks differ.
#pragma once

#include "monolayer/device/block.hpp"

namespace monolayer {

/// The candidates that top_k keeps room for: a power of two, four times K or more.
constexpr int top_k_capacity(int k) {
  int n = 128;
  while (n < 4 * k) n *= 2;
  return n;
}

/// Block is a target's block of consumer waves: `target`, threads, thread(), sync().
template <class T, int K, int Capacity = top_k_capacity(K)>
struct top_k {
  static_assert(Capacity >= K && (Capacity & (Capacity - 1)) == 0 && Capacity >= 128,
                "top_k: the capacity is a power of two and at least K");
  static constexpr bool guesses = Capacity >= 2 * K;
  static constexpr int sample = Capacity >= 4 * K ? Capacity / 2 : Capacity;
  static constexpr int index_bits = 21;
  static constexpr int max_n = 1 << index_bits;

  // LDS, from a multiple of 16
  static constexpr int bin_bits = 11;
  static constexpr u32 bins = 1u << bin_bits, window = bins * 32;  // the bitmap of `window` indices takes the histogram's place
  static constexpr u32 histogram_bytes = bins / 32 * 36 * 4;
  static constexpr u32 counter = histogram_bytes;  // of the survivors
  static constexpr u32 listed = counter + 4;       // how many ranks are in `list`
  static constexpr u32 crossed = counter + 16;     // what find() found, and `wanted`
  static constexpr u32 wave_totals = crossed + 16;
  static constexpr u32 ranges = wave_totals + 16 * 4;  // the least and the largest key that a wave left there
  static constexpr u32 list = ranges + 16 * 8;
  static constexpr u32 keys = list + 8 * u32(T::wave_size);
  static constexpr u32 indices = keys + 4 * u32(Capacity);
  static constexpr u32 picks = indices + 4 * u32(Capacity);
  static constexpr u32 bytes = picks + 4 * u32(K);

  /// load4(i) returns the bits of scores i .. i + 3, i a multiple of 4 below n; those from n on are NaN. Afterwards
  /// pick(base, place) is the index of a pick, places 0 .. count - 1 in ascending order of the indices, for all threads. 0
  /// <= n < max_n. All waves call it; the LDS must be free (a sync() before). False: the block leaves.
  template <class Block, class Load4>
  MONOLAYER_DEVICE static bool run(Block& b, lds_address base, int n, Load4 load4, int& count) {
    // What comes next: a bound from the sample; one from all scores; the picks, from the survivors.
    enum { guess, all, exact };
    int step = n <= Capacity ? exact : guesses ? guess : all;
    u64 bound = least_rank;
    u32 total = 0, wanted = 0;
    // K / n of the sample are among the K largest.
    if (step == exact) total = take<Block>(base, u32(n + 3) / 4, sample / 4, load4);
    if (step == guess) total = take<Block>(base, sample / 4, u32(n) / 4, load4);
    MONOLAYER_NO_UNROLL
    for (;;) {
      wanted = step == guess                     ? u32(u64(K) * u32(sample) / u32(n)) * 3 / 2 + 1
               : step == exact && total < u32(K) ? total
                                                 : u32(K);
      if (!select(b, base, step == all ? n : 0, load4, total, wanted,
                  step == all ? u32(Capacity) : step == guess ? wanted * 5 / 4 : wanted, bound))
        return false;
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

  /// The keys of a thread's scores; of none at first.
  struct key_range {
    u32 least = ~0u, largest = 0;
    MONOLAYER_DEVICE void add(u32 key) {
      least = key < least ? key : least;
      largest = key > largest ? key : largest;
    }
  };
  /// The range of this wave's keys, to LDS. All lanes.
  MONOLAYER_DEVICE static void leave_range(lds_address base, const key_range& own) {
    const u32 least = T::wave_min(own.least), largest = T::wave_max(own.largest);
    const lds_address to = base + ranges + 8 * u32(T::wave());
    if (T::lane() == 0) T::lds_store4(to, least), T::lds_store4(to + 4, largest);
  }
  /// That of all waves' keys.
  MONOLAYER_DEVICE static key_range range_of_block(lds_address base) {
    u32x2 own{{~0u, 0u}};
    if (T::lane() < T::consumer_waves) own = T::lds_load8(base + ranges + 8 * u32(T::lane()));
    return {T::wave_min(own.v[0]), T::wave_max(own.v[1])};
  }

  /// The score with this key.
  MONOLAYER_DEVICE static float score_of(u32 key) {
    return bits_to_float(key < 0x80000000u ? 0x80000000u | (0x80000000u - key) : key - 0x80000000u);
  }

  // Scores are read in quads, several of which are on their way together. Where few instructions are worth more than a
  // short pass, what happens to a score is done to the first quad's registers, into which the others move up: unrolled, it
  // would be there 16 times, as it is in gather().
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

  /// Makes survivors of quads 0, spacing / (sample / 4), ..., `count` of them. Returns how many scores these are.
  template <class Block, class Load4>
  MONOLAYER_DEVICE static u32 take(lds_address base, u32 count, u32 spacing, Load4 load4) {
    const auto score_at = [&](u32 q) { return u32(u64(q) * spacing / u32(sample / 4)) * 4; };
    key_range range;
    MONOLAYER_NO_UNROLL
    for (u32 from = u32(Block::thread()); from < count; from += u32(Block::threads * quads)) {
      u32x4 v[quads];
      MONOLAYER_UNROLL
      for (u32 i = 0; i < u32(quads); ++i) {
        const u32 q = from + i * u32(Block::threads);
        v[i] = q < count ? load4(int(score_at(q))) : u32x4{};
      }
      MONOLAYER_NO_UNROLL
      for (u32 i = 0; i < u32(quads); ++i) {
        const u32 q = from + i * u32(Block::threads), first = score_at(q);
        if (q >= count) break;
        u32x4 key, index;
        MONOLAYER_UNROLL
        for (u32 j = 0; j < 4; ++j) {
          key.v[j] = ordered_key(bits_to_float(v[0].v[j])), index.v[j] = first + j;
          if (key.v[j] != 0) range.add(key.v[j]);
        }
        T::lds_store16(base + keys + 16 * q, key);
        T::lds_store16(base + indices + 16 * q, index);
        move_up(v);
      }
    }
    leave_range(base, range);
    return 4 * count;
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
  /// The same of each of the first `total` survivors; up to the next multiple of 4 follow keys of 0.
  template <class Block, class F>
  MONOLAYER_DEVICE static void each_survivor(const Block&, lds_address base, u32 total, F f) {
    MONOLAYER_NO_UNROLL
    for (u32 i = 4 * u32(Block::thread()); i < total; i += 4 * u32(Block::threads)) {
      const u32x4 key = T::lds_load16(base + keys + 4 * i), index = T::lds_load16(base + indices + 4 * i);
      MONOLAYER_UNROLL
      for (int j = 0; j < 4; ++j)
        if (key.v[j] != 0) f(key.v[j], index.v[j]);
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
    key_range range;
    const auto survives = [&](u32 bits, int index) {
      const float score = bits_to_float(bits);
      return score > least || (score == least && index <= last_tie);
    };
    constexpr int step = 4 * Block::threads * quads;
    MONOLAYER_NO_UNROLL
    for (int first = 4 * Block::thread(); first - 4 * T::lane() < n; first += step) {
      u32x4 v[quads];
      load_quads<Block>(first, n, load4, v);
      u32 mask = 0, of_wave;
      MONOLAYER_UNROLL
      for (int i = 0; i < 4 * quads; ++i)
        mask |= survives(v[i / 4].v[i % 4], first + 4 * Block::threads * (i / 4) + i % 4) ? 1u << i : 0u;
      const u32 above = sum_above(u32(popcount(mask)), of_wave);
      if (of_wave == 0) continue;
      u32 place = T::wave_max(T::lane() == 0 ? T::lds_fetch_add(base + counter, of_wave) : 0u) + above;
      MONOLAYER_UNROLL
      for (int i = 0; i < 4 * quads; ++i) {
        if ((mask >> i & 1) == 0) continue;
        const u32 key = ordered_key(bits_to_float(v[i / 4].v[i % 4]));
        range.add(key);
        if (place < u32(Capacity)) {
          T::lds_store4(base + keys + 4 * place, key);
          T::lds_store4(base + indices + 4 * place, u32(first + 4 * Block::threads * (i / 4) + i % 4));
        }
        ++place;
      }
    }
    leave_range(base, range);
    if (!b.sync()) return false;
    total = u32(T::opaque(int(T::lds_load4(base + counter))));
    const u32 after = total + u32(Block::thread());
    if (after < align_up(total, 4) && after < u32(Capacity))
      T::lds_store4(base + keys + 4 * after, 0), T::lds_store4(base + indices + 4 * after, 0);
    return true;
  }

  /// The bin in which the count from the highest bin down reaches `wanted`. All lanes of a wave.
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
  /// a lower one, above which still at most `room` lie.
  template <class Block, class Load4>
  MONOLAYER_DEVICE static bool select(Block& b, lds_address base, int n, Load4 load4, u32 total, u32 wanted, u32 room,
                                      u64& bound) {
    // In question are ranks from `bound` up to below bound + 2^shift; `above` lie above them.
    int shift = 32 + index_bits;
    u32 above = 0;
    bool sorted = false;
    bound = 0;
    const auto from_bound = [&](u32 key, u32 index) { return rank(key, index) - bound; };
    MONOLAYER_NO_UNROLL
    for (bool first = true;; first = false) {
      for (u32 at = 16 * u32(Block::thread()); at < histogram_bytes; at += 16 * u32(Block::threads))
        T::lds_store16(base + at, zeros<T>());
      if (Block::thread() == 0) T::lds_store4(base + listed, 0);
      if (!b.sync()) return false;
      if (first && n == 0) {
        const key_range range = range_of_block(base);
        if (range.least <= range.largest) {
          bound = u64(range.least) << index_bits;
          shift = index_bits + bit_width(range.largest - range.least);
        }
      }
      const int next = shift < bin_bits ? 0 : shift - bin_bits;
      const auto count = [&](u32 key, u32 index) {
        const u64 r = from_bound(key, index);
        if (r >> shift == 0) T::lds_fetch_add(base + bin_at(u32(r >> next)), 1);
      };
      if (n != 0)
        each_score(b, n, load4, count);
      else
        each_survivor(b, base, total, count);
      if (!b.sync()) return false;
      // One wave looks: all of them would read every bin, which takes longer than to hand on what it finds.
      if (T::wave() == 0) {
        u32 rest = wanted - above;
        const crossing c = find(base, rest);
        if (T::lane() == 0) T::lds_store16(base + crossed, {{c.bin, c.above, c.inside, rest}});
      }
      if (!b.sync()) return false;
      u32x4 c = T::lds_load16(base + crossed);
      for (u32& word : c.v) word = u32(T::opaque(int(word)));
      const u32 inside = c.v[2];
      wanted = above + c.v[3];
      bound += u64(c.v[0]) << next;
      shift = next;
      above += c.v[1];
      if (above + inside <= room || above + inside == wanted) break;
      if (n == 0 && inside <= u32(T::wave_size)) {
        sorted = true;
        break;
      }
    }
    if (sorted) {
      each_survivor(b, base, total, [&](u32 key, u32 index) {
        if (from_bound(key, index) >> shift != 0) return;
        const lds_address to = base + list + 8 * T::lds_fetch_add(base + listed, 1);
        const u64 r = rank(key, index);
        T::lds_store4(to, u32(r)), T::lds_store4(to + 4, u32(r >> 32));
      });
      if (!b.sync()) return false;
      // A lane a rank; the one with as many above it as are wanted of the rest, but one, is the least of those.
      const auto at = [&](u32 i) {
        const u32x2 words = T::lds_load8(base + list + 8 * i);
        return u64(words.v[1]) << 32 | words.v[0];
      };
      const u32 inside = T::lds_load4(base + listed);
      const u64 own = u32(T::lane()) < inside ? at(u32(T::lane())) : 0;
      u32 higher = 0;
      MONOLAYER_NO_UNROLL
      for (u32 i = 0; i < inside; ++i) higher += at(i) > own ? 1 : 0;
      const bool least = u32(T::lane()) < inside && higher + 1 == wanted - above;
      bound = u64(T::wave_max(least ? u32(own >> 32) : 0u)) << 32 | T::wave_max(least ? u32(own) : 0u);
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
      if (first != 0 && !b.sync()) return false;
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
