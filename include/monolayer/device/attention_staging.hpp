// What an attention tile brings into LDS: its queries, where its tokens' rows lie, and the rows, a step at a time.
#pragma once

#include "monolayer/device/attention_areas.hpp"
#include "monolayer/device/token_list.hpp"

namespace monolayer {

inline constexpr u32 minus_infinity = 0xff800000u;

/// C and the slots are those of stages::attention; `KvCache` indexes layer_entry::data. No barrier is inside: what one
/// call leaves in LDS is read after the caller's.
template <class C, int Q, int Ql, int Own, int KvCache>
struct attention_staging {
  using format = typename C::kv_cache;
  static constexpr int heads = C::heads_at_once, latent = format::latent, rope = format::rope;

  /// Q[head] = [ql | q_pe] of the group's heads, bf16 times 2^activation_shift.
  template <class Block>
  MONOLAYER_DEVICE static void stage_queries(Block& b, int row, int group) {
    using T = typename Block::target;
    using areas = attention_areas<C, T>;
    const auto q = slot_view<T, typename Block::program, Q>::current(b);
    const auto ql = slot_view<T, typename Block::program, Ql>::current(b);
    constexpr int pieces = areas::row_columns / 8, total = heads * pieces;
    constexpr int each = (total + Block::threads - 1) / Block::threads, in_flight = each < 4 ? each : 4;
    MONOLAYER_NO_UNROLL
    for (int first = Block::thread(); first < total; first += in_flight * Block::threads) {
      u32x4 v[in_flight];
      MONOLAYER_UNROLL
      for (int i = 0; i < in_flight; ++i) {
        const int item = first + i * Block::threads, head = group * heads + item / pieces, k = item % pieces * 8;
        const u8* at = k < latent ? ql.at(row, head * latent + k)
                                  : q.at(row, head * (C::nope + rope) + C::nope + k - latent);
        if (item < total) v[i] = T::slot_load16(at);
      }
      MONOLAYER_UNROLL
      for (int i = 0; i < in_flight; ++i) {
        const int item = first + i * Block::threads;
        if (item < total)
          T::lds_store16(Block::layout::rows + areas::queries + u32(item / pieces) * areas::row_stride +
                             u32(item % pieces) * 16u,
                         shifted<T>(v[i]));
      }
    }
  }

  /// Finds the split's tokens, a thread every (threads)-th, of which `entry` is the list's first; places up to a whole step
  /// are filled. The softmax begins.
  template <class Block>
  MONOLAYER_DEVICE static void find_tokens(Block& b, const token_list& list, int begin, int count, bool report,
                                           u32 entry) {
    using T = typename Block::target;
    using areas = attention_areas<C, T>;
    const u8* cache = layer_data<T>(b.entry(), KvCache);
    if (Block::thread() < 32)
      T::lds_store4(Block::layout::rows + areas::maxima + 4u * u32(Block::thread()),
                    Block::thread() < 16 ? minus_infinity : 0);
    const auto own = own_tokens::of(b, Block::layout::rows + areas::scores);
    MONOLAYER_NO_UNROLL
    for (int i = Block::thread(); i < (count + areas::step - 1) / areas::step * areas::step; i += Block::threads) {
      token_place place = token_place::none();
      if (i < count) {
        if (i >= Block::threads) entry = list.template entry<T>(begin + i);
        place = own.template find<Own>(b, entry, cache);
        if (report && place.absent()) T::fetch_add(&b.params->state->bad_entries, 1);
      }
      const lds_address at = Block::layout::rows + areas::places + 8u * u32(i);
      T::lds_store4(at, place.low);
      T::lds_store4(at + 4, place.high);
    }
  }
  template <class Block>
  MONOLAYER_DEVICE static token_place place(int i) {
    using T = typename Block::target;
    const u32x2 v = T::lds_load8(Block::layout::rows + attention_areas<C, T>::places + 8u * u32(i));
    return {v.v[0], v.v[1]};
  }

  template <class Block>
  MONOLAYER_DEVICE static void put_word(int slot, int word, u32x4 v) {
    using T = typename Block::target;
    using areas = attention_areas<C, T>;
    const lds_address to = Block::layout::rows + areas::rows + u32(slot) * areas::row_stride +
                           u32(word) * (32u / format::element_bytes);
    widen_kv_word<T, format>(v, [&](int n, u32x4 wide) { T::lds_store16(to + 16u * u32(n), wide); });
  }

  /// Brings the step's rows into LDS as bf16; rows without a token are zero, so that nothing that once lay there can
  /// meet a weight of 0 as an infinity or a NaN.
  template <class Block>
  MONOLAYER_DEVICE static void gather(Block&, int first) {
    using T = typename Block::target;
    using areas = attention_areas<C, T>;
    constexpr int words = int(format::bytes / 16), total = areas::step * words;
    constexpr int each = (total + Block::threads - 1) / Block::threads, most = T::wave_size == 64 ? 12 : 6;
    constexpr int in_flight = each < most ? each : most;  // as many as there are registers for
    MONOLAYER_NO_UNROLL
    for (int base = Block::thread(); base < total; base += in_flight * Block::threads) {
      u32x4 v[in_flight];
      MONOLAYER_UNROLL
      for (int i = 0; i < in_flight; ++i) {
        const int item = base + i * Block::threads;
        v[i] = u32x4{};
        if (!always(i, in_flight, each, total, Block::threads) && item >= total) continue;
        const token_place p = place<Block>(first + item / words);
        if (p.cached()) v[i] = T::load16(p.address() + item % words * 16);
      }
      MONOLAYER_UNROLL
      for (int i = 0; i < in_flight; ++i) {
        const int item = base + i * Block::threads;
        if (always(i, in_flight, each, total, Block::threads) || item < total)
          put_word<Block>(item / words, item % words, v[i]);
      }
    }
    // Rows of slot `Own` are few: the row's own token, where the split has it. The thread that put a word's zeros puts
    // the word.
    MONOLAYER_NO_UNROLL
    for (int slot0 = 0; slot0 < areas::step; slot0 += T::wave_size) {
      const int slot = slot0 + T::lane();
      u64 own = T::ballot(slot < areas::step && place<Block>(first + slot).own());
      MONOLAYER_NO_UNROLL
      for (int i = slot0; own != 0; ++i, own >>= 1) {
        const int word = (Block::thread() + each * Block::threads - i * words) % Block::threads;
        if ((own & 1) != 0 && word < words)
          put_word<Block>(i, word, T::slot_load16(place<Block>(first + i).address() + word * 16));
      }
    }
  }
  /// Whether item thread + i * threads is below `total` for every thread.
  MONOLAYER_HOST_DEVICE static constexpr bool always(int i, int in_flight, int each, int total, int threads) {
    return in_flight == each && (i + 1) * threads <= total;
  }
};

}  // namespace monolayer
