// Partial sums between GPUs. A slot of scope `peers` lies in every rank's mailbox as [source rank][row][columns / 2]
// 8-byte words: two bf16 columns and the epoch's low 32 bits. A rank pushes its words to all ranks, itself included,
// so every rank adds the same rounded numbers in the same order.
#pragma once

#include "monolayer/device/rows.hpp"

namespace monolayer {

template <class Block, int Slot>
struct mailbox_view {
  using T = typename Block::target;
  using memory = typename Block::memory;
  static constexpr slot_info s = Block::info.slots[Slot];
  static_assert(s.scope == scope::peers && s.type == element::bf16);
  static constexpr u64 row_bytes = slot_row_bytes(s);
  u64 offset;  // of the buffer of this layer's use

  MONOLAYER_DEVICE static mailbox_view current(const Block& b) {
    const u32 use = b.template clock<Slot>().uses;
    constexpr u64 first = memory::payload_offset(Slot), bytes = memory::buffer_bytes(Slot);
    return {first + (use % u32(s.buffers)) * bytes};
  }
  MONOLAYER_DEVICE u64 word_offset(int source, int row, int column) const {
    return offset + (u64(source) * Block::info.max_rows + u64(row)) * row_bytes + u64(column) * 4;
  }
  /// Columns `column` and `column` + 1 of this rank's partial sums, to every rank.
  MONOLAYER_DEVICE void push(const Block& b, int row, int column, u32 pair) const {
    const u64 at = word_offset(b.params->rank, row, column);
    MONOLAYER_NO_UNROLL
    for (int peer = 0; peer < Block::info.ranks; ++peer)
      T::tagged_store_peer(b.params->mailbox[peer] + at, u64(b.tag()) << 32 | pair);
  }
  /// Eight columns of one row: the f32 sum over the ranks, in rank order. All words are asked for at once, or half
  /// of the columns after the other where a lane's registers are few.
  MONOLAYER_DEVICE void sum8(Block& b, int row, int column, float (&total)[8]) const {
    constexpr int ranks = Block::info.ranks, halves = T::wave_size == 32 && ranks > 2 ? 1 : 2;  // at once
    const u8* mailbox = b.params->mailbox[b.params->rank] + offset;  // the same in all lanes
    const u32 lane_offset = u32(row) * u32(row_bytes) + u32(column) * 4;
    MONOLAYER_UNROLL
    for (int i = 0; i < 8; ++i) total[i] = 0.0f;
    MONOLAYER_UNROLL
    for (int from = 0; from < 2; from += halves) {
      u32x4 v[halves * ranks];
      wait_tagged<halves>(
          b, v,
          [&](int i) {
            const u64 of_source = u64(i / halves) * Block::info.max_rows * row_bytes;
            return based_address{static_cast<const u8*>(T::opaque(mailbox)) + of_source + 16 * (from + i % halves), lane_offset};
          },
          b.tag(),
          b.params->peer_deadline_ns, {failure::peer_wait, u32(Slot), 0, 0, 0});
      MONOLAYER_UNROLL
      for (int source = 0; source < ranks; ++source)
        MONOLAYER_UNROLL
        for (int i = 0; i < 2 * halves; ++i) {
          const u32 pair = v[source * halves + i / 2].v[2 * (i % 2)];
          const int at = 4 * from + 2 * i;
          total[at] = add(total[at], low_bf16(pair));
          total[at + 1] = add(total[at + 1], high_bf16(pair));
        }
    }
  }
};

}  // namespace monolayer
