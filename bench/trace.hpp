// When the stages of a layer begin, wait and end, over all blocks: a target that takes notes, and the table of them.
#pragma once

#include "common.hpp"

namespace bench {

// ---- a target that notes the time of every stage and tile

__device__ u8* trace_records;      // [block][trace_capacity] of 32 bytes
constexpr u32 trace_capacity = 2048;

/// Its notes lie in the free part of the control tables' words for the consumer group, which set_up() clears.
struct traced_target : device_target {
  using T = device_target;
  static constexpr lds_address cursor = 48, last_poll = 52;
  MONOLAYER_DEVICE static u32 now() {
#if defined(__CUDA_ARCH__)
    u32 time;
    asm volatile("mov.u32 %0, %%clock;" : "=r"(time));
    return time;
#else
    return u32(T::clock_ns());
#endif
  }
  MONOLAYER_DEVICE static void note(u32 value) {
    if (T::wave() == 0 && T::lane() == 0) T::lds_store4(last_poll, value);
  }
  MONOLAYER_DEVICE static u32 poll4(const void* at) {
    const u32 v = T::poll4(at);
    note(now());
    return v;
  }
  MONOLAYER_DEVICE static u32x4 tagged_load2(const void* at) {
    const u32x4 v = T::tagged_load2(at);
    note(now());
    return v;
  }
  MONOLAYER_DEVICE static void trace(u32 layer, u32 stage, u32 tile) {
    if (T::wave() != 0 || T::lane() != 0) return;
    const u32 n = T::lds_load4(cursor);
    if (n >= trace_capacity) return;
    u8* at = trace_records + (u64(T::block()) * trace_capacity + n) * 32;
    T::store16(at, {{u32(T::clock_ns()), now(), layer << 16 | stage, tile}});
    T::store16(at + 16, {{T::lds_load4(last_poll), 1, 0, 0}});
    T::lds_store4(cursor, n + 1);
  }
};

// ---- stage times

double median(std::vector<double>& v) {
  if (v.empty()) return NAN;
  std::nth_element(v.begin(), v.begin() + std::ptrdiff_t(v.size() / 2), v.end());
  return v[v.size() / 2];
}

/// Runs a span of `depth` layers of one kind twice with notes, and prints what the second run noted.
template <class Program, class Enqueue>
void print_trace(verdict& verify, const device_state* state, int blocks, int depth, int kind, int rows, Enqueue enqueue) {
  struct record {
    u32 global, clock, place, tile, last_poll, valid, unused[2];
  };
  static u8* memory = device_array<u8>(u64(blocks) * trace_capacity * sizeof(record));
  CHECK(hipMemset(memory, 0, u64(blocks) * trace_capacity * sizeof(record)));
  CHECK(hipMemcpyToSymbol(HIP_SYMBOL(trace_records), &memory, sizeof memory));
  check(prepare_device<traced_target, Program>().why());
  enqueue();
  CHECK(hipMemset(memory, 0, u64(blocks) * trace_capacity * sizeof(record)));  // the first one warmed up
  enqueue();
  CHECK(hipDeviceSynchronize());
  if (!verify(healthy(state, "trace"), "the traced launch ran")) return;
  const std::vector<record> all = fetch(reinterpret_cast<const record*>(memory), std::size_t(blocks) * trace_capacity);
  const kind_info& info = Program::info.kinds[kind];
  struct per_stage {
    std::vector<double> begin, wait, first_tile, other_tile, total, tiles;
  };
  std::vector<per_stage> of(std::size_t(info.stage_count));
  // Blocks are set side by side by the global timer; durations are in the block's own clock.
  std::vector<u32> layer_begin(std::size_t(depth) + 1, 0);
  std::vector<char> seen(std::size_t(depth) + 1, 0);
  for (int b = 0; b < blocks; ++b)
    for (u32 i = 0; i < trace_capacity && all[std::size_t(b) * trace_capacity + i].valid != 0; ++i) {
      const record& r = all[std::size_t(b) * trace_capacity + i];
      const u32 layer = r.place >> 16;
      if ((r.place & 0xffff) != 0 || layer >= u32(depth)) continue;
      if (!seen[layer] || i32(r.global - layer_begin[layer]) < 0) layer_begin[layer] = r.global, seen[layer] = 1;
    }
  std::vector<std::vector<double>> ends(std::size_t(depth), std::vector<double>(std::size_t(info.stage_count), 0));
  double layer_us = double(layer_begin[depth - 1] - layer_begin[1]) * 1e-3 / (depth - 2);
  for (int b = 0; b < blocks; ++b) {
    const record* r = all.data() + std::size_t(b) * trace_capacity;
    u32 n = 0;
    while (n < trace_capacity && r[n].valid != 0) ++n;
    if (n < 2) continue;
    const double ns = double(r[n - 1].global - r[0].global), ticks = double(r[n - 1].clock - r[0].clock);
    const double us = ticks > 0 ? ns / ticks * 1e-3 : 0;  // of a tick
    for (u32 i = 0; i + 1 < n;) {
      const u32 place = r[i].place, layer = place >> 16, stage = place & 0xffff;
      u32 j = i + 1;
      while (j < n && r[j].place == place) ++j;  // r[i]: the stage's begin, then one a tile; r[j]: what follows
      if (j == n) break;
      const u32 tiles = j - i - 1;
      if (layer > 0 && layer < u32(depth) && stage < u32(info.stage_count)) {
        per_stage& st = of[stage];
        auto span = [&](u32 from, u32 to) { return double(i32(to - from)) * us; };
        st.tiles.push_back(tiles);
        if (tiles > 0) {  // blocks without a tile only pass through (the routed stage: after routing)
          st.total.push_back(span(r[i].clock, r[j].clock));
          st.begin.push_back(double(i32(r[i].global - layer_begin[layer])) * 1e-3);
          ends[layer][stage] = std::max(ends[layer][stage], double(i32(r[j].global - layer_begin[layer])) * 1e-3);
          // The routed stage waits before its first tile's note, the others after it.
          const u32 polled = info.stages[stage].routed ? r[i + 1].last_poll : r[std::min(i + 2, j)].last_poll;
          const u32 first_end = r[i + 1 + 1 < j ? i + 2 : j].clock;
          const bool waited = i32(polled - r[i].clock) > 0;
          st.wait.push_back(waited ? span(r[i].clock, polled) : 0);
          st.first_tile.push_back(span(waited ? polled : r[i].clock, first_end));
          if (tiles > 1) st.other_tile.push_back(span(first_end, r[j].clock) / (tiles - 1));
        }
      }
      i = j;
    }
  }
  std::printf("\ntrace: %s, %d rows, us; %.2f us a layer with the notes taken\n", info.name, rows, layer_us);
  std::printf("%-16s %7s %9s %9s %11s %11s %9s %9s\n", "stage", "tiles", "begins at", "waits", "stage+tile1", "later tiles", "in all",
              "last end");
  for (int i = 0; i < info.stage_count; ++i) {
    per_stage& st = of[std::size_t(i)];
    double last = 0;
    for (int l = 1; l < depth; ++l) last += ends[std::size_t(l)][std::size_t(i)] / (depth - 1);
    double tiles = 0;
    for (double t : st.tiles) tiles += t / double(st.tiles.size());
    std::printf("%-16s %7.2f %9.2f %9.2f %11.2f %11.2f %9.2f %9.2f\n", info.stages[i].name, tiles, median(st.begin),
                median(st.wait), median(st.first_tile), median(st.other_tile), median(st.total), last);
  }
}

}  // namespace bench
