// The block's LDS: fixed control tables, then the staged rows, then the ring. Offsets of the fixed part are constants
// of the program and the target; the staged rows take what the live rows of this launch need, the ring the rest.
#pragma once

#include "monolayer/core/abi.hpp"
#include "monolayer/core/slot_layout.hpp"
#include "monolayer/core/weight_layout.hpp"

namespace monolayer {

/// Extra bytes after each staged row, so that the columns that one load serves fall into different banks.
inline constexpr u32 staged_row_pad = 64;

/// Most subtiles of a tile that all waves multiply together.
inline constexpr int projected_subtiles = 2;

/// A slot's place in time, as a block sees it in the current layer. 16 bytes in LDS.
struct slot_clock {
  u32 uses;     // completed uses before this layer
  u32 tag;      // low 32 bits of the epoch of the newest of them
  u32 in_span;  // whether it happened in this launch
};

template <class T, class Program>
struct lds_layout {
  static constexpr u32 abort_flag = 0;
  static constexpr u32 routing_flag = 4;
  static constexpr u32 refused = 8;  // the rank had failed before this launch; apart, because a wave may abort early
  static constexpr u32 group = 16;
  static constexpr u32 clocks = group + 48;
  static constexpr u32 failures = clocks + 16 * max_slots;           // awaited [consumer_waves + 1], 32 bytes each
  static constexpr u32 live_rows = failures + 32 * (T::consumer_waves + 1);  // u32 [8]: row of each live column, ~0 past the last
  static constexpr u32 known = live_rows + 32;  // u32 [2]: bit s: slot s is complete, its use of this layer; an earlier one
  // The number of the newest tile whose partial sums a wave has stored, and which each group of adding lanes has added.
  static constexpr u32 stored = u32(align_up(known + 8, 16));
  static constexpr u32 added = stored + 4 * u32(T::consumer_waves);
  static constexpr u32 zeros = u32(align_up(added + 16, 64));  // 5 * 64 bytes: the unit of a column without a row
  // routing of the current layer
  static constexpr int pairs = Program::info.max_rows * Program::info.top_k;
  static constexpr u32 distinct_count = zeros + 5 * 64;
  static constexpr u32 distinct = distinct_count + 16;         // u32 [pairs]: expert ids, ascending
  static constexpr u32 places = distinct + 4 * pairs;          // u32 [pairs][2]: place of each column, 0xff = not chosen
  static constexpr u32 route_weights = places + 8 * pairs;     // f32 [8][top_k]
  static constexpr u32 sums = route_weights + u32(align_up(4 * 8 * Program::info.top_k, 16));  // f32 [8][consumer_waves]
  // Two buffers, which tiles use in turn, of f32 [wave][8 columns][16 features and 4 of padding]: partial sums of the
  // waves (experts_down: [half, place] instead of [wave]); between stages also the router's scratch
  static constexpr u32 partial_column = 20 * 4;
  static constexpr u32 partial_wave = 8 * partial_column;
  static constexpr u32 partials = u32(align_up(sums + 4 * 8 * T::consumer_waves, 128));
  static constexpr u32 partial_bytes =
      partial_wave *
      u32(T::consumer_waves > 2 * (Program::info.top_k + 1) ? T::consumer_waves : 2 * (Program::info.top_k + 1));
  // Where LDS is short there is one buffer.
  static constexpr u32 partial_buffers = T::lds_bytes > 100 * 1024 ? 2 : 1;
  static constexpr u32 scores = partials;  // f32 [max_rows][experts]
  static constexpr u32 experts = [] {
    if constexpr (requires { Program::experts; }) return u32(Program::experts);
    else return 0u;  // nothing is routed
  }();
  static constexpr u32 score_bytes = u32(Program::info.max_rows) * experts * 4;
  static constexpr u32 keys = scores + score_bytes;   // u32 [max_rows][experts]
  static constexpr u32 chosen = keys + score_bytes;   // u8 [experts][8]
  static constexpr u32 router_bytes = 2 * score_bytes + 8 * experts;
  static constexpr u32 scratch_bytes =
      partial_buffers * partial_bytes > router_bytes ? partial_buffers * partial_bytes : router_bytes;
  static constexpr u32 ring_control = u32(align_up(partials + scratch_bytes, 128));
  static constexpr u32 max_ring_slots = 64;
  static constexpr u32 rows = u32(align_up(ring_control + T::ring_control_bytes(max_ring_slots), 1024));

  static constexpr u32 slot_bytes = u32(align_up(Program::largest_chunk, 128));
  static constexpr u32 fewest_slots = 2;

  /// A program whose stages use the place of the staged rows as scratch says how much of it they need.
  static constexpr u32 least_row_bytes = [] {
    if constexpr (requires { Program::template least_staged_bytes<T>; }) return Program::template least_staged_bytes<T>;
    else return 0u;
  }();
  /// Bytes that the staged rows take with `live` live rows.
  MONOLAYER_HOST_DEVICE static constexpr u32 row_bytes(int live) {
    const u32 bytes = u32(live) * Program::staged_bytes_per_row;
    return u32(align_up(bytes > least_row_bytes ? bytes : least_row_bytes, 1024));
  }
  /// Ring slots that fit beside them; 0 when not even the fewest do.
  MONOLAYER_HOST_DEVICE static constexpr u32 ring_slots(u32 lds_bytes, int live) {
    const u32 used = rows + row_bytes(live);
    if (lds_bytes < used + fewest_slots * slot_bytes) return 0;
    const u32 n = (lds_bytes - used) / slot_bytes;
    return n < max_ring_slots ? n : max_ring_slots;
  }
};

}  // namespace monolayer
