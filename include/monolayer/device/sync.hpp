// Waiting for other blocks and arriving for them: the only place besides arch/ where flags are touched. All calls are
// made by the consumer waves, wave-uniformly; a stage can reach none of them.
#pragma once

#include "monolayer/device/block.hpp"

namespace monolayer {

/// What a failed wait was for.
struct awaited {
  failure why;
  u32 slot, part, expected, seen;
};

/// Epoch of the newest completed layer before the launch, which the last block to leave moves on.
template <class T>
MONOLAYER_DEVICE u64 newest_epoch(const launch_params& p) {
  const u32x2 words = T::load8(&p.state->epoch);
  return u64(words.v[1]) << 32 | words.v[0];
}

/// What a block knows as it leaves, and where it was, should it have given up. Its consumer waves agree on it.
struct position {
  const launch_params* params;
  u32 block, blocks;
  u32 layer, stage, tile;
};

/// Copies the first wait of this block that ran into its deadline to the rank's failure record, unless another block
/// has claimed that. One lane, as the block leaves.
template <class T, class Program>
MONOLAYER_DEVICE void record_failure(const position& at) {
  const launch_params& p = *at.params;
  MONOLAYER_NO_UNROLL
  for (int wave = 0; wave <= T::consumer_waves; ++wave) {
    const u32x4 w = T::lds_load16(lds_layout<T, Program>::failures + 32u * u32(wave));
    if (w.v[0] == u32(failure::none)) continue;
    failure_record& r = p.state->failed;
    const u64 epoch = epoch_after(newest_epoch<T>(p), at.layer + 1);
    if (T::compare_exchange(&r.claimed, 0, 1) != 0) return;
    T::arrive_system(&r.rank, u32(p.rank));
    T::arrive_system(&r.block, at.block);
    T::arrive_system(&r.layer, at.layer);
    T::arrive_system(&r.stage, at.stage);
    T::arrive_system(&r.tile, at.tile);
    T::arrive_system(&r.slot, w.v[1] & 0xffffu);
    T::arrive_system(&r.part, w.v[1] >> 16);
    T::arrive_system(&r.expected, w.v[2]);
    T::arrive_system(&r.seen, w.v[3]);
    T::arrive_system(&r.epoch_low, u32(epoch));
    T::arrive_system(&r.epoch_high, u32(epoch >> 32));
    T::drain_stores();
    T::arrive_system(&r.word, w.v[0]);
    return;
  }
}

/// Tells the peers of this rank's own failure; blocks call it as they leave, any number of times.
template <class T, class Program>
MONOLAYER_DEVICE void tell_peers(const launch_params& p) {
  const u32 word = T::poll4(&p.state->failed.word);
  if (word == u32(failure::none) || word == u32(failure::peer_failed)) return;
  for (int peer = 0; peer < Program::info.ranks; ++peer) {
    failure_record& other = p.peer_state[peer]->failed;
    if (peer == p.rank || T::compare_exchange(&other.claimed, 0, 1) != 0) continue;
    T::arrive_system(&other.rank, u32(p.rank));
    T::drain_stores();
    T::arrive_system(&other.word, u32(failure::peer_failed));
  }
}

/// Ends a wait that gave up: notes it if this wait's own deadline passed, and makes the block leave. Lanes of a wave may
/// note different words of the same wait; one of them stays.
template <class Block>
MONOLAYER_DEVICE void fail(Block& b, const watch<typename Block::target>& w, const awaited& what) {
  using T = typename Block::target;
  if (w.timed_out)
    T::lds_store16(Block::layout::failures + 32u * u32(T::wave()),
                   {{u32(what.why), what.slot | what.part << 16, what.expected, what.seen}});
  b.abort();
}

namespace detail {

/// One lane waits until the counter has reached `target` (counts wrap; the difference is what decides).
template <class Block>
MONOLAYER_DEVICE void wait_counter(Block& b, const void* counter, u32 target, const awaited& what) {
  using T = typename Block::target;
  auto w = b.wait_for_block();
  u32 seen;
  while (i32((seen = T::poll4(counter)) - target) < 0) {
    if (w.give_up()) {
      awaited a = what;
      a.expected = target, a.seen = seen;
      fail(b, w, a);
      return;
    }
  }
}

/// One wave waits until all words of `count` parts equal `tag`: four words a lane and step, whatever part they are of.
template <class T, class Block>
MONOLAYER_DEVICE void wait_words(Block& b, const slot_arrivals& s, u32 use, u32 first, u32 count, u32 tag) {
  const u32 of_part = (s.units + 3) / 4, total = count * of_part;
  auto w = b.wait_for_block();
  MONOLAYER_NO_UNROLL
  for (u32 base = 0; base < total; base += u32(T::wave_size)) {
    const u32 at = base + u32(T::lane());
    const u32 part = first + at / of_part, unit = at % of_part * 4;
    for (;;) {
      int missing = -1;
      u32 seen = tag;
      if (at < total) {
        const u32x4 v = T::poll16(b.params->arrivals + s.template of_part<T>(part, use) + u64(unit) * 4);
        for (int i = 3; i >= 0; --i)
          if (unit + u32(i) < s.units && v.v[i] != tag) missing = i, seen = v.v[i];
      }
      if (T::ballot(missing >= 0) == 0) break;
      const bool stop = w.give_up();
      if (T::ballot(stop) != 0) {
        w.timed_out = T::ballot(w.timed_out) != 0;
        if (missing >= 0)
          fail(b, w, {failure::slot_wait, s.slot, part, tag, seen});
        else
          b.abort();
        return;
      }
    }
  }
}

}  // namespace detail

/// The first consumer wave waits for what tile `tile` of a stage reads: the one part of `own` reads, and all parts of
/// the others at the stage's first wait, unless the block has waited for them in this layer. A read is of this layer's use of
/// a slot or of the newest earlier one; an earlier use that was not in this launch is complete, since launches of a
/// stream follow one another. The other waves learn of it at the block's next sync().
template <class Block>
MONOLAYER_DEVICE void wait_reads(Block& b, const stage_row& s, bool first_wait, int tile) {
  using T = typename Block::target;
  if (T::wave() != 0) return;
  const u8* at = nullptr;  // a lane a counter: all are asked for at once
  u32 target = 0, slot = 0, part = 0;
  int used = 0;
  const auto wait_for_lanes = [&] {
    if (at != nullptr) detail::wait_counter(b, at, target, {failure::slot_wait, slot, part, 0, 0});
    at = nullptr;
    used = 0;
  };
  MONOLAYER_NO_UNROLL
  for (int i = 0; i < s.read_count; ++i) {
    const read_row& r = s.reads[i];
    const lds_address known = Block::layout::known + (r.earlier != 0 ? 4u : 0u);
    if (r.per_part == 0) {
      if (!first_wait || (T::lds_load4(known) >> r.from.slot & 1u) != 0) continue;
      T::wave_sync();
      if (T::lane() == 0) T::lds_store4(known, T::lds_load4(known) | 1u << r.from.slot);
      T::wave_sync();
    }
    const slot_clock c = Block::clock(int(r.from.slot));
    if (r.earlier != 0 && c.in_span == 0) continue;
    const u32 use = r.earlier != 0 ? c.uses - 1 : c.uses;
    const u32 first = r.per_part != 0 ? u32(tile / r.per_part) : 0u, count = r.per_part != 0 ? 1u : r.from.parts;
    if constexpr (T::arrivals == arrival_kind::counter) {
      MONOLAYER_NO_UNROLL
      for (u32 done = 0; done < count;) {
        const u32 mine = done + u32(T::lane() - used);
        if (T::lane() >= used && mine < count) {
          slot = r.from.slot, part = first + mine;
          at = b.params->arrivals + r.from.template of_part<T>(part, use);
          target = (use + 1) * r.from.units;
        }
        const int free = T::wave_size - used;
        if (count - done < u32(free)) {
          used += int(count - done);
          break;
        }
        done += u32(free);
        wait_for_lanes();
      }
    } else {
      detail::wait_words<T>(b, r.from, use, first, count, r.earlier != 0 ? c.tag : b.tag());
    }
  }
  wait_for_lanes();
}

/// Arrives with units [unit, unit + count) at a part of this layer's use of a slot. Block::arriving_wave calls it,
/// all lanes, after a sync() that follows every storing wave's drain_stores().
template <class Block>
MONOLAYER_DEVICE void arrive(Block& b, const slot_arrivals& s, int part, int unit, int count) {
  using T = typename Block::target;
  if constexpr (T::arrivals == arrival_kind::counter) {
    if (T::lane() == 0 && count != 0)
      T::arrive(b.params->arrivals + s.template of_part<T>(u32(part), 0), u32(count));
  } else {
    u8* at = b.params->arrivals + s.template of_part<T>(u32(part), Block::clock(int(s.slot)).uses);
    MONOLAYER_NO_UNROLL
    for (int i = T::lane(); i < count; i += T::wave_size) T::arrive(at + u64(unit + i) * 4, b.tag());
  }
}

/// An address in two parts: `base` is the same in all lanes.
struct based_address {
  const u8* base;
  u32 offset;
};

namespace detail {

template <class T>
MONOLAYER_DEVICE u32x4 tagged_pair(const u8* at) {
  return T::tagged_load2(at);
}
template <class T>
MONOLAYER_DEVICE u32x4 tagged_pair(const based_address& at) {
  if constexpr (requires { T::tagged_load2(at.base, at.offset); })
    return T::tagged_load2(at.base, at.offset);
  else
    return T::tagged_load2(at.base + at.offset);
}

}  // namespace detail

/// Polls `N` pairs of neighbouring tagged words, all asked for at once, until every word carries `tag`: v[i] = {data,
/// tag, data, tag} of the words at address_of(i), a pointer or a based_address. `what.part` of a failure is i / PerPart of a pair that was missing.
/// Lanes poll on their own.
template <int PerPart = 1, int N, class Block, class AddressOf>
MONOLAYER_DEVICE void wait_tagged(Block& b, u32x4 (&v)[N], AddressOf address_of, u32 tag, u64 limit_ns,
                                  const awaited& what) {
  using T = typename Block::target;
  watch<T> w{Block::layout::abort_flag, b.params->state, limit_ns};
  for (;;) {
    MONOLAYER_UNROLL
    for (int i = 0; i < N; ++i) v[i] = detail::tagged_pair<T>(address_of(i));
    u32 differ = 0;
    MONOLAYER_UNROLL
    for (int i = 0; i < N; ++i) differ |= (v[i].v[1] ^ tag) | (v[i].v[3] ^ tag);
    if (differ == 0) return;
    if (w.give_up()) {
      awaited a = what;
      a.expected = a.seen = tag;
      // Which word: asked again, one after the other. To find it in v at each poll would fill the scalar registers.
      MONOLAYER_NO_UNROLL
      for (int i = 0; i < N; ++i) {
        const u32x4 again = detail::tagged_pair<T>(address_of(i));
        if (again.v[1] == tag && again.v[3] == tag) continue;
        a.part = u32(i / PerPart), a.seen = again.v[1] != tag ? again.v[1] : again.v[3];
      }
      fail(b, w, a);
      return;
    }
  }
}

}  // namespace monolayer
