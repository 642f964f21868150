// The program on a simulated machine: memory of all ranks, packed weights, one decode step a launch.
#pragma once

#include "custom_layer/model.hpp"
#include "monolayer/host/launch_sim.hpp"

namespace custom_layer {

/// A row of a step: which request's token it is, and which one (from 0). request < 0: a dead row.
struct token_row {
  int request, position;
};

/// T: a simulated target. P: the program that runs; tests let one run that has a mistake.
template <class T, class C, class P = program<C>>
class simulated {
 public:
  status why;  // the first error of the host side

  simulated(const model<C>& m, int requests, int blocks, u64 seed)
      : blocks_(blocks),
        machine_({.ranks = C::ranks, .seed = seed, .stage_name = [this](u32 layer, u32 stage) {
                    return P::info.kinds[kinds_[layer]].stages[stage].name;
                  }}) {
    memory_ = allocate_ranks<T, P>(machine_);
    for (const auto& layer : m.layers) kinds_.push_back(layer.kind);
    for (int r = 0; r < C::ranks && why; ++r) {
      rank_data& d = of_[r];
      d.input = array<u16>(r, C::max_rows * C::hidden, "input");
      d.output = array<u16>(r, C::max_rows * C::hidden, "output", sim::memory::output);
      d.row_slots = array<long long>(r, C::max_rows, "row_slots");
      d.positions = array<long long>(r, C::max_rows, "positions");
      d.layers = array<layer_entry>(r, m.layers.size(), "layers");
      for (std::size_t i = 0; i < m.layers.size() && why; ++i) load(d.layers[i], m.layers[i], r, requests);
    }
  }

  /// Runs all layers for one token of each live row; `rows` is bf16 [max_rows][hidden]. The report says what
  /// the simulator saw; output() has the result.
  sim::report step(const std::vector<token_row>& tokens, const std::vector<u16>& rows) {
    for (int r = 0; r < C::ranks && why; ++r) {
      rank_data& d = of_[r];
      std::copy(rows.begin(), rows.end(), d.input);
      for (std::size_t i = 0; i < tokens.size(); ++i) {
        d.row_slots[i] = tokens[i].request;
        d.positions[i] = tokens[i].position;
      }
      span_arguments a;
      a.layers = d.layers;
      a.kinds = kinds_;
      a.input = d.input;
      a.output = d.output;
      a.row_slots = d.row_slots;
      a.batch.positions = d.positions;
      a.rows = int(tokens.size());
      a.rank = r;
      a.blocks = blocks_;
      const auto params = bind<T, P>(memory_[std::size_t(r)], a);
      why = params ? launch<T, P>(machine_, params.value(), blocks_) : params.why();
    }
    if (why) return machine_.run();
    sim::report refused;
    refused.ok = false;
    refused.text = why.text();
    return refused;
  }
  const u16* output(int rank) const { return of_[rank].output; }

 private:
  struct rank_data {
    u16 *input, *output;
    long long *row_slots, *positions;
    layer_entry* layers;
  };

  template <class V>
  V* array(int rank, std::size_t count, const char* name, sim::memory use = sim::memory::plain) {
    return machine_.allocate_array<V>(rank, count, name, use, sim::fill::zero);
  }
  void load(layer_entry& to, const typename model<C>::layer& layer, int rank, int requests) {
    const auto packed = packer<T, C>::pack_layer(layer.kind, layer.view(), rank);
    if (!packed) {
      why = packed.why();
      return;
    }
    std::array<bound_weights, P::data_count> data;
    for (std::size_t id = 0; id < data.size(); ++id) {
      const packed_matrix& m = packed.value()[id];
      if (m.bytes.empty()) continue;
      u8* at = array<u8>(rank, m.bytes.size(), "weights");
      std::copy(m.bytes.begin(), m.bytes.end(), at);
      data[id] = {m.header, at};
    }
    void* state = nullptr;
    if (layer.kind == P::conv)
      state =
          array<u8>(rank, P::conv_stage::request_bytes * std::size_t(requests), "state", sim::memory::output);
    const auto entry = packer<T, C>::bind_layer(layer.kind, data, state, rank);
    if (entry)
      to = entry.value();
    else
      why = entry.why();
  }

  int blocks_;
  std::vector<u64> kinds_;
  sim::machine machine_;
  std::array<rank_memory, std::size_t(C::ranks)> memory_;
  rank_data of_[C::ranks];
};

}  // namespace custom_layer
