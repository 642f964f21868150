// The indexer's stages as a program of their own: what other stages would write into slots is copied there from memory.
#pragma once

#include "monolayer/device/kernel.hpp"
#include "monolayer/stages/index_top_k.hpp"
#include "monolayer/stages/indexer.hpp"

namespace indexer_test {

using namespace monolayer;

/// Copies rows from layer_entry::data[Data] to a slot.
template <int Slot, int Data>
struct feed {
  using input = inputs::none;
  using weights = void;
  template <class Block>
  MONOLAYER_DEVICE static bool run_tile(Block& b, int row) {
    using T = typename Block::target;
    const auto to = slot_view<T, typename Block::program, Slot>::current(b);
    if (b.column_of(row) < 0) return true;
    const u8* from = layer_data<T>(b.entry(), Data) + u64(row) * to.row_bytes;
    for (u64 at = 16 * u64(Block::thread()); at < to.row_bytes; at += 16 * u64(Block::threads))
      T::slot_store16(to.at(row, 0) + at, T::load16(from + at));
    return true;
  }
};
/// Copies the picks to the layer's output.
template <int Slot>
struct take {
  using input = inputs::none;
  using weights = void;
  template <class Block>
  MONOLAYER_DEVICE static bool run_tile(Block& b, int row) {
    using T = typename Block::target;
    using view = slot_view<T, typename Block::program, Slot>;
    if (b.column_of(row) < 0) return true;
    const auto from = view::current(b);
    constexpr int columns = view::s.columns;
    const int count = int(T::slot_load4(from.at(row, columns - 4)));
    for (int i = Block::thread(); i < columns - 3; i += Block::threads)
      if (i < count || i == columns - 4)
        T::store4(static_cast<u32*>(b.entry().output) + row * columns + i, T::slot_load4(from.at(row, i)));
    return true;
  }
};

template <class Format_, int Heads_, int TopK_, int Stripes_, int MaxContext_, int Capacity = top_k_capacity(TopK_)>
struct indexer_program {
  using format = Format_;
  static constexpr int heads = Heads_, top_k = TopK_, stripes = Stripes_, max_context = MaxContext_, rows = 4;
  static constexpr int kv_bytes = 64;  // a short row before the key
  static constexpr int own_bytes = kv_bytes + int(format::own_bytes);
  enum slot_id { iq, iw, own, scores, picks, slot_count };
  enum data_id { iq_data, iw_data, own_data, cache_data, picks_data };

  using feed_iq = feed<iq, iq_data>;
  using feed_iw = feed<iw, iw_data>;
  using feed_own = feed<own, own_data>;
  using scores_stage = stages::index_scores<iq, iw, own, scores, heads, format, kv_bytes, stripes, cache_data>;
  using top_k_stage = stages::index_top_k<scores, picks, top_k, picks_data, Capacity>;
  using take_stage = take<picks>;
  using codes = code_list<feed_iq, feed_iw, feed_own, scores_stage, top_k_stage, take_stage>;

  static constexpr program_info make_info() {
    program_info p{.max_rows = rows, .top_k = 1, .ranks = 1, .slot_count = slot_count};
    p.slots[iq] = slot_info{.name = "iq", .type = element::bf16, .columns = heads * 128, .units = rows};
    p.slots[iw] = slot_info{.name = "iw", .type = element::f32, .columns = (heads + 15) / 16 * 16, .units = rows};
    p.slots[own] = slot_info{.name = "own", .type = element::bf16, .columns = own_bytes / 2, .units = rows};
    p.slots[scores] =
        slot_info{.name = "scores", .type = element::f32, .columns = max_context, .parts = rows, .units = stripes};
    p.slots[picks] = slot_info{.name = "picks", .type = element::u32, .columns = top_k + 4, .parts = rows, .units = 1};
    p.kind_count = 1;
    p.kinds[0] = kind_info{
        .name = "indexer",
        .stage_count = 6,
        .stages = {
            {.name = "feed_iq", .code = 0, .tiles = rows, .tile_columns = heads * 128, .by_row = true, .writes = iq},
            {.name = "feed_iw",
             .code = 1,
             .tiles = rows,
             .tile_columns = (heads + 15) / 16 * 16,
             .by_row = true,
             .writes = iw},
            {.name = "feed_own",
             .code = 2,
             .tiles = rows,
             .tile_columns = own_bytes / 2,
             .by_row = true,
             .writes = own},
            {.name = "scores",
             .code = 3,
             .tiles = rows * stripes,
             .tile_columns = max_context / stripes,
             .by_row = true,
             .reads = {{iq}, {iw}, {own}},
             .writes = scores},
            {.name = "top_k",
             .code = 4,
             .tiles = rows,
             .tile_columns = top_k + 4,
             .by_row = true,
             .reads = {{scores, reach::own}},
             .writes = picks},
            {.name = "take", .code = 5, .tiles = rows, .by_row = true, .reads = {{picks, reach::own}}}}};
    return p;
  }
  static constexpr program_info info = make_info();
  static constexpr int experts = 16;
  static constexpr u32 largest_chunk = 4096, staged_bytes_per_row = 1024;
  template <class T>
  static constexpr u32 least_staged_bytes =
      scores_stage::template scratch_bytes<T> > top_k_stage::template scratch_bytes<T>
          ? scores_stage::template scratch_bytes<T>
          : top_k_stage::template scratch_bytes<T>;
};

}  // namespace indexer_test
