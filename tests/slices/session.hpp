// Running a model on a backend: memory of all ranks, launches, results. The program that runs may be another one than the
// model's, on another target than it was packed for: tests of mutants do that. A backend has
//   void* allocate(int rank, size_t bytes, const char* name, memory_use)   zeroed, 256-byte aligned
//   void write(void* to, const void* from, size_t), read(void* to, const void* from, size_t)
//   template <class T, class P> void prepared(const rank_memory&, int rank)
//   template <class T, class P> void launch(const launch_params&, int blocks)
#pragma once

#include <algorithm>
#include <cstring>

#include "slices/model.hpp"

namespace monolayer::test {

enum class memory_use { constant, output, slots, mailbox, state };

struct run_options {
  int blocks = 3;
  int groups = 1;
  u32 ring_limit = 0;
  u64 local_deadline_ns = 200'000'000, peer_deadline_ns = 20'000'000'000;
};

/// Every rank learns where the others' mailboxes and states lie.
template <class Rank, std::size_t Ranks>
void introduce_ranks(Rank (&of)[Ranks]) {
  for (std::size_t r = 0; r < Ranks; ++r)
    for (std::size_t o = 0; o < Ranks; ++o) {
      of[r].memory.mailbox[o] = of[o].memory.mailbox[o];
      of[r].memory.state[o] = of[o].memory.state[o];
    }
}

template <class Backend, class T, class C, class Running = T, class Program = slices<C>>
struct session {
  using program = Program;
  using plan = monolayer::plan<Running, program>;
  static constexpr int ranks = C::ranks;

  struct rank_data {
    rank_memory memory;
    layer_entry* layers = nullptr;
    std::vector<layer_entry> entries;
    u16* input = nullptr;
    u16* output = nullptr;
    long long* row_slots = nullptr;
    std::vector<u16*> q;  // by layer; null for slice B
  };
  Backend& backend;
  const model<T, C>& source;
  std::vector<u64> kinds;
  rank_data of[ranks];

  session(Backend& b, const model<T, C>& m) : backend(b), source(m) {
    for (const auto& l : m.layers) kinds.push_back(l.kind);
    for (int r = 0; r < ranks; ++r) allocate(r);
    introduce_ranks(of);
    for (int r = 0; r < ranks; ++r) backend.template prepared<Running, program>(of[r].memory, r);
  }

  /// Fills the inputs of all ranks: bf16 [rows][hidden]. Outputs are poisoned.
  void set_rows(const std::vector<u16>& input, const std::vector<long long>& slots) {
    const std::vector<u16> poison(std::size_t(C::max_rows) * C::hidden, 0x7fc1);
    for (int r = 0; r < ranks; ++r) {
      backend.write(of[r].input, input.data(), input.size() * 2);
      backend.write(of[r].row_slots, slots.data(), slots.size() * 8);
      backend.write(of[r].output, poison.data(), poison.size() * 2);
      const std::vector<u16> q_poison(std::size_t(C::max_rows) * program::q_columns, 0x7fc1);
      for (u16* q : of[r].q)
        if (q != nullptr) backend.write(q, q_poison.data(), q_poison.size() * 2);
    }
  }
  launch_params params(int rank, int rows, int first, int count, const run_options& o) const {
    span_arguments a;
    a.layers = of[rank].layers + first;
    a.kinds = std::span<const u64>(kinds).subspan(std::size_t(first), std::size_t(count));
    const auto before = kinds.begin() + first;  // slice A leaves the stream as it was
    a.input = std::find(kinds.begin(), before, u64(program::slice_b)) == before ? of[rank].input : of[rank].output;
    a.output = of[rank].output;
    a.row_slots = of[rank].row_slots;
    a.rows = rows;
    a.rank = rank;
    a.blocks = o.blocks;
    a.groups = o.groups;
    a.ring_limit = o.ring_limit;
    a.local_deadline_ns = o.local_deadline_ns;
    a.peer_deadline_ns = o.peer_deadline_ns;
    return must(bind<Running, program>(of[rank].memory, a));
  }
  /// Enqueues layers [first, first + count) as one launch on every rank.
  void launch(int rows, int first, int count, const run_options& o) {
    for (int r = 0; r < ranks; ++r) backend.template launch<Running, program>(params(r, rows, first, count, o), o.blocks);
  }
  std::vector<u16> output(int rank) const { return fetch(of[rank].output, std::size_t(C::max_rows) * C::hidden); }
  std::vector<u16> q(int rank, int layer) const {
    return fetch(of[rank].q[std::size_t(layer)], std::size_t(C::max_rows) * program::q_columns);
  }
  device_state state(int rank) const {
    device_state s;
    backend.read(&s, of[rank].memory.state[rank], sizeof s);
    return s;
  }

 private:
  std::vector<u16> fetch(const u16* from, std::size_t count) const {
    std::vector<u16> v(count);
    backend.read(v.data(), from, count * 2);
    return v;
  }
  template <class V>
  V* put(int rank, const V* data, std::size_t count, const char* name, memory_use use = memory_use::constant) {
    V* at = static_cast<V*>(backend.allocate(rank, count * sizeof(V), name, use));
    if (data != nullptr) backend.write(at, data, count * sizeof(V));
    return at;
  }
  bound_weights put(int rank, const packed_matrix& m, const char* name) {
    return {m.header, put(rank, m.bytes.data(), m.bytes.size(), name)};
  }
  /// Experts that were not packed stay zero.
  bound_weights put(int rank, const packed_matrix& m, const std::vector<int>& experts, const char* name) {
    u8* at = put<u8>(rank, nullptr, m.header.bytes, name);
    const std::size_t bytes = m.bytes.size() / experts.size();
    for (std::size_t i = 0; i < experts.size(); ++i)
      backend.write(at + bytes * std::size_t(experts[i]), m.bytes.data() + bytes * i, bytes);
    return {m.header, at};
  }
  void allocate(int r) {
    rank_data& d = of[r];
    rank_memory& m = d.memory;
    m.slots = backend.allocate(r, m.slots_bytes = plan::slots_bytes, "slots", memory_use::slots);
    m.arrivals = backend.allocate(r, m.arrivals_bytes = plan::arrivals_bytes, "arrivals", memory_use::state);
    m.mailbox[r] = backend.allocate(r, m.mailbox_bytes = plan::mailbox_bytes, "mailbox", memory_use::mailbox);
    m.state[r] = backend.allocate(r, m.state_bytes = plan::state_bytes, "state", memory_use::state);
    d.input = put<u16>(r, nullptr, std::size_t(C::max_rows) * C::hidden, "input");
    d.output = put<u16>(r, nullptr, std::size_t(C::max_rows) * C::hidden, "output", memory_use::output);
    d.row_slots = put<long long>(r, nullptr, C::max_rows, "row_slots");
    for (const auto& l : source.layers) {
      if (l.kind == program::slice_a) {
        const packed_a& p = l.packed_for_a;
        u16* q = put<u16>(r, nullptr, std::size_t(C::max_rows) * program::q_columns, "q", memory_use::output);
        d.q.push_back(q);
        slice_a_weights w{put(r, p.input_norm.data(), p.input_norm.size(), "input_norm"),
                          put(r, p.q_a[r], "q_a"), put(r, p.q_a_norm.data(), p.q_a_norm.size(), "q_a_norm"),
                          put(r, p.q_b[r], "q_b"), q};
        d.entries.push_back(must(bind_slice_a<T, C>(w, r)));
      } else {
        const packed_b& p = l.packed_for_b;
        d.q.push_back(nullptr);
        slice_b_weights w{put(r, p.post_norm.data(), p.post_norm.size(), "post_norm"),
                          put(r, p.router[r], "router"),
                          put(r, p.bias.data(), p.bias.size(), "router_bias"),
                          put(r, p.shared_gate_up[r], "shared_gate_up"),
                          put(r, p.shared_down[r], "shared_down"),
                          put(r, p.routed_gate_up[r], p.experts, "routed_gate_up"),
                          put(r, p.routed_down[r], p.experts, "routed_down")};
        d.entries.push_back(must(bind_slice_b<T, C>(w, r)));
      }
    }
    d.layers = put(r, d.entries.data(), d.entries.size(), "layers");
  }
};

}  // namespace monolayer::test
