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
  u64 offset;  // of the buffer of this layer's use

  MONOLAYER_DEVICE static mailbox_view current(const Block& b) {
    const u32 use = b.template clock<Slot>().uses;
    constexpr u64 first = memory::payload_offset(Slot), bytes = memory::buffer_bytes(Slot);
    return {first + (use % u32(s.buffers)) * bytes};
  }
  MONOLAYER_DEVICE u64 word_offset(int source, int row, int column) const {
    return offset + (u64(source) * Block::info.max_rows + u64(row)) * slot_row_bytes(s) + u64(column) * 4;
  }
  /// Columns `column` and `column` + 1 of this rank's partial sums, to every rank.
  MONOLAYER_DEVICE void push(const Block& b, int row, int column, u32 pair) const {
    const u64 at = word_offset(b.params->rank, row, column);
    MONOLAYER_NO_UNROLL
    for (int peer = 0; peer < Block::info.ranks; ++peer)
      T::tagged_store_peer(b.params->mailbox[peer] + at, u64(b.tag()) << 32 | pair);
  }
  /// Rows that are pushed in this epoch although they are not live: none, or all when old tags could come round.
  MONOLAYER_DEVICE static bool pushes_dead_rows(const Block& b) { return b.epoch % full_push_period == 0; }

  /// Eight columns of one row: the f32 sum over the ranks, in rank order.
  MONOLAYER_DEVICE void sum8(Block& b, int row, int column, float (&total)[8]) const {
    for (float& t : total) t = 0.0f;
    MONOLAYER_NO_UNROLL
    for (int source = 0; source < Block::info.ranks; ++source) {
      const u8* at = b.params->mailbox[b.params->rank] + word_offset(source, row, column);
      for (int half = 0; half < 2; ++half) {
        const u32x4 v = wait_tagged(b, at + 16 * half, b.tag(), b.params->peer_deadline_ns,
                                    {failure::peer_wait, u32(Slot), u32(source), 0, 0});
        for (int i = 0; i < 2; ++i) {
          total[4 * half + 2 * i] = add(total[4 * half + 2 * i], low_bf16(v.v[2 * i]));
          total[4 * half + 2 * i + 1] = add(total[4 * half + 2 * i + 1], high_bf16(v.v[2 * i]));
        }
      }
    }
  }
};

}  // namespace monolayer
