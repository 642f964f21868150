// The indexer's picks: the best of a row's scores, as the global slots that attention reads.
#pragma once

#include "monolayer/device/inputs.hpp"
#include "monolayer/device/token_slots.hpp"
#include "monolayer/device/top_k.hpp"

namespace monolayer::stages {

/// The best min(TopK, tokens) of a row's scores, exactly (device/top_k.hpp): a tile is a row. To slot `Picks` (u32
/// [TopK + 4]): their global slots in ascending order of the tokens, and at column TopK how many there are; fewer where
/// scores are NaN. Where layer_entry::data[Out] is not null, the caller's copy too: int32, at
/// batch_view::list_starts[row] and at most up to the next row's start (a range too short for the picks is counted in
/// bad_entries), or at row * TopK where there are no starts. Places beyond the picks in that range, up to TopK, get -1.
template <int Scores, int Picks, int TopK, int Out, int Capacity = top_k_capacity(TopK)>
struct index_top_k {
  using input = inputs::none;
  using weights = void;
  template <class T>
  using select = top_k<T, TopK, Capacity>;
  /// Bytes of LDS that a tile needs in place of staged rows.
  template <class T>
  static constexpr u32 scratch_bytes = select<T>::bytes;

  template <class Block>
  MONOLAYER_DEVICE static bool run_tile(Block& b, int row) {
    using T = typename Block::target;
    using P = typename Block::program;
    static_assert(P::max_context < select<T>::max_n && P::max_context % 4 == 0);
    if (b.column_of(row) < 0) return true;
    b.staged = 0;
    if (!b.sync()) return false;
    const batch_view& batch = b.params->batch;
    const auto scores = slot_view<T, P, Scores>::current(b);
    const auto picks = slot_view<T, P, Picks>::current(b);
    const token_slots<T> tokens(batch, row);
    auto* copy = reinterpret_cast<int*>(const_cast<u8*>(layer_data<T>(b.entry(), Out)));
    int room = TopK;
    if (copy != nullptr) {
      int start = row * TopK;
      if (batch.list_starts != nullptr) {
        start = int(T::load4(batch.list_starts + row));
        room = int(T::load4(batch.list_starts + row + 1)) - start;
        if (start < 0 || room < 0) room = 0;
        if (room > TopK) room = TopK;
      }
      copy += start;
    }
    int count = 0;
    if (!select<T>::run(
            b, Block::layout::rows, tokens_of<T>(batch, row), [&](int i) { return T::slot_load16(scores.at(row, i)); }, count))
      return false;
    constexpr int at_once = 6;  // of 2048 picks all that a thread of 384 has
    MONOLAYER_NO_UNROLL
    for (int first = Block::thread(); first < count; first += at_once * Block::threads) {
      u32 token[at_once], slot[at_once];
      MONOLAYER_UNROLL
      for (int i = 0; i < at_once; ++i) {
        const int place = first + i * Block::threads;
        token[i] = select<T>::pick(Block::layout::rows, place < count ? place : first);
      }
      tokens.find(token, slot);
      MONOLAYER_UNROLL
      for (int i = 0; i < at_once; ++i) {
        const int place = first + i * Block::threads;
        if (place >= count) continue;
        T::slot_store4(picks.at(row, place), slot[i]);
        if (copy != nullptr && place < room) T::store4(copy + place, slot[i]);
      }
    }
    if (copy != nullptr)
      for (int i = count + Block::thread(); i < room; i += Block::threads) T::store4(copy + i, ~0u);
    if (Block::thread() == 0) {
      T::slot_store4(picks.at(row, TopK), u32(count));
      if (copy != nullptr && count > room) T::fetch_add(&b.params->state->bad_entries, 1);
    }
    return true;
  }
};

}  // namespace monolayer::stages
