// The program: two kinds of layers, one that mixes tokens by a short convolution, one MLP. A launch walks any sequence.
#pragma once

#include "custom_layer/stages.hpp"
#include "monolayer/device/copied_rows.hpp"
#include "monolayer/device/kernel.hpp"
#include "monolayer/stages/moe.hpp"

namespace custom_layer {

/// Constants and formats of one rank. A variant derives from it and changes what it wants.
struct small_config {
  static constexpr int ranks = 2;
  static constexpr int max_rows = 4;
  static constexpr int hidden = 512;
  static constexpr int channels = 256;  // of a rank
  static constexpr int width = 256;     // of a rank
  static constexpr int taps = 4;
  static constexpr int reduce_columns = 32;  // of a tile of the all-reduce
  static constexpr float eps = 1e-6f;
  static constexpr float limit = 1.5f;
  using conv_weights = bf16_weights;
  using mlp_weights = fp8_block<128, 128>;
};

template <class C>
struct program {
  using config = C;
  enum kind_id { conv, mlp, kind_count };
  enum slot_id { x, y, act, partial, hidden, slot_count };
  // layer_entry::data; a kind leaves null what it does not need
  enum data_id { norm, in_weights, tap_weights, state, out_weights, gate_up_weights, down_weights, data_count };

  template <int K>
  static constexpr int padded = weight_tile<bf16_weights, K>::padded_k;
  using stream = inputs::normed_stream<1, hidden, C::hidden, padded<C::hidden>, norm, C::eps>;
  using conv_rows = inputs::copied_slot<2, y, C::channels, padded<C::channels>>;
  using mlp_rows = inputs::copied_slot<3, act, C::width, padded<C::width>>;

  using in_stage = stages::projection<stream, stages::to_slot<x>, C::hidden, C::channels, typename C::conv_weights,
                                      in_weights>;
  using conv_stage = short_conv<C, x, y, tap_weights, state>;
  using out_stage = stages::projection<conv_rows, stages::to_mailbox<partial>, C::channels, C::hidden,
                                       typename C::conv_weights, out_weights>;
  using gate_up_stage = limited_gate_up<C, stream, act, C::hidden, C::width, typename C::mlp_weights, gate_up_weights>;
  using down_stage = stages::projection<mlp_rows, stages::to_mailbox<partial>, C::width, C::hidden,
                                        typename C::mlp_weights, down_weights>;
  using sum_stage = stages::all_reduce<partial, stages::stream_residual<hidden>, hidden, C::hidden, C::reduce_columns,
                                       true>;
  enum code_id { in_code, conv_code, out_code, gate_up_code, down_code, sum_code };
  using codes = code_list<in_stage, conv_stage, out_stage, gate_up_stage, down_stage, sum_stage>;

  static constexpr program_info make_info() {
    constexpr int f = tile_features;
    constexpr slot_read before{hidden, reach::all, true};  // the stream as the layer before left it
    program_info p{.max_rows = C::max_rows, .ranks = C::ranks, .slot_count = slot_count};
    p.slots[x] = slot_info{.name = "x", .type = element::bf16, .columns = C::channels};
    p.slots[y] = slot_info{.name = "y", .type = element::bf16, .columns = C::channels};
    p.slots[act] = slot_info{.name = "act", .type = element::bf16, .columns = C::width};
    p.slots[partial] = slot_info{.name = "partial", .type = element::bf16, .columns = C::hidden,
                                 .parts = sum_stage::tiles, .scope = scope::peers, .transport = transport::tagged,
                                 .buffers = 2};
    p.slots[hidden] = slot_info{.name = "hidden", .type = element::bf16, .columns = C::hidden, .buffers = 2};

    const stage_info sum{.name = "sum", .code = sum_code, .tiles = sum_stage::tiles, .tile_columns = C::reduce_columns,
                         .reads = {{partial, reach::own}, before}, .writes = hidden};
    p.kind_count = kind_count;
    kind_info& c = p.kinds[conv];
    c.name = "conv";
    c.add(stage_info{.name = "in", .code = in_code, .tiles = in_stage::tiles, .tile_columns = f, .reads = {before},
                     .writes = x, .streamed = 1});
    c.add(stage_info{.name = "short_conv", .code = conv_code, .tiles = conv_stage::tiles,
                     .tile_columns = conv_stage::tile_columns, .by_row = true, .reads = {{x}}, .writes = y});
    c.add(stage_info{.name = "out", .code = out_code, .tiles = out_stage::tiles, .tile_columns = f, .reads = {{y}},
                     .writes = partial, .streamed = 1});
    c.add(sum);

    kind_info& m = p.kinds[mlp];
    m.name = "mlp";
    m.add(stage_info{.name = "gate_up", .code = gate_up_code, .tiles = gate_up_stage::tiles, .tile_columns = f,
                     .reads = {before}, .writes = act, .streamed = 1});
    m.add(stage_info{.name = "down", .code = down_code, .tiles = down_stage::tiles, .tile_columns = f, .reads = {{act}},
                     .writes = partial, .streamed = 1});
    m.add(sum);
    count_units(p);
    return p;
  }
  static constexpr program_info info = make_info();

  // Sizes of the block's LDS: the largest chunk of the ring, and a row of the widest staged input.
  static constexpr u32 largest_chunk = codes::largest_chunk;
  static constexpr int widest = C::hidden > C::channels ? (C::hidden > C::width ? C::hidden : C::width)
                                                        : (C::channels > C::width ? C::channels : C::width);
  static constexpr u32 staged_bytes_per_row = padded<widest> * 2 + staged_row_pad;
};

}  // namespace custom_layer
