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

/// What an RMSNorm reads: rows of a slot, or of the caller's input where `input` is not null.
struct norm_source {
  const u8 *slot, *input, *weight;
  norm_shape shape;
  int number;
};

/// Stages the rows of a source of at most MostColumns columns, unless the block holds them. The pipeline calls it once for
/// all inputs of a program, since it is long.
template <int MostColumns, class Block>
MONOLAYER_DEVICE bool prepare_normed(Block& b, const norm_source& from) {
  using T = typename Block::target;
  if (b.staged == u32(from.number)) return true;
  const bool staged = stage_normed_rows<MostColumns>(b, from.shape, from.weight, [&](int row, int column) {
    const u64 at = (u64(row) * u64(from.shape.k) + u64(column)) * 2;
    return from.input != nullptr ? T::load16(from.input + at) : T::slot_load16(from.slot + at);
  });
  if (!staged || !b.sync()) return false;
  b.staged = u32(from.number);
  return true;
}

/// RMSNorm of the residual stream, bf16, padded to PaddedK columns. `Norm` indexes layer_entry::data (bf16 weight [K]).
template <int Number, int Hidden, int K, int PaddedK, int Norm, float Eps>
struct normed_stream {
  static constexpr int normed_columns = PaddedK;
  template <class Block>
  MONOLAYER_DEVICE static norm_source source(const Block& b) {
    static_assert(Block::info.slots[Hidden].columns == K);
    const auto stream = residual_stream<Hidden, Block>::newest(b);
    return {stream.view.base, stream.input, layer_data<typename Block::target>(b.entry(), Norm),
            norm_shape::of<K, PaddedK>(Eps), Number};
  }
};

/// RMSNorm of a slot of this layer.
template <int Number, int Slot, int K, int PaddedK, int Norm, float Eps>
struct normed_slot {
  static constexpr int normed_columns = PaddedK;
  template <class Block>
  MONOLAYER_DEVICE static norm_source source(const Block& b) {
    static_assert(Block::info.slots[Slot].columns == K);
    const auto view = slot_view<typename Block::target, typename Block::program, Slot>::current(b);
    return {view.base, nullptr, layer_data<typename Block::target>(b.entry(), Norm), norm_shape::of<K, PaddedK>(Eps), Number};
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
    constexpr int experts = P::experts, of_split = Block::info.slots[Logits].columns / Splits;  // padded
    static_assert(experts % 2 == 0);
    if (is_routed(b)) return true;
    const auto view = slot_view<T, P, Logits>::current(b);
    const u8* bias = layer_data<T>(b.entry(), Bias);
    clear_choices<P>(b);
    MONOLAYER_NO_UNROLL
    for (int i = Block::thread(); i < b.live * experts / 2; i += Block::threads) {
      const int j = i / (experts / 2), e = i % (experts / 2) * 2, row = b.row(j);
      const u32x2 biases = T::load8(bias + 4 * e);  // on its way while the logits are waited for
      u32x4 v[Splits];
      const u32 lane_offset = u32(row) * u32(view.row_bytes) + u32(e) * 8;
      wait_tagged(b, v, [&](int split) { return based_address{static_cast<const u8*>(T::opaque(view.base)) + split * of_split * 8, lane_offset}; }, b.tag(),
                  b.local_deadline_ns(), {failure::slot_wait, u32(Logits), 0, 0, 0});
      float first = bits_to_float(v[0].v[0]), second = bits_to_float(v[0].v[2]);
      MONOLAYER_UNROLL
      for (int split = 1; split < Splits; ++split) {
        first = add(first, bits_to_float(v[split].v[0]));
        second = add(second, bits_to_float(v[split].v[2]));
      }
      first = sigmoid(first), second = sigmoid(second);
      const u32 at = 4u * u32(j * experts + e);
      T::lds_store4(Block::layout::scores + at, float_to_bits(first));
      T::lds_store4(Block::layout::scores + at + 4, float_to_bits(second));
      T::lds_store4(Block::layout::keys + at, P::router_key(first, bits_to_float(biases.v[0])));
      T::lds_store4(Block::layout::keys + at + 4, P::router_key(second, bits_to_float(biases.v[1])));
    }
    return route<P>(b);
  }
};

/// The routing of kinds that write the slot `Logits`; in the others every row takes experts 0 .. Slices - 2 with weight 1
/// besides the shared one: a dense MLP is the sum of `Slices` expert-shaped ones.
template <int Logits, int Splits, int Bias, int Slices>
struct routing_or_dense {
  template <class Block>
  MONOLAYER_DEVICE static bool prepare(Block& b) {
    using T = typename Block::target;
    using layout = typename Block::layout;
    constexpr int top_k = Block::info.top_k, chosen = Slices - 1;
    static_assert(chosen <= top_k && chosen <= Block::program::experts, "routing_or_dense: more slices than places");
    if (b.writes(Logits)) return routing<Logits, Splits, Bias>::prepare(b);
    if (is_routed(b)) return true;
    const int i = Block::thread();
    if (i < chosen) {
      T::lds_store4(layout::distinct + 4u * u32(i), u32(i));
      T::lds_store4(layout::places + 8u * u32(i), u32(i) * 0x01010101u);
      T::lds_store4(layout::places + 8u * u32(i) + 4u, u32(i) * 0x01010101u);
    }
    if (i < b.live * top_k)
      T::lds_store4(layout::route_weights + 4u * u32(i), float_to_bits(i % top_k < chosen ? 1.0f : -1.0f));
    if (!b.sync()) return false;
    if (i == 0) {
      T::lds_store4(layout::distinct_count, u32(chosen));
      T::lds_flag_store(layout::routing_flag, routing_epoch(b.layer));
    }
    return b.sync();
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
    if (b.staged == u32(Number)) return true;
    const auto routed = slot_view<T, P, Routed>::current(b);
    const auto shared = slot_view<T, P, Shared>::current(b);
    constexpr int pieces = (top_k + 1) * PaddedI / 8;  // of a row, 8 columns each
    constexpr int in_flight = 6;
    const int total = b.live * pieces;
    MONOLAYER_NO_UNROLL
    for (int first = Block::thread(); first - T::lane() < total; first += Block::threads * in_flight) {
      u32x4 v[in_flight];
      MONOLAYER_UNROLL
      for (int i = 0; i < in_flight; ++i) {
        const int piece = first + i * Block::threads;
        v[i] = u32x4{};
        if (piece - T::lane() >= total) continue;  // the wave has no more
        const int j = piece / pieces, place = piece % pieces / (PaddedI / 8), k = piece % (PaddedI / 8) * 8;
        const bool own = place == top_k;
        if (piece >= total || k >= I || (!own && !(routing_table<Block>::weight(j, place) >= 0.0f))) continue;
        const u8* const at = own ? shared.at(b.row(j), k) : routed.at(b.row(j), place * I + k);
        v[i] = T::slot_load16(at);
      }
      MONOLAYER_UNROLL
      for (int i = 0; i < in_flight; ++i) {
        const int piece = first + i * Block::threads;
        if (piece < total)
          T::lds_store16(Block::staged_row(piece / pieces, pieces * 16) + u32(piece % pieces) * 16u, shifted<T>(v[i]));
      }
    }
    if (!b.sync()) return false;
    b.staged = u32(Number);
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
