// Host side of layers/slices.hpp: packing a checkpoint's tensors for one rank, and the layer entries that a launch walks.
#pragma once

#include "monolayer/host/bind.hpp"
#include "monolayer/host/tensors.hpp"
#include "monolayer/layers/slices.hpp"

namespace monolayer {

/// Tensors of slice A, whole matrices as in the checkpoint (all ranks).
struct slice_a_tensors {
  const u16* input_norm = nullptr;  // bf16 [hidden]
  checkpoint_matrix q_a;            // [q_lora][hidden]
  const u16* q_a_norm = nullptr;    // bf16 [q_lora]
  checkpoint_matrix q_b;            // [all heads * head_dim][q_lora]
};
/// Packing for target T and config C, rank by rank. `pack_*` return the packed matrices or the first error.
template <class T, class C>
struct slice_packer {
  using program = slices<C>;
  using gate_up_tile = typename program::shared_stage::weights;
  using down_tile = typename program::down_stage::weights;
  static constexpr u64 gate_up_bytes = program::routed_stage::expert_bytes;  // of one expert
  static constexpr u64 down_bytes = program::down_stage::expert_bytes;

  template <class Tile>
  static result<packed_matrix> matrix(std::span<const checkpoint_matrix> m, long features, int rank,
                                      const std::string& name) {
    return pack_matrix<T, Tile>(m, features, C::ranks, u32(rank), name);
  }
  static result<packed_matrix> q_a(const slice_a_tensors& t, int rank) {
    return matrix<typename program::q_a_stage::weights>({&t.q_a, 1}, C::q_lora, rank, "q_a");
  }
  static result<packed_matrix> q_b(const slice_a_tensors& t, int rank) {
    checkpoint_matrix m = t.q_b;
    m.first_row += long(rank) * program::q_columns;
    return matrix<typename program::q_b_stage::weights>({&m, 1}, program::q_columns, rank, "q_b");
  }
  static result<packed_matrix> router(const checkpoint_matrix& m, int rank) {
    return pack_matrix<T, typename program::router_stage::weights>({&m, 1}, C::experts, C::ranks, u32(rank), "router",
                                                                   C::router_splits);
  }
  static packed_header router_header(int rank) {
    return header_for<T, typename program::router_stage::weights>(C::router_splits * C::experts, 1, C::ranks, u32(rank));
  }
  /// One expert's gate and up, interleaved tile by tile, into gate_up_bytes bytes.
  static status expert_gate_up(std::span<u8> to, const expert_tensors& e, int rank, const std::string& name) {
    checkpoint_matrix m[2] = {e.gate, e.up};
    for (checkpoint_matrix& one : m) one.first_row += long(rank) * C::expert_width;
    return pack<T, gate_up_tile>(to, m, C::expert_width, name);
  }
  static status expert_down(std::span<u8> to, const expert_tensors& e, int rank, const std::string& name) {
    checkpoint_matrix m = e.down;
    m.first_column += long(rank) * C::expert_width;
    return pack<T, down_tile>(to, {&m, 1}, C::hidden, name);
  }
  static packed_header gate_up_header(u32 count, int rank) {
    return header_for<T, gate_up_tile>(C::expert_width, count, C::ranks, u32(rank));
  }
  static packed_header down_header(u32 count, int rank) {
    return header_for<T, down_tile>(C::hidden, count, C::ranks, u32(rank));
  }
};

/// Device addresses of a slice's weights, with the headers they were packed with.
struct slice_a_weights {
  const void* input_norm = nullptr;  // bf16 [hidden]
  bound_weights q_a;
  const void* q_a_norm = nullptr;
  bound_weights q_b;
  void* q = nullptr;  // output: bf16 [max_rows][heads of the rank * head_dim]
};
struct slice_b_weights {
  const void* post_norm = nullptr;
  bound_weights router;
  const void* router_bias = nullptr;  // f32 [experts]
  bound_weights shared_gate_up, shared_down, routed_gate_up, routed_down;
};

template <class T, class C>
result<layer_entry> bind_slice_a(const slice_a_weights& w, int rank) {
  using P = slices<C>;
  for (const status& s :
       {detail::check_buffer("input_norm", w.input_norm, C::hidden * 2, C::hidden * 2, 16),
        detail::check_buffer("q_a_norm", w.q_a_norm, C::q_lora * 2, C::q_lora * 2, 16),
        detail::check_buffer("q", w.q, 16, 16, 16),
        check_weights("q_a", w.q_a, header_for<T, typename P::q_a_stage::weights>(C::q_lora, 1, C::ranks, u32(rank))),
        check_weights("q_b", w.q_b, header_for<T, typename P::q_b_stage::weights>(P::q_columns, 1, C::ranks, u32(rank)))})
    if (!s) return s;
  layer_entry e{};
  e.kind = P::slice_a;
  e.data[P::input_norm] = w.input_norm;
  e.data[P::q_a_weights] = w.q_a.data;
  e.data[P::q_a_norm] = w.q_a_norm;
  e.data[P::q_b_weights] = w.q_b.data;
  e.output = w.q;
  return e;
}

template <class T, class C>
result<layer_entry> bind_slice_b(const slice_b_weights& w, int rank) {
  using P = slices<C>;
  using packer = slice_packer<T, C>;
  for (const status& s :
       {detail::check_buffer("post_norm", w.post_norm, C::hidden * 2, C::hidden * 2, 16),
        detail::check_buffer("router_bias", w.router_bias, C::experts * 4, C::experts * 4, 16),
        check_weights("router", w.router, packer::router_header(rank)),
        check_weights("shared_gate_up", w.shared_gate_up, packer::gate_up_header(1, rank)),
        check_weights("shared_down", w.shared_down, packer::down_header(1, rank)),
        check_weights("routed_gate_up", w.routed_gate_up, packer::gate_up_header(C::experts, rank)),
        check_weights("routed_down", w.routed_down, packer::down_header(C::experts, rank))})
    if (!s) return s;
  layer_entry e{};
  e.kind = P::slice_b;
  e.data[P::post_norm] = w.post_norm;
  e.data[P::router_weights] = w.router.data;
  e.data[P::router_bias] = w.router_bias;
  e.data[P::shared_gate_up] = w.shared_gate_up.data;
  e.data[P::shared_down] = w.shared_down.data;
  e.data[P::routed_gate_up] = w.routed_gate_up.data;
  e.data[P::routed_down] = w.routed_down.data;
  return e;
}

}  // namespace monolayer
