// Host side of the program: packing a model's tensors for one rank, and the layer entries that a launch walks.
#pragma once

#include <array>
#include <optional>

#include "custom_layer/program.hpp"
#include "monolayer/host/bind.hpp"
#include "monolayer/host/tensors.hpp"

namespace custom_layer {

/// Tensors of one layer, whole matrices of all ranks, [out][in]. A kind leaves empty what it does not have.
struct tensors {
  const u16* norm = nullptr;                       // bf16 [hidden]
  checkpoint_matrix in;                            // [channels of the model][hidden]
  const u16* taps = nullptr;                       // bf16 [taps][channels of the model]
  checkpoint_matrix out;                           // [hidden][channels of the model]
  checkpoint_matrix gate, up;                      // [width of the model][hidden]
  checkpoint_matrix down;                          // [hidden][width of the model]
};

/// What layer_entry::data shall point to, by data_id; unused ones have no bytes.
template <class C>
using packed_layer = std::array<packed_matrix, program<C>::data_count>;

template <class T, class C>
struct packer {
  using P = program<C>;

  /// Packs one layer for a rank. Errors: the first tensor that is null, too small or badly cut.
  static result<packed_layer<C>> pack_layer(u64 kind, const tensors& t, int rank) {
    if (kind >= P::kind_count || rank < 0 || rank >= C::ranks)
      return error(error_code::bad_value, "kind, rank", std::to_string(kind) + ", " + std::to_string(rank),
                   "below " + std::to_string(P::kind_count) + ", " + std::to_string(C::ranks));
    packed_layer<C> all;
    status bad;
    const auto put = [&]<class Stage>(int id, const char* name, std::span<const checkpoint_matrix> m, long features) {
      if (!bad) return;
      auto packed = pack_matrix<T, typename Stage::weights>(m, features, C::ranks, u32(rank), name);
      if (packed) all[std::size_t(id)] = std::move(packed.value());
      else bad = packed.why();
    };
    const auto rows = [&](checkpoint_matrix m, long n) { return m.first_row += rank * n, m; };
    const auto columns = [&](checkpoint_matrix m, long n) { return m.first_column += rank * n, m; };
    if (t.norm == nullptr) return error(error_code::bad_pointer, "norm", "null", "bf16 [hidden]");
    copy(all[P::norm], t.norm, C::hidden);
    if (kind == P::conv) {
      const checkpoint_matrix in = rows(t.in, C::channels), out = columns(t.out, C::channels);
      put.template operator()<typename P::in_stage>(P::in_weights, "in", {&in, 1}, C::channels);
      put.template operator()<typename P::out_stage>(P::out_weights, "out", {&out, 1}, C::hidden);
      if (t.taps == nullptr) return error(error_code::bad_pointer, "taps", "null", "bf16 [taps][channels]");
      std::vector<u16> own;  // this rank's channels
      for (int i = 0; i < C::taps; ++i) {
        const u16* at = t.taps + (long(i) * C::ranks + rank) * C::channels;
        own.insert(own.end(), at, at + C::channels);
      }
      copy(all[P::tap_weights], own.data(), own.size());
    } else {
      const checkpoint_matrix both[2] = {rows(t.gate, C::width), rows(t.up, C::width)};
      const checkpoint_matrix down = columns(t.down, C::width);
      put.template operator()<typename P::gate_up_stage>(P::gate_up_weights, "gate_up", both, C::width);
      put.template operator()<typename P::down_stage>(P::down_weights, "down", {&down, 1}, C::hidden);
    }
    if (!bad) return bad;
    return all;
  }

  /// The entry of a layer whose packed bytes lie on the device at `data`. `state` is the caller's memory, see short_conv;
  /// null for kind mlp. Errors: null or misaligned data, or data that was packed for another kernel or rank.
  static result<layer_entry> bind_layer(u64 kind, const std::array<bound_weights, P::data_count>& data, void* state,
                                        int rank) {
    layer_entry e{};
    e.kind = kind;
    const auto matrix = [&]<class Stage>(int id, const char* name, long features) {
      e.data[id] = data[std::size_t(id)].data;
      return check_weights(name, data[std::size_t(id)],
                           header_for<T, typename Stage::weights>(features, 1, C::ranks, u32(rank)));
    };
    const auto vector = [&](int id, const char* name, const void* at, u64 bytes) {
      e.data[id] = at;
      return detail::check_buffer(name, at, bytes, bytes, 16);
    };
    if (status s = vector(P::norm, "norm", data[P::norm].data, C::hidden * 2); !s) return s;
    if (kind == P::conv) {
      for (const status& s :
           {matrix.template operator()<typename P::in_stage>(P::in_weights, "in", C::channels),
            matrix.template operator()<typename P::out_stage>(P::out_weights, "out", C::hidden),
            vector(P::tap_weights, "taps", data[P::tap_weights].data, C::taps * C::channels * 2),
            vector(P::state, "state", state, P::conv_stage::request_bytes)})
        if (!s) return s;
    } else {
      for (const status& s :
           {matrix.template operator()<typename P::gate_up_stage>(P::gate_up_weights, "gate_up", C::width),
            matrix.template operator()<typename P::down_stage>(P::down_weights, "down", C::hidden)})
        if (!s) return s;
    }
    return e;
  }

 private:
  static void copy(packed_matrix& to, const u16* from, std::size_t count) {
    to.bytes.resize(count * 2);
    std::memcpy(to.bytes.data(), from, count * 2);
  }
};

}  // namespace custom_layer
