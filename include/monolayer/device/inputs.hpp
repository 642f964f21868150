// The inputs that a stage can declare. The pipeline waits for the counted slots of stage_info::reads, then calls
// prepare() before the stage's first tile: it brings rows into LDS, or routes. An input that the block already holds
// for this layer is not fetched again: `number` tells inputs of one program apart.
#pragma once

#include "monolayer/device/routing.hpp"

namespace monolayer::inputs {

/// Nothing to stage.
struct none {
  template <class Block>
  MONOLAYER_DEVICE static bool prepare(Block&) {
    return true;
  }
};

/// The residual stream: the newest use of slot `Hidden` in this launch, or the caller's input before there is one.
template <int Hidden, class Block>
struct residual_stream {
  using T = typename Block::target;
  static constexpr int columns = Block::info.slots[Hidden].columns;
  slot_view<T, typename Block::program, Hidden> view;
  const u8* input;

  MONOLAYER_DEVICE static residual_stream newest(const Block& b) {
    const slot_clock c = b.template clock<Hidden>();
    return {slot_view<T, typename Block::program, Hidden>::use(b, c.uses - 1),
            c.in_span != 0 ? nullptr : static_cast<const u8*>(b.params->input)};
  }
  MONOLAYER_DEVICE u32x4 load8(int row, int column) const {
    return input != nullptr ? T::load16(input + (u64(row) * columns + u64(column)) * 2) : view.load8(row, column);
  }
};

/// RMSNorm of the residual stream, bf16, padded to PaddedK columns. `Norm` indexes layer_entry::data (bf16 weight [K]).
template <int Number, int Hidden, int K, int PaddedK, int Norm, float Eps>
struct normed_stream {
  template <class Block>
  MONOLAYER_DEVICE static bool prepare(Block& b) {
    if (b.staged == b.layer * 16 + Number) return true;
    const auto stream = residual_stream<Hidden, Block>::newest(b);
    if (!stage_normed_rows<K, PaddedK>(b, layer_data<typename Block::target>(*b.entry, Norm), Eps,
                                       [&](int row, int column) { return stream.load8(row, column); }) ||
        !b.sync())
      return false;
    b.staged = b.layer * 16 + Number;
    return true;
  }
};

/// RMSNorm of a slot of this layer.
template <int Number, int Slot, int K, int PaddedK, int Norm, float Eps>
struct normed_slot {
  template <class Block>
  MONOLAYER_DEVICE static bool prepare(Block& b) {
    if (b.staged == b.layer * 16 + Number) return true;
    const auto view = slot_view<typename Block::target, typename Block::program, Slot>::current(b);
    if (!stage_normed_rows<K, PaddedK>(b, layer_data<typename Block::target>(*b.entry, Norm), Eps,
                                       [&](int row, int column) { return view.load8(row, column); }) ||
        !b.sync())
      return false;
    b.staged = b.layer * 16 + Number;
    return true;
  }
};

/// The routing of this layer from the tagged slot `Logits` (f32 [splits][experts], added in order of the splits); `Bias`
/// indexes layer_entry::data.
template <int Logits, int Splits, int Bias>
struct routing {
  template <class Block>
  MONOLAYER_DEVICE static bool prepare(Block& b) {
    using T = typename Block::target;
    using P = typename Block::program;
    constexpr int experts = P::experts;
    static_assert(experts % 2 == 0);
    if (b.routed == routing_epoch(b.layer)) return true;
    const auto view = slot_view<T, P, Logits>::current(b);
    MONOLAYER_NO_UNROLL
    for (int i = Block::thread(); i < b.live * experts / 2; i += Block::threads) {
      const int j = i / (experts / 2), e = i % (experts / 2) * 2, row = b.row(j);
      u32x4 v[Splits];
      wait_tagged(b, v, [&](int split) { return view.at(row, split * experts + e); }, b.tag(),
                  b.local_deadline_ns(), {failure::slot_wait, u32(Logits), 0, 0, 0});
      float first = bits_to_float(v[0].v[0]), second = bits_to_float(v[0].v[2]);
      MONOLAYER_UNROLL
      for (int split = 1; split < Splits; ++split) {
        first = add(first, bits_to_float(v[split].v[0]));
        second = add(second, bits_to_float(v[split].v[2]));
      }
      const lds_address to = Block::layout::scores + 4u * u32(j * experts + e);
      T::lds_store4(to, float_to_bits(sigmoid(first)));
      T::lds_store4(to + 4, float_to_bits(sigmoid(second)));
    }
    if (!route<P>(b, layer_data<typename Block::target>(*b.entry, Bias))) return false;
    b.routed = routing_epoch(b.layer);
    return true;
  }
};

/// The experts' activations: per live row [top_k + 1][PaddedI] bf16, the shared expert's last.
template <int Number, int Routed, int Shared, int I, int PaddedI>
struct expert_activations {
  template <class Block>
  MONOLAYER_DEVICE static bool prepare(Block& b) {
    using T = typename Block::target;
    using P = typename Block::program;
    constexpr int top_k = Block::info.top_k;
    if (b.staged == b.layer * 16 + Number) return true;
    const auto routed = slot_view<T, P, Routed>::current(b);
    const auto shared = slot_view<T, P, Shared>::current(b);
    constexpr int pieces = (top_k + 1) * PaddedI / 8;  // of a row, 8 columns each
    constexpr int in_flight = 8;
    const int total = b.live * pieces;
    MONOLAYER_NO_UNROLL
    for (int first = Block::thread(); first < total; first += Block::threads * in_flight) {
      u32x4 v[in_flight];
      MONOLAYER_UNROLL
      for (int i = 0; i < in_flight; ++i) {
        const int piece = first + i * Block::threads;
        const int j = piece / pieces, place = piece % pieces / (PaddedI / 8), k = piece % (PaddedI / 8) * 8;
        v[i] = u32x4{};
        if (piece >= total || k >= I) continue;
        if (place == top_k)
          v[i] = shared.load8(b.row(j), k);
        else if (routing_table<Block>::weight(j, place) >= 0.0f)
          v[i] = routed.load8(b.row(j), place * I + k);
      }
      MONOLAYER_UNROLL
      for (int i = 0; i < in_flight; ++i) {
        const int piece = first + i * Block::threads;
        if (piece < total)
          T::lds_store16(Block::staged_row(piece / pieces, pieces * 16) + u32(piece % pieces) * 16u, shifted<T>(v[i]));
      }
    }
    if (!b.sync()) return false;
    b.staged = b.layer * 16 + Number;
    return true;
  }
};

/// Two inputs, one after the other.
template <class First, class Second>
struct both {
  template <class Block>
  MONOLAYER_DEVICE static bool prepare(Block& b) {
    return First::prepare(b) && Second::prepare(b);
  }
};

}  // namespace monolayer::inputs
