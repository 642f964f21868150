// bench/layer: whole GLM-5 MoE layers, one rank of TP4 or TP8 that reduces with itself, beside a stream of the same bytes
// (weights of the experts chosen, cache rows attended to, index keys scored).
//
// Spans have `depth` layers, every one with weights and caches of its own. Before any time is printed a layer of each kind
// is compared with float64 (smaller weights, same kernel), two launches of a span must agree bit for bit, and rows alone
// must have the bits that they have among eight.
//   nvcc ... -DLAYER_TP=4 bench/layer.cpp -o layer; ./layer [context]
#include <algorithm>
#include <cstring>

#define MONOLAYER_TEST_ON_GPU
#include "glm5/against_reference.hpp"
#undef CHECK
#undef REQUIRE
#undef INFO
#include "monolayer/host/describe.hpp"
#include "trace.hpp"

#ifndef LAYER_TP
#define LAYER_TP 4
#endif

namespace bench {

using T = device_target;
namespace test = monolayer::test;

/// One rank's share of a layer; its partial sums go through the mailbox to itself.
struct loopback : glm5_layer<LAYER_TP> {
  static constexpr int ranks = 1;
};
using C = loopback;
using P = glm5<C>;
using host = glm5_host<T, C>;
constexpr int depth = 4, max_rows = C::max_rows;

// ---- against float64

/// A layer with twelve experts of its 256, two requests, contexts beyond index_topk.
bool layer_is_right(verdict& verify) {
  const auto options = test::glm5_formats_of<C>();
  auto g = test::glm5_geometry_of<C>();
  std::vector<reference::glm5_layer> weights;
  weights.push_back(reference::make_glm5_layer(g, 5, options));
  const test::glm5_model<T, C> model(std::move(weights), {0, 3, 17, 64, 65, 100, 127, 128, 191, 200, 254, 255});
  test::layer_setup setup;
  setup.blocks = std::min(compute_units(), plan<T, P>::max_blocks);
  setup.paging.requests = 2;
  setup.paging.tokens = 2600;
  setup.paging.block_size = 64;
  test::layer_rig<T, C> rig(model, setup);
  const std::vector<test::token_row> rows = {{0, 2500}, test::dead_row, {1, 100}, {1, 101}};
  const auto input = reference::to_bf16(reference::random_activations(int(rows.size()), C::hidden, 9));
  std::vector<reference::request_cache> caches;
  for (int i = 0; i < 2; ++i) {
    caches.push_back(reference::random_cache(2600, 576, 128, u64(31 + i)));
    rig.s.set_cache(0, i, caches.back());
  }
  const auto e = test::check_layer(rig, 0, rows, input, caches, 2e-3);
  const auto& checks = test::plain_checks::all();
  std::printf("a layer of GLM-5's sizes against float64: %.2e (limit 2e-3), its stages %.2e (limit 1e-3)\n", e.out, e.stages);
  return verify(checks.failed == 0, "the layer against float64");
}

// ---- the timed layers

template <class Stage>
u64 fill(u8*& next, u64 features_tiles, u64 count, u64 seed, int k) {
  using tile = typename Stage::weights;
  const u64 bytes = features_tiles * tile::bytes * count;
  fill_weights<T, tile>(next, bytes, seed, unit_gain<typename tile::format>(k));
  return bytes;
}

struct session {
  hipStream_t stream;
  verdict verify;
  int blocks = 0, context = 8192;
  u8* arena = nullptr;
  u64 arena_bytes = 0;
  std::vector<layer_entry> entries;  // depth x moe, depth x moe_listed
  layer_entry* layers = nullptr;
  std::vector<std::vector<float>> bias;
  launch_params p;
  std::vector<u16> input;
  u16* output = nullptr;

  static packed_header header(int id) { return *host::header_of(P::moe, id, 0); }
  static std::vector<u16> near_one(int n, u64 seed) {
    std::vector<u16> v = random_bf16(std::size_t(n), seed, 0.1);
    for (u16& x : v) x = from_float<bf16>(float(1 + bf16_value(x))).bits;
    return v;
  }
  /// Bytes of a data entry that every launch reads; of routed experts those of one.
  static double bytes_of(int id) {
    const packed_header h = header(id);
    return double(h.bytes) / (id == P::routed_gate_up || id == P::routed_down ? C::experts : 1);
  }

  template <class Tile>
  void fill_data(int id, u8* at, u64 seed) {
    fill_weights<T, Tile>(at, header(id).bytes, seed, unit_gain<typename Tile::format>(Tile::k));
  }
  void build() {
    const u64 rows_bytes = u64(max_rows) * u64(context) * C::kv_cache::bytes;
    const u64 key_bytes = u64(max_rows) * u64(context) * 256;
    u64 layer_bytes = align_up(rows_bytes, 1024) + align_up(key_bytes, 1024);
    for (int id = 0; id < P::data_count; ++id)
      if (const auto h = host::header_of(P::moe, id, 0)) layer_bytes += align_up(h->bytes, 1024);
    arena_bytes = depth * layer_bytes;
    CHECK(hipMalloc(reinterpret_cast<void**>(&arena), arena_bytes));
    u8* next = arena;
    const auto take = [&](u64 bytes) {
      u8* at = next;
      next += align_up(bytes, 1024);
      return at;
    };
    std::vector<layer_entry> own, listed;
    for (int i = 0; i < depth; ++i) {
      const u64 seed = 1000 + 100 * u64(i);
      bound_glm5<C> b;
      for (int id = 0; id < P::data_count; ++id) {
        const auto h = host::header_of(P::moe, id, 0);
        if (!h) continue;
        u8* at = take(h->bytes);
        b.data[std::size_t(id)] = {*h, at};
        const u64 s = seed + u64(id);
        std::vector<float> floats;
        switch (id) {
          case P::input_norm: case P::post_norm: case P::q_a_norm: case P::kv_a_norm: {
            const std::vector<u16> v = near_one(int(h->features), s);
            CHECK(hipMemcpy(at, v.data(), v.size() * 2, hipMemcpyHostToDevice));
            break;
          }
          case P::router_bias: case P::index_norm_weight: case P::index_norm_bias:
            for (u32 k = 0; k < h->features; ++k)
              floats.push_back((id == P::index_norm_weight ? 1.0f : 0.0f) +
                               0.02f * (float(random_bits(s, k) >> 40) * 0x1p-23f - 1.0f));
            CHECK(hipMemcpy(at, floats.data(), floats.size() * 4, hipMemcpyHostToDevice));
            if (id == P::router_bias) bias.push_back(floats);
            break;
          case P::q_a_weights: fill_data<typename P::q_a_stage::weights>(id, at, s); break;
          case P::kv_a_weights: fill_data<typename P::kv_a_stage::weights>(id, at, s); break;
          case P::q_b_weights: fill_data<typename P::q_b_stage::weights>(id, at, s); break;
          case P::uk_weights: fill_data<typename P::absorb_stage::weights>(id, at, s); break;
          case P::uv_weights: fill_data<typename P::v_up_stage::weights>(id, at, s); break;
          case P::o_weights: fill_data<typename P::o_stage::weights>(id, at, s); break;
          case P::router_weights: fill_data<typename P::router_stage::weights>(id, at, s); break;
          case P::shared_gate_up: case P::routed_gate_up: fill_data<typename P::shared_stage::weights>(id, at, s); break;
          case P::shared_down: case P::routed_down: fill_data<typename P::down_stage::weights>(id, at, s); break;
          case P::index_q_weights: fill_data<typename P::index_q_stage::weights>(id, at, s); break;
          case P::index_k_weights: fill_data<typename P::index_k_stage::weights>(id, at, s); break;
          case P::index_head_weights: fill_data<typename P::index_w_stage::weights>(id, at, s); break;
          default: break;
        }
      }
      // Cache rows and keys of order one: packed bf16 weights of a gain that makes them so.
      using row_bytes = weight_tile<bf16_weights, 128>;
      b.kv_cache = take(rows_bytes);
      fill_weights<T, row_bytes>(static_cast<u8*>(b.kv_cache), rows_bytes, seed + 90, unit_gain<bf16_weights>(1));
      b.index_cache = take(key_bytes);
      fill_weights<T, row_bytes>(static_cast<u8*>(b.index_cache), key_bytes, seed + 91, unit_gain<bf16_weights>(1));
      own.push_back(check(bind_glm5<T, C>(P::moe, b, 0)));
      listed.push_back(check(bind_glm5<T, C>(P::moe_listed, b, 0)));
    }
    entries = own;
    entries.insert(entries.end(), listed.begin(), listed.end());
    layers = device_array(entries);
    p = scratch_params<T, P>();
    input = random_bf16(std::size_t(max_rows) * C::hidden, 4711);
    p.input = device_array(input);
    output = device_array<u16>(input.size());
    p.output = output;
    // Request r has pages of 64 slots at r * context ..; its token is the last one, its list every 4th or so.
    constexpr int page = 64;
    std::vector<long long> slots, positions;
    std::vector<int> table, starts = {0}, list;
    for (int r = 0; r < max_rows; ++r) {
      slots.push_back((long long)(r) * context + context - 1);
      positions.push_back(context - 1);
      for (int i = 0; i < context / page; ++i) table.push_back(r * context / page + i);
      const int count = std::min(context, C::index_topk);
      for (int i = 0; i < count; ++i) list.push_back(r * context + int((long long)(i) * context / count));
      starts.push_back(int(list.size()));
    }
    std::vector<float> rope;
    reference::glm5_geometry g = test::glm5_geometry_of<C>();
    for (int at = 0; at < context; ++at)
      for (double x : reference::rope_row(g, at)) rope.push_back(float(x));
    p.row_slots = device_array(slots);
    p.batch = {.positions = device_array(positions), .block_table = device_array(table),
               .block_table_stride = context / page, .requests = nullptr, .list_starts = device_array(starts),
               .list = device_array(list), .rope = device_array(rope), .rope_positions = u64(context),
               .cache_slots = u64(max_rows) * u64(context), .kv_block_stride = u64(page) * C::kv_cache::bytes,
               .kv_row_stride = C::kv_cache::bytes, .index_block_stride = u64(page) * 256, .block_size = page,
               .reserved = 0};
    CHECK(hipDeviceSynchronize());
  }
  template <class Target = T>
  void enqueue(int first, int count, int rows) {
    launch_params now = p;
    now.layers = layers + first;
    now.layer_count = count;
    now.rows = rows;
    check(launch<Target, P>(now, blocks, stream));
  }
  std::vector<u16> run(int first, int count, int rows) {
    CHECK(hipMemset(output, 0xff, input.size() * 2));
    enqueue(first, count, rows);
    CHECK(hipStreamSynchronize(stream));
    return fetch(output, std::size_t(rows) * C::hidden);
  }
  /// Distinct experts of the first `rows` rows in the newest layer, from its logits.
  int distinct(int layer, int rows) {
    constexpr slot_info s = P::info.slots[P::logits];
    constexpr u64 at = slot_layout<P, T::arrivals>::payload_offset(P::logits), row_bytes = slot_row_bytes(s);
    std::vector<char> chosen(C::experts, 0);
    for (int r = 0; r < rows; ++r) {
      const std::vector<u32> words = fetch(reinterpret_cast<const u32*>(p.slots + at + u64(r) * row_bytes), std::size_t(s.columns) * 2);
      std::vector<float> logits(C::experts);
      for (int e = 0; e < C::experts; ++e)
        for (int split = 0; split < C::router_splits; ++split)
          logits[std::size_t(e)] += bits_to_float(words[std::size_t(split * P::padded_experts + e) * 2]);
      for (int e : test::picks_of(logits.data(), bias[std::size_t(layer)], C::experts, C::top_k)) chosen[std::size_t(e)] = 1;
    }
    return int(std::count(chosen.begin(), chosen.end(), 1));
  }
  bool bits_hold(int first, const char* name) {
    const std::vector<u16> all = run(first, depth, max_rows);
    bool good = verify(healthy(p.state, name), text("%s ran", name));
    good &= verify(fetch(p.state, 1)[0].bad_entries == 0, "no entry of the lists was left out");
    for (u16 x : all) good &= (x & 0x7f80) != 0x7f80;
    good = verify(good, text("%s: every value is a number", name));
    good &= verify(run(first, depth, max_rows) == all, text("%s: two launches have different bits", name));
    for (int rows : {1, 2, 4}) {
      const std::vector<u16> fewer = run(first, depth, rows);
      good &= verify(std::equal(fewer.begin(), fewer.end(), all.begin()), text("%s: %d rows have other bits than 8", name, rows));
    }
    return good;
  }
  void print_times() {
    std::printf("%-12s %4s %8s %9s %7s %7s %9s %16s %7s %9s %7s %9s\n", "kind", "rows", "experts", "weights MB", "KV MB", "keys MB",
                "us/layer", "(least..most)", "TB/s", "floor us", "ratio", "us/hop");
    for (bool listed : {false, true})
      for (int rows : {1, 2, 4, 8}) {
        double weights = 0, experts = 0;
        const int first = listed ? depth : 0;
        // The experts of each layer, by launching the layers of the span up to it.
        for (int i = 0; i < depth; ++i) {
          run(first, i + 1, rows);
          const int n = distinct(i, rows);
          experts += double(n) / depth;
          for (int id = 0; id < P::data_count; ++id)
            if (host::header_of(listed ? P::moe_listed : P::moe, id, 0))
              weights += bytes_of(id) * (id == P::routed_gate_up || id == P::routed_down ? n : 1) / depth;
        }
        const double kv = double(rows) * std::min(context, C::index_topk) * C::kv_cache::bytes;
        const double keys = listed ? 0 : double(rows) * context * 256;
        const double bytes = (weights + kv + keys) * depth;
        const timing t = time_graph(stream, 4, 9, [&](int) { enqueue(first, depth, rows); });
        if (!verify(healthy(p.state, "timing"), "the timed launches ran")) return;
        const floor_result f = time_stream<T>(stream, arena, (arena_bytes - u64(bytes) - (u64(1) << 22)) / 3 / 1024 * 1024,
                                              u64(bytes), floor_chunk, blocks, 4, 9);
        verify(f.good, "the stream's xor");
        const double us = t.us / depth, floor = f.time.us * bytes / double(f.bytes) / depth;
        const int hops = longest_path(P::info, listed ? P::moe_listed : P::moe).hops;
        std::printf("%-12s %4d %8.1f %9.1f %7.1f %7.1f %9.2f %8.2f..%6.2f %7.2f %9.2f %6.2fx %9.2f\n",
                    listed ? "moe_listed" : "moe", rows, experts, weights * 1e-6, kv * 1e-6, keys * 1e-6, us, t.low / depth,
                    t.high / depth, bytes / t.us * 1e-6, floor, us / floor, (us - floor) / hops);
        std::fflush(stdout);
      }
    const kernel_facts k = facts_of_kernel<T, P>();
    std::printf("kernel: %d registers, %d bytes of local memory, %d blocks, ring of %u chunks at 8 rows\n", k.registers,
                k.local_bytes, blocks, plan<T, P>::ring_slots(max_rows));
  }
};

}  // namespace bench

int main(int argc, char** argv) {
  using namespace bench;
  start_watchdog(200);
  static session s;
  if (argc > 1) s.context = std::atoi(argv[1]) / 64 * 64;
  if (s.context < 64 || s.context > C::max_context) {
    std::printf("context: seen %d, wanted 64..%d\n", s.context, C::max_context);
    return 2;
  }
  CHECK(hipStreamCreateWithFlags(&s.stream, hipStreamNonBlocking));
  s.blocks = std::min(compute_units(), plan<T, P>::max_blocks);
  for (const status& reason : can_run<T, P>(check(prepare_device<T, P>()), s.blocks)) check(reason);
  if (!layer_is_right(s.verify)) return s.verify.finish();
  s.build();
  std::printf("layer: %s, GLM-5 at TP%d sizes, one rank with itself, context %d; spans of %d layers, %.1f GB\n", T::name, LAYER_TP,
              s.context, depth, double(s.arena_bytes) * 1e-9);
  if (s.bits_hold(0, "moe") && s.bits_hold(depth, "moe_listed")) {
    s.print_times();
    for (int rows : {1, 8})
      for (int kind : {int(P::moe), int(P::moe_listed)})
        print_trace<P>(s.verify, s.p.state, s.blocks, depth, kind, rows,
                       [&] { s.enqueue<traced_target>(kind == P::moe ? 0 : depth, depth, rows); });
  }
  return s.verify.finish();
}
