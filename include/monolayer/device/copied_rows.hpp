// Rows of a slot as they are: copied into LDS for a projection that no norm precedes.
#pragma once

#include "monolayer/device/rows.hpp"

namespace monolayer::inputs {

/// Slot `Slot` of this layer, bf16 [K columns], padded with zeros to PaddedK.
template <int Number, int Slot, int K, int PaddedK>
struct copied_slot {
  template <class Block>
  MONOLAYER_DEVICE static bool prepare(Block& b) {
    using T = typename Block::target;
    static_assert(K % 8 == 0 && PaddedK % 8 == 0);
    if (b.staged == u32(Number)) return true;
    const auto view = slot_view<T, typename Block::program, Slot>::current(b);
    constexpr int pieces = PaddedK / 8, in_flight = 8;
    const int total = b.live * pieces;
    MONOLAYER_NO_UNROLL
    for (int first = Block::thread(); first < total; first += Block::threads * in_flight) {
      u32x4 v[in_flight];
      MONOLAYER_UNROLL
      for (int i = 0; i < in_flight; ++i) {
        const int piece = first + i * Block::threads, k = piece % pieces * 8;
        v[i] = piece < total && k < K ? view.load8(b.row(piece / pieces), k) : u32x4{};
      }
      MONOLAYER_UNROLL
      for (int i = 0; i < in_flight; ++i) {
        const int piece = first + i * Block::threads;
        if (piece < total)
          T::lds_store16(Block::staged_row(piece / pieces, PaddedK * 2) + u32(piece % pieces) * 16u, shifted<T>(v[i]));
      }
    }
    if (!b.sync()) return false;
    b.staged = u32(Number);
    return true;
  }
};

}  // namespace monolayer::inputs
