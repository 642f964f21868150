// A layer that is latent attention alone: its slots are fed from memory, its results stay in slots for the test to read.
#pragma once

#include "monolayer/device/kernel.hpp"
#include "monolayer/stages/cache_rows.hpp"
#include "monolayer/stages/mla.hpp"

namespace monolayer::test {

struct mla_base {
  static constexpr int max_rows = 8;
  static constexpr int nope = 192, rope = 64, v_dim = 64, kv_lora = 512;
  static constexpr int index_topk = 128, kv_splits = 4;
  using index_cache = bf16_keys;
  static constexpr float kv_a_eps = 1e-6f, softmax_scale = 0.0625f;
};
template <int Heads, class Weights, class Rows>
struct mla_config : mla_base {
  static constexpr int heads = Heads, heads_at_once = Heads < 16 ? Heads : 16;
  using attention_weights = Weights;
  using kv_cache = Rows;
};

/// Copies a slot's rows of the live rows from layer_entry::data[Data], [max_rows][row bytes].
template <int Slot, int Data>
struct feed {
  using input = inputs::none;
  using weights = void;
  template <class Block>
  MONOLAYER_DEVICE static bool run_tile(Block& b, int) {
    using T = typename Block::target;
    using view = slot_view<T, typename Block::program, Slot>;
    const view to = view::current(b);
    constexpr int words = int(view::row_bytes / 16);
    for (int i = Block::thread(); i < b.live * words; i += Block::threads) {
      const int row = b.row(i / words);
      T::slot_store16(to.at(row, 0) + i % words * 16,
                      T::load16(layer_data<T>(b.entry(), Data) + u64(row) * view::row_bytes + i % words * 16));
    }
    return true;
  }
};
struct finish {
  using input = inputs::none;
  using weights = void;
  template <class Block>
  MONOLAYER_DEVICE static bool run_tile(Block&, int) {
    return true;
  }
};

/// Kinds: `full` feeds index keys and picks; `listed` has neither.
template <class C>
struct mla_program {
  using config = C;
  enum slot_id { kv, ik, q, own, picks, ql, o_part, o, done, slot_count };
  enum data_id {
    kv_data, ik_data, q_data, picks_data, kv_norm, key_weight, key_bias, w_uk, w_uv, kv_cache, index_cache
  };
  enum kind_id { full, listed };

  using rows_stage = stages::cache_rows<C, kv, ik, own, kv_norm, key_weight, key_bias, kv_cache,
                                        index_cache>;
  using absorb_stage = stages::absorb<C, q, ql, w_uk>;
  using attention_stage = stages::attention<C, q, ql, picks, own, o_part, kv_cache>;
  using v_up_stage = stages::v_up<C, attention_stage, o_part, o, w_uv>;
  using codes = code_list<feed<kv, kv_data>, feed<ik, ik_data>, feed<q, q_data>, feed<picks, picks_data>, rows_stage,
                          absorb_stage, attention_stage, v_up_stage, finish>;

  static constexpr int q_columns = C::heads * (C::nope + C::rope);
  static constexpr int latent = C::kv_cache::latent;

  static constexpr program_info make_info() {
    program_info p{.max_rows = C::max_rows, .slot_count = slot_count};
    p.fan_out_limit = 1'000'000'000'000;
    p.slots[kv] = slot_info{.name = "kv", .type = element::f32, .columns = latent + C::rope, .units = 1};
    p.slots[ik] = slot_info{.name = "ik", .type = element::f32, .columns = index_dim, .units = 1};
    p.slots[q] = slot_info{.name = "q", .type = element::bf16, .columns = q_columns, .units = 1};
    p.slots[own] = slot_info{.name = "own", .type = element::bf16, .columns = rows_stage::own_columns, .units = C::max_rows};
    p.slots[picks] = slot_info{.name = "picks", .type = element::u32, .columns = C::index_topk + 4, .units = 1};
    p.slots[ql] = slot_info{.name = "ql", .type = element::bf16, .columns = C::heads * latent, .parts = C::heads,
                            .units = absorb_stage::of_head};
    p.slots[o_part] = slot_info{.name = "o_part", .type = element::f32, .columns = attention_stage::part_columns,
                                .parts = attention_stage::groups, .units = C::max_rows * C::kv_splits};
    p.slots[o] = slot_info{.name = "o", .type = element::bf16, .columns = C::heads * C::v_dim, .units = v_up_stage::tiles};
    p.slots[done] = slot_info{.name = "done", .units = 1};
    p.kind_count = 2;
    for (int kind : {full, listed}) {
      kind_info& k = p.kinds[kind];
      k.name = kind == full ? "full" : "listed";
      const auto add = [&](stage_info s) { k.stages[k.stage_count++] = s; };
      const auto fed = [&](const char* name, int code, int slot) {
        add(stage_info{.name = name, .code = code, .tiles = 1, .tile_columns = p.slots[slot].columns,
                       .reads = {{done, reach::all, true}}, .writes = slot});
      };
      fed("feed_kv", 0, kv);
      if (kind == full) fed("feed_ik", 1, ik);
      fed("feed_q", 2, q);
      if (kind == full) fed("feed_picks", 3, picks);
      add(stage_info{.name = "cache_rows", .code = 4, .tiles = C::max_rows, .tile_columns = rows_stage::own_columns,
                     .by_row = true, .reads = {{kv}, {kind == full ? ik : -1}}, .writes = own});
      add(stage_info{.name = "absorb", .code = 5, .tiles = absorb_stage::tiles, .tile_columns = absorb_stage::tile_columns,
                     .reads = {{q}}, .writes = ql, .streamed = 1});
      add(stage_info{.name = "attention", .code = 6, .tiles = attention_stage::tiles,
                     .tile_columns = attention_stage::tile_columns, .by_row = true,
                     .reads = {{q}, {ql}, {own}, {picks, reach::all, kind == listed}}, .writes = o_part});
      add(stage_info{.name = "v_up", .code = 7, .tiles = v_up_stage::tiles, .tile_columns = v_up_stage::tile_columns,
                     .reads = {{o_part, reach::own}}, .writes = o, .streamed = 1});
      add(stage_info{.name = "finish", .code = 8, .tiles = 1, .reads = {{o}}, .writes = done});
    }
    return p;
  }
  static constexpr program_info info = make_info();

  static constexpr int experts = 2;  // the layout of LDS wants to know
  static constexpr u32 larger(u32 a, u32 b) { return a > b ? a : b; }
  static constexpr u32 largest_chunk = larger(absorb_stage::weights::chunk_bytes, v_up_stage::weights::chunk_bytes);
  static constexpr u32 staged_bytes_per_row = 1024;
  template <class T>
  static constexpr u32 least_staged_bytes =
      larger(larger(absorb_stage::template scratch_bytes<T>, attention_stage::template scratch_bytes<T>),
             v_up_stage::template scratch_bytes<T>);
};

}  // namespace monolayer::test
