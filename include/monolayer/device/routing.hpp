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
  /// Weight of column j's choice at `place`; negative when there is none (the row's other scores were NaN).
  MONOLAYER_DEVICE static float weight(int j, int place) {
    return bits_to_float(T::lds_load4(layout::route_weights + 4u * u32(j * Block::info.top_k + place)));
  }
};

/// The flag's value for layer i of a launch.
MONOLAYER_HOST_DEVICE constexpr u32 routing_epoch(u32 layer) { return layer + 1; }

/// Computes the routing from the scores and keys in LDS: layout::scores holds sigmoid(logit), f32 [column][experts].
/// Router contract (contracts of GLM-5, DeepSeek-V3 "noaux_tc" with one group): choose by score + bias, f32; ties to
/// the smallest index, NaN never; weight = score / (sum of chosen scores + 1e-20) * scaling.
template <class Program, class Block>
MONOLAYER_DEVICE bool route(Block& b, const void* bias) {
  using T = typename Block::target;
  using layout = typename Block::layout;
  constexpr int experts = Program::experts, top_k = Block::info.top_k;
  constexpr int per_lane = (experts + T::wave_size - 1) / T::wave_size;
  // chosen[expert][column] = place, 0xff where not chosen
  MONOLAYER_NO_UNROLL
  for (int i = Block::thread(); i < experts * 2; i += Block::threads)
    T::lds_store4(layout::chosen + 4u * u32(i), 0xffffffffu);
  if (!b.sync()) return false;
  MONOLAYER_NO_UNROLL
  for (int j = T::wave(); j < b.live; j += T::consumer_waves) {
    u32 key[per_lane];
    for (int i = 0; i < per_lane; ++i) {
      const int e = T::lane() + i * T::wave_size;
      key[i] = e < experts ? Program::router_key(bits_to_float(T::lds_load4(layout::scores + 4u * u32(j * experts + e))),
                                                 bits_to_float(T::load4(static_cast<const u8*>(bias) + 4u * u32(e))))
                           : 0u;
    }
    float sum = 0.0f;
    int pick = -1;  // lane p holds the p-th choice, -1 where only NaN was left: the row gets fewer experts
    static_assert(top_k <= T::wave_size);
    MONOLAYER_NO_UNROLL
    for (int p = 0; p < top_k; ++p) {
      u32 best = key[0];
      MONOLAYER_UNROLL
      for (int i = 1; i < per_lane; ++i) best = key[i] > best ? key[i] : best;
      best = T::wave_max(best);
      u32 mine = ~0u;
      MONOLAYER_UNROLL
      for (int i = per_lane - 1; i >= 0; --i)
        if (key[i] == best) mine = u32(T::lane() + i * T::wave_size);
      const int e = int(T::wave_min(mine));
      MONOLAYER_UNROLL
      for (int i = 0; i < per_lane; ++i)
        if (e == T::lane() + i * T::wave_size) key[i] = 0;
      if (best == 0) break;
      if (T::lane() == p) pick = e;
      sum = add(sum, bits_to_float(T::lds_load4(layout::scores + 4u * u32(j * experts + e))));
    }
    if (T::lane() < top_k) {
      float w = -1.0f;  // not chosen
      if (pick >= 0) {
        T::lds_store1(layout::chosen + 8u * u32(pick) + u32(j), u8(T::lane()));
        const float score = bits_to_float(T::lds_load4(layout::scores + 4u * u32(j * experts + pick)));
        w = mul(div(score, add(sum, 1e-20f)), Program::routed_scaling);
      }
      T::lds_store4(layout::route_weights + 4u * u32(j * top_k + T::lane()), float_to_bits(w));
    }
  }
  if (!b.sync()) return false;
  // The first wave lists the chosen experts in ascending order.
  if (T::wave() == 0) {
    int count = 0;
    MONOLAYER_NO_UNROLL
    for (int first = 0; first < experts; first += T::wave_size) {
      const int e = first + T::lane();
      const u32x2 places = e < experts ? T::lds_load8(layout::chosen + 8u * u32(e)) : u32x2{{~0u, ~0u}};
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
