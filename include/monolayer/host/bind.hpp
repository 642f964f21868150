// Binding: everything that a caller can get wrong is checked here, once, on the host; a launch then only passes the
// checked parameters on.
#pragma once

#include <span>

#include "monolayer/host/pack.hpp"
#include "monolayer/host/paging.hpp"

namespace monolayer {

/// Device memory of one rank, sizes as plan<> says. `state`, `slots`, `arrivals` and `mailbox` are zeroed by the
/// caller once. Mailboxes and states of all ranks appear as this rank addresses them (peer access or IPC); entry
/// [rank] is its own.
struct rank_memory {
  void* slots = nullptr;
  u64 slots_bytes = 0;
  void* arrivals = nullptr;
  u64 arrivals_bytes = 0;
  void* mailbox[max_ranks] = {};
  u64 mailbox_bytes = 0;
  void* state[max_ranks] = {};
  u64 state_bytes = 0;
};

/// One launch: a span of layers over a batch of rows.
struct span_arguments {
  const layer_entry* layers = nullptr;     // device memory [layer_count]
  std::span<const u64> kinds;              // host copy of the layers' kinds
  const void* input = nullptr;             // bf16 [rows][hidden], contiguous
  void* output = nullptr;                  // the same shape; `input` itself or disjoint from it
  const long long* row_slots = nullptr;    // device memory [rows], negative = dead row
  batch_view batch = {};                   // of programs with caches
  int rows = 0;
  int rank = 0;
  int blocks = 0;
  int groups = 1;
  u64 local_deadline_ns = 200'000'000;
  u64 peer_deadline_ns = 20'000'000'000;
  u32 ring_limit = 0;  // fewer ring slots than fit, for tests
};

/// Checks the arguments and returns what the kernel takes. Errors: see each check; nothing is touched.
template <class T, class P>
result<launch_params> bind(const rank_memory& m, const span_arguments& a) {
  using plan = monolayer::plan<T, P>;
  using detail::check_buffer, detail::check_range;
  const u64 hidden_bytes = u64(P::info.slots[P::hidden].columns) * 2;
  const u64 layer_bytes = a.kinds.size() * sizeof(layer_entry);
  for (const status& s :
       {check_range("rank", a.rank, 0, plan::ranks - 1), check_range("rows", a.rows, 1, plan::max_rows),
        check_range("blocks", a.blocks, 1, plan::max_blocks), check_range("groups", a.groups, 1, a.blocks),
        check_range("layers", static_cast<long long>(a.kinds.size()), 1, 4096),
        check_range("local_deadline_ns", static_cast<long long>(a.local_deadline_ns), 1'000, 3'600'000'000'000),
        check_range("peer_deadline_ns", static_cast<long long>(a.peer_deadline_ns), 1'000, 3'600'000'000'000),
        check_buffer("layers", a.layers, layer_bytes, layer_bytes, 8),
        check_buffer("row_slots", a.row_slots, u64(a.rows) * 8, u64(a.rows) * 8, 8),
        check_buffer("input", a.input, hidden_bytes, hidden_bytes, 16),
        check_buffer("slots", m.slots, m.slots_bytes, plan::slots_bytes, 256),
        check_buffer("arrivals", m.arrivals, m.arrivals_bytes, plan::arrivals_bytes, 128)})
    if (!s) return s;
  if (a.ring_limit != 0 && a.ring_limit < plan::lds::fewest_slots)
    return error(error_code::bad_value, "ring_limit", std::to_string(a.ring_limit),
                 "0, or at least " + std::to_string(plan::lds::fewest_slots));
  if (a.groups > 1 && a.blocks % a.groups != 0)
    return error(error_code::bad_value, "groups", std::to_string(a.groups) + " groups of " +
                 std::to_string(a.blocks) + " blocks", "groups of one size");
  for (std::size_t i = 0; i < a.kinds.size(); ++i)
    if (a.kinds[i] >= u64(P::info.kind_count))
      return error(error_code::bad_value, "kinds[" + std::to_string(i) + "]", std::to_string(a.kinds[i]),
                   "below " + std::to_string(P::info.kind_count));
  bool writes_stream = false;
  for (u64 kind : a.kinds) writes_stream |= (slots_written(P::info.kinds[kind]) >> P::hidden & 1u) != 0;
  if (writes_stream) {
    if ((slots_written(P::info.kinds[a.kinds.back()]) >> P::hidden & 1u) == 0)
      return error(error_code::bad_value, "kinds", "a last layer that does not write the residual stream",
                   "a span that ends with the layer whose stream is the output");
    if (status s = check_buffer("output", a.output, hidden_bytes, hidden_bytes, 16); !s) return s;
    const auto in = reinterpret_cast<std::uintptr_t>(a.input), out = reinterpret_cast<std::uintptr_t>(a.output);
    const u64 bytes = hidden_bytes * u64(a.rows);
    if (in != out && in < out + bytes && out < in + bytes)
      return error(error_code::bad_pointer, "output", "a range that overlaps `input`", "`input` itself, or disjoint");
  }
  if constexpr (requires { P::max_context; }) {
    bool listed = false, picked = false;
    for (u64 kind : a.kinds) {
      const bool picks = (slots_written(P::info.kinds[kind]) >> P::picks & 1u) != 0;
      listed |= !picks && !picked;
      picked |= picks;
    }
    if (status s = check_batch<P>(a.batch, a.rows, listed); !s) return s;
  }
  launch_params p{};
  for (int r = 0; r < plan::ranks; ++r) {
    const std::string of = "[" + std::to_string(r) + "]";
    if (status s = check_buffer(("mailbox" + of).c_str(), m.mailbox[r], m.mailbox_bytes, plan::mailbox_bytes, 256); !s)
      return s;
    if (status s = check_buffer(("state" + of).c_str(), m.state[r], m.state_bytes, plan::state_bytes, 128); !s)
      return s;
    for (int other = 0; other < r; ++other)
      if (m.mailbox[other] == m.mailbox[r] || m.state[other] == m.state[r])
        return error(error_code::bad_pointer, (m.mailbox[other] == m.mailbox[r] ? "mailbox" : "state") + of, "the memory of rank " + std::to_string(other),
                     "memory of its own for each rank");
    p.mailbox[r] = static_cast<u8*>(m.mailbox[r]);
    p.peer_state[r] = static_cast<device_state*>(m.state[r]);
  }
  p.state = p.peer_state[a.rank];
  p.layers = a.layers;
  p.input = a.input;
  p.output = a.output;
  p.row_slots = a.row_slots;
  p.slots = static_cast<u8*>(m.slots);
  p.arrivals = static_cast<u8*>(m.arrivals);
  p.batch = a.batch;
  p.local_deadline_ns = a.local_deadline_ns;
  p.peer_deadline_ns = a.peer_deadline_ns;
  p.layer_count = static_cast<int>(a.kinds.size());
  p.rows = a.rows;
  p.rank = a.rank;
  p.groups = a.groups;
  p.lds_bytes = T::lds_bytes;
  p.ring_limit = a.ring_limit;
  return p;
}

/// Packed weights in device memory, with the header they were packed with.
struct bound_weights {
  packed_header header;
  const void* data = nullptr;
};

/// Refuses weights that were packed for another target, format, geometry or rank.
inline status check_weights(const std::string& name, const bound_weights& w, const packed_header& wanted) {
  if (w.data == nullptr) return error(error_code::bad_pointer, name, "null", "packed weights");
  if (reinterpret_cast<std::uintptr_t>(w.data) % 16 != 0)
    return error(error_code::bad_pointer, name, "a misaligned address", "16-byte alignment");
  const packed_header& h = w.header;
  auto differ = [&](const char* field, u64 seen, u64 want) {
    return error(error_code::mismatch, name + "." + field, std::to_string(seen), std::to_string(want));
  };
  if (h.magic != wanted.magic) return differ("magic", h.magic, wanted.magic);
  if (h.layout_version != wanted.layout_version) return differ("layout_version", h.layout_version, wanted.layout_version);
  if (h.wave_size != wanted.wave_size) return differ("wave_size", h.wave_size, wanted.wave_size);
  if (h.format != wanted.format) return differ("format", h.format, wanted.format);
  if (h.subtiles != wanted.subtiles) return differ("subtiles", h.subtiles, wanted.subtiles);
  if (h.features != wanted.features) return differ("features", h.features, wanted.features);
  if (h.k != wanted.k) return differ("k", h.k, wanted.k);
  if (h.count != wanted.count) return differ("count", h.count, wanted.count);
  if (h.ranks != wanted.ranks) return differ("ranks", h.ranks, wanted.ranks);
  if (h.rank != wanted.rank) return differ("rank", h.rank, wanted.rank);
  if (h.bytes != wanted.bytes) return differ("bytes", h.bytes, wanted.bytes);
  return {};
}

}  // namespace monolayer
