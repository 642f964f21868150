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
  /// Eight columns of one row: the f32 sum over the ranks, in rank order. All words are asked for at once.
  MONOLAYER_DEVICE void sum8(Block& b, int row, int column, float (&total)[8]) const {
    constexpr int ranks = Block::info.ranks;
    const u8* mailbox = b.params->mailbox[b.params->rank] + offset;  // the same in all lanes
    const u32 lane_offset = u32(row) * u32(row_bytes) + u32(column) * 4;
    u32x4 v[2 * ranks];  // four columns each
    wait_tagged<2>(
        b, v,
        [&](int i) {
          const u64 of_source = u64(i / 2) * Block::info.max_rows * row_bytes;
          return based_address{static_cast<const u8*>(T::opaque(mailbox)) + of_source + 16 * (i % 2), lane_offset};
        },
        b.tag(), b.params->peer_deadline_ns, {failure::peer_wait, u32(Slot), 0, 0, 0});
    MONOLAYER_UNROLL
    for (int i = 0; i < 8; ++i) total[i] = 0.0f;
    MONOLAYER_UNROLL
    for (int i = 0; i < 2 * ranks; ++i)
      MONOLAYER_UNROLL
      for (int k = 0; k < 2; ++k) {
        const u32 pair = v[i].v[2 * k];
        float& low = total[4 * (i % 2) + 2 * k];
        float& high = total[4 * (i % 2) + 2 * k + 1];
        low = add(low, low_bf16(pair)), high = add(high, high_bf16(pair));
      }
  }
};

}  // namespace monolayer
