// Routing of the current layer: top-k of sigmoid(logit) + bias a row, in every block alike, and the table of distinct
// experts that the routed stages walk. Kept in LDS; the producer learns of it through a flag.
#pragma once

#include "monolayer/device/rows.hpp"

namespace monolayer {

/// Read side, for producer and consumers. What the producer reads are flag loads: on CDNA no other LDS access leaves its
/// copies in flight.
template <class Block>
struct routing_table {
  using T = typename Block::target;
  using layout = typename Block::layout;

  MONOLAYER_DEVICE static int distinct_experts() { return int(T::lds_flag_load(layout::distinct_count)); }
  MONOLAYER_DEVICE static int expert(int d) { return int(T::lds_flag_load(layout::distinct + 4u * u32(d))); }
  /// Place 0..top_k-1 at which column j chose distinct expert d, or -1.
  MONOLAYER_DEVICE static int place(int d, int j) {
    const u32 word = T::lds_load4(layout::places + 8u * u32(d) + 4u * u32(j / 4));
    const u32 p = (word >> (8 * (j % 4))) & 0xffu;
    return p == 0xffu ? -1 : int(p);
  }
  /// The places at which the columns chose distinct expert d, a byte each, 0xff for none; and what says `place` for all.
  MONOLAYER_DEVICE static u32x2 places(int d) { return T::lds_load8(layout::places + 8u * u32(d)); }
  MONOLAYER_DEVICE static u32x2 all_at(int place) { return {{u32(place) * 0x01010101u, u32(place) * 0x01010101u}}; }
  /// Column j's place of them, or -1; columns from 8 on have none.
  MONOLAYER_DEVICE static int place_of(u32x2 all, int j) {
    const u32 p = ((j < 4 ? all.v[0] : all.v[1]) >> (8 * (j % 4))) & 0xffu;
    return j >= 8 || p == 0xffu ? -1 : int(p);
  }
  /// Weight of column j's choice at `place`; negative when there is none (the row's other scores were NaN).
  MONOLAYER_DEVICE static float weight(int j, int place) {
    return bits_to_float(T::lds_load4(layout::route_weights + 4u * u32(j * Block::info.top_k + place)));
  }
};

/// The flag's value for layer i of a launch.
MONOLAYER_HOST_DEVICE constexpr u32 routing_epoch(u32 layer) { return layer + 1; }
/// Whether the block has routed the current layer: asked by consumer waves, with a sync() since the flag was set.
template <class Block>
MONOLAYER_DEVICE bool is_routed(const Block& b) {
  return Block::target::lds_flag_load(Block::layout::routing_flag) == routing_epoch(b.layer);
}

/// Before route(): no expert is chosen. A sync() stands between them.
template <class Program, class Block>
MONOLAYER_DEVICE void clear_choices(Block&) {
  using T = typename Block::target;
  MONOLAYER_NO_UNROLL
  for (int i = Block::thread(); i < Program::experts / 2; i += Block::threads)
    T::lds_store16(Block::layout::chosen + 16u * u32(i), {{~0u, ~0u, ~0u, ~0u}});
}

/// Computes the routing from what the block's threads have left in LDS: layout::scores holds sigmoid(logit), layout::keys
/// what the choice goes by, each [column][experts].
/// Router contract (contracts of GLM-5, DeepSeek-V3 "noaux_tc" with one group): choose by score + bias, f32; ties to
/// the smallest index, NaN never; weight = score / (sum of chosen scores + 1e-20) * scaling.
template <class Program, class Block>
MONOLAYER_DEVICE bool route(Block& b) {
  using T = typename Block::target;
  using layout = typename Block::layout;
  constexpr int experts = Program::experts, top_k = Block::info.top_k;
  static_assert(experts % 2 == 0);
  constexpr int per_lane = (experts + T::wave_size - 1) / T::wave_size;
  if (!b.sync()) return false;
  MONOLAYER_NO_UNROLL
  for (int j = T::wave(); j < b.live; j += T::consumer_waves) {
    // A lane's keys in descending order, equal ones in the order of their experts: neighbours change places when the
    // first is smaller, as often as there are keys.
    u32 key[per_lane];
    int expert[per_lane];
    MONOLAYER_UNROLL
    for (int i = 0; i < per_lane; ++i) {
      expert[i] = T::lane() + i * T::wave_size;
      key[i] = expert[i] < experts ? T::lds_load4(layout::keys + 4u * u32(j * experts + expert[i])) : 0u;
    }
    MONOLAYER_UNROLL
    for (int round = 0; round < per_lane; ++round)
      MONOLAYER_UNROLL
      for (int i = round % 2; i + 1 < per_lane; i += 2) {
        const bool change = key[i] < key[i + 1];
        const u32 k = key[i];
        const int e = expert[i];
        key[i] = change ? key[i + 1] : k, expert[i] = change ? expert[i + 1] : e;
        key[i + 1] = change ? k : key[i + 1], expert[i + 1] = change ? e : expert[i + 1];
      }
    int pick = -1;  // lane p holds the p-th choice, -1 where only NaN was left: the row gets fewer experts
    static_assert(top_k <= T::wave_size);
    MONOLAYER_NO_UNROLL
    for (int p = 0; p < top_k; ++p) {
      const u32 best = T::wave_max(key[0]);
      if (best == 0) break;
      const int e = int(T::wave_min(key[0] == best ? u32(expert[0]) : ~0u));
      if (T::lane() == p) pick = e;
      const bool taken = expert[0] == e;
      MONOLAYER_UNROLL
      for (int i = 0; i + 1 < per_lane; ++i)
        key[i] = taken ? key[i + 1] : key[i], expert[i] = taken ? expert[i + 1] : expert[i];
      if (taken) key[per_lane - 1] = 0, expert[per_lane - 1] = -1;
    }
    const float score = pick >= 0 ? bits_to_float(T::lds_load4(layout::scores + 4u * u32(j * experts + pick))) : 0.0f;
    const float sum = wave_sum<T>(score);
    if (T::lane() < top_k) {
      float w = -1.0f;  // not chosen
      if (pick >= 0) {
        T::lds_store1(layout::chosen + 8u * u32(pick) + u32(j), u8(T::lane()));
        w = mul(div(score, add(sum, 1e-20f)), Program::routed_scaling);
      }
      T::lds_store4(layout::route_weights + 4u * u32(j * top_k + T::lane()), float_to_bits(w));
    }
  }
  if (!b.sync()) return false;
  // The first wave lists the chosen experts in ascending order.
  if (T::wave() == 0) {
    int count = 0;
    u32x2 all_places[per_lane];
    MONOLAYER_UNROLL
    for (int i = 0; i < per_lane; ++i) {
      const int e = i * T::wave_size + T::lane();
      all_places[i] = e < experts ? T::lds_load8(layout::chosen + 8u * u32(e)) : u32x2{{~0u, ~0u}};
    }
    MONOLAYER_UNROLL
    for (int i = 0; i < per_lane; ++i) {
      const int e = i * T::wave_size + T::lane();
      const u32x2 places = all_places[i];
      const bool taken = (places.v[0] & places.v[1]) != ~0u;
      const u64 all = T::ballot(taken);
      if (taken) {
        const int d = count + popcount(all & ((u64(1) << T::lane()) - 1));
        T::lds_store4(layout::distinct + 4u * u32(d), u32(e));
        T::lds_store4(layout::places + 8u * u32(d), places.v[0]);
        T::lds_store4(layout::places + 8u * u32(d) + 4u, places.v[1]);
      }
      count += popcount(all);
    }
    if (T::lane() == 0) T::lds_store4(layout::distinct_count, u32(count));
    T::wave_sync();
    if (T::lane() == 0) T::lds_flag_store(layout::routing_flag, routing_epoch(b.layer));
  }
  return b.sync();
}

}  // namespace monolayer
