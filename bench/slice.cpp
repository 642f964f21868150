// bench/slice: the two slices of a GLM-5 layer at TP4 sizes, one rank that reduces with itself, beside a stream of the
// same bytes.
//
// Spans have 8 layers of B, 24 of A or 8 pairs, every layer with weights of its own (256 experts each), so nothing is in a cache twice.
// The bytes of a layer follow from the experts that its rows chose. Before any time is printed, the first layers are
// compared with float64 from the very weights that are timed, two launches must agree bit for bit, and so must a span and
// its layers launched one by one.
//   ./slice [--trace] [--no-times]     --trace: when the stages of a layer begin, wait and end, over all blocks
#include "monolayer/host/slices.hpp"
#include "trace.hpp"

namespace bench {

using T = device_target;

/// One rank's share of a TP4 layer; its partial sums go through the mailbox to itself.
struct glm5_tp4_loopback : glm5_slices<4> {
  static constexpr int ranks = 1;
};
using C = glm5_tp4_loopback;
using program = slices<C>;
using packer = slice_packer<T, C>;

constexpr int depth = 8;     // layers of slice B, each followed by another of A where both run
constexpr int depth_a = 24;  // layers of slice A alone: its weights are small

// ---- the model

struct layer_a {
  u8 *q_a, *q_b;
  std::vector<u16> input_norm, q_a_norm;
};
struct layer_b {
  u8 *router, *shared_gate_up, *shared_down, *routed_gate_up, *routed_down;
  std::vector<u16> post_norm;
  std::vector<float> bias;
};

using q_a_tile = program::q_a_stage::weights;
using q_b_tile = program::q_b_stage::weights;
using router_tile = program::router_stage::weights;
using gate_up_tile = program::shared_stage::weights;
using down_tile = program::down_stage::weights;

constexpr u64 q_a_bytes = u64(program::q_a_stage::tiles) * q_a_tile::bytes;
constexpr u64 q_b_bytes = u64(program::q_b_stage::tiles) * q_b_tile::bytes;
constexpr u64 router_bytes = u64(program::router_stage::tiles) * router_tile::bytes;
constexpr u64 gate_up_bytes = packer::gate_up_bytes, down_bytes = packer::down_bytes;

struct session {
  hipStream_t stream;
  verdict verify;
  int blocks = 0;
  u8* arena = nullptr;
  u64 arena_bytes = 0;
  std::vector<layer_a> a;
  std::vector<layer_b> b;
  std::vector<layer_entry> entries;  // depth_a x A, depth x B, depth x (A, B)
  layer_entry* layers = nullptr;
  launch_params p;
  std::vector<u16> input;
  u16* output = nullptr;
  std::vector<u16*> q;
  std::vector<std::vector<std::vector<int>>> picks;  // [layer][row]
  int span_of_a() const { return 0; }
  int span_of_b() const { return depth_a; }
  int span_of_both() const { return depth_a + depth; }

  void build() {
    auto padded = [](u64 n) { return align_up(n, 1024); };
    arena_bytes = depth_a * (padded(q_a_bytes) + padded(q_b_bytes)) +
                  depth * (padded(router_bytes) + padded(gate_up_bytes) + padded(down_bytes) +
                           padded(gate_up_bytes * C::experts) + padded(down_bytes * C::experts));
    CHECK(hipMalloc(reinterpret_cast<void**>(&arena), arena_bytes));
    u8* next = arena;
    auto take = [&](u64 bytes) {
      u8* at = next;
      next += padded(bytes);
      return at;
    };
    using attention = typename C::attention_weights;
    using expert = typename C::expert_weights;
    for (int i = 0; i < depth; ++i) {
      const u64 seed = 1000 + 10 * u64(i);
      layer_b l{take(router_bytes), take(gate_up_bytes), take(down_bytes), take(gate_up_bytes * C::experts),
                take(down_bytes * C::experts), near_one(C::hidden, seed), {}};
      for (int e = 0; e < C::experts; ++e)
        l.bias.push_back(0.02f * (float(random_bits(seed + 1, u64(e)) >> 40) * 0x1p-23f - 1.0f));
      fill_weights<T, router_tile>(l.router, router_bytes, seed + 2, unit_gain<bf16_weights>(C::hidden));
      fill_weights<T, gate_up_tile>(l.shared_gate_up, gate_up_bytes, seed + 3, unit_gain<expert>(C::hidden));
      fill_weights<T, down_tile>(l.shared_down, down_bytes, seed + 4, unit_gain<expert>(2048));
      fill_weights<T, gate_up_tile>(l.routed_gate_up, gate_up_bytes * C::experts, seed + 5, unit_gain<expert>(C::hidden));
      fill_weights<T, down_tile>(l.routed_down, down_bytes * C::experts, seed + 6, unit_gain<expert>(2048));
      b.push_back(l);
    }
    for (int i = 0; i < depth_a; ++i) {
      const u64 seed = 2000 + 10 * u64(i);
      a.push_back({take(q_a_bytes), take(q_b_bytes), near_one(C::hidden, seed), near_one(C::q_lora, seed + 1)});
      fill_weights<T, q_a_tile>(a.back().q_a, q_a_bytes, seed + 2, unit_gain<attention>(C::hidden));
      fill_weights<T, q_b_tile>(a.back().q_b, q_b_bytes, seed + 3, unit_gain<attention>(C::q_lora));
    }
    auto bound = [](const packed_header& h, const u8* at) { return bound_weights{h, at}; };
    std::vector<layer_entry> of_a, of_b;
    for (int i = 0; i < depth_a; ++i) {
      q.push_back(device_array<u16>(std::size_t(C::max_rows) * program::q_columns));
      const slice_a_weights wa{device_array(a[i].input_norm),
                               bound(header_for<T, q_a_tile>(C::q_lora, 1, 1, 0), a[i].q_a), device_array(a[i].q_a_norm),
                               bound(header_for<T, q_b_tile>(program::q_columns, 1, 1, 0), a[i].q_b), q.back()};
      of_a.push_back(check(bind_slice_a<T, C>(wa, 0)));
    }
    for (int i = 0; i < depth; ++i) {
      const slice_b_weights wb{device_array(b[i].post_norm),
                               bound(packer::router_header(0), b[i].router),
                               device_array(b[i].bias),
                               bound(packer::gate_up_header(1, 0), b[i].shared_gate_up),
                               bound(packer::down_header(1, 0), b[i].shared_down),
                               bound(packer::gate_up_header(C::experts, 0), b[i].routed_gate_up),
                               bound(packer::down_header(C::experts, 0), b[i].routed_down)};
      of_b.push_back(check(bind_slice_b<T, C>(wb, 0)));
    }
    entries = of_a;
    entries.insert(entries.end(), of_b.begin(), of_b.end());
    for (int i = 0; i < depth; ++i) {
      entries.push_back(of_a[std::size_t(i)]);
      entries.push_back(of_b[std::size_t(i)]);
    }
    layers = device_array(entries);
    p = scratch_params<T, program>();
    input = random_bf16(std::size_t(C::max_rows) * C::hidden, 4711);
    p.input = device_array(input);
    output = device_array<u16>(input.size());
    p.output = output;
    p.row_slots = device_array(std::vector<long long>(C::max_rows, 0));
    CHECK(hipDeviceSynchronize());
  }
  static std::vector<u16> near_one(int n, u64 seed) {
    std::vector<u16> v = random_bf16(std::size_t(n), seed, 0.1);
    for (u16& x : v) x = from_float<bf16>(float(1 + bf16_value(x))).bits;
    return v;
  }

  template <class Target = T>
  void enqueue(int first, int count, int rows, const void* from = nullptr) {
    launch_params now = p;
    if (from != nullptr) now.input = from;
    now.layers = layers + first;
    now.layer_count = count;
    now.rows = rows;
    check(launch<Target, program>(now, blocks, stream));
  }
  std::vector<u16> run_stream(int first, int count, int rows) {
    CHECK(hipMemset(output, 0xff, input.size() * 2));
    enqueue(first, count, rows);
    CHECK(hipStreamSynchronize(stream));
    return fetch(output, std::size_t(rows) * C::hidden);
  }
  std::vector<u16> q_of(int layer, int rows) const { return fetch(q[std::size_t(layer)], std::size_t(rows) * program::q_columns); }
  void poison_q() {
    for (u16* at : q) CHECK(hipMemset(at, 0xff, std::size_t(C::max_rows) * program::q_columns * 2));
  }

  int distinct(int layer, int rows) const {
    std::vector<char> chosen(C::experts, 0);
    for (int r = 0; r < rows; ++r)
      for (int e : picks[std::size_t(layer)][std::size_t(r)]) chosen[std::size_t(e)] = 1;
    return int(std::count(chosen.begin(), chosen.end(), 1));
  }
  u64 bytes_of_b(int layer, int rows) const {
    return router_bytes + (gate_up_bytes + down_bytes) * u64(1 + distinct(layer, rows));
  }
};

// ---- float64

using rows_type = std::vector<std::vector<double>>;

rows_type blank(int rows, int columns) {
  return rows_type(static_cast<std::size_t>(rows), std::vector<double>(static_cast<std::size_t>(columns)));
}
rows_type rows_of(const std::vector<u16>& bits, int rows, int columns) {
  rows_type x = blank(rows, columns);
  for (int r = 0; r < rows; ++r)
    for (int c = 0; c < columns; ++c) x[std::size_t(r)][std::size_t(c)] = bf16_value(bits[std::size_t(r) * columns + c]);
  return x;
}
rows_type norm(const rows_type& x, const std::vector<u16>& weight, double eps) {
  rows_type y = x;
  for (std::vector<double>& row : y) {
    double squares = 0;
    for (double v : row) squares += v * v;
    const double factor = 1 / std::sqrt(squares / double(row.size()) + eps);
    for (std::size_t c = 0; c < row.size(); ++c) row[c] = bf16_round(row[c] * factor * bf16_value(weight[c]));
  }
  return y;
}
/// out[row][subtile][feature] += x W^T over `tiles` packed tiles.
template <class Tile>
std::vector<rows_type> multiply(const rows_type& x, const u8* packed, int tiles) {
  const std::vector<u8> bytes = fetch(packed, u64(tiles) * Tile::bytes);
  std::vector<rows_type> y(Tile::subtiles, blank(int(x.size()), tiles * 16));
  in_parallel(tiles, [&](int begin, int end) {
    std::vector<double> w(std::size_t(16) * Tile::padded_k);
    for (int t = begin; t < end; ++t)
      for (int sub = 0; sub < Tile::subtiles; ++sub) {
        decode_subtile<T, Tile>(bytes.data() + u64(t) * Tile::bytes, sub, w.data());
        for (std::size_t r = 0; r < x.size(); ++r)
          for (int f = 0; f < 16; ++f) {
            double sum = 0;
            for (int k = 0; k < Tile::k; ++k) sum += w[std::size_t(f) * Tile::padded_k + k] * x[r][std::size_t(k)];
            y[std::size_t(sub)][r][std::size_t(t * 16 + f)] = sum;
          }
      }
  });
  return y;
}
double sigmoid_of(double x) { return 1 / (1 + std::exp(-x)); }

struct routes {
  std::vector<std::vector<int>> picks;
  rows_type weights;
  double margin = INFINITY;
};
routes route_rows(const layer_b& l, const rows_type& y) {
  // A tile is (range of k, 16 experts).
  rows_type logits = blank(int(y.size()), C::experts);
  constexpr int of_split = C::experts / tile_features;
  for (int split = 0; split < program::router_stage::tiles / of_split; ++split) {
    rows_type part;
    for (const std::vector<double>& row : y)
      part.emplace_back(row.begin() + split * router_tile::k, row.begin() + (split + 1) * router_tile::k);
    const rows_type sums =
        multiply<router_tile>(part, l.router + u64(split) * of_split * router_tile::bytes, of_split)[0];
    for (std::size_t r = 0; r < y.size(); ++r)
      for (int e = 0; e < C::experts; ++e) logits[r][std::size_t(e)] += sums[r][std::size_t(e)];
  }
  routes out;
  for (const std::vector<double>& row : logits) {
    std::vector<std::pair<double, int>> key;
    for (int e = 0; e < C::experts; ++e)
      key.push_back({-(sigmoid_of(row[std::size_t(e)]) + double(l.bias[std::size_t(e)])), e});
    std::sort(key.begin(), key.end());
    out.margin = std::min(out.margin, key[C::top_k].first - key[C::top_k - 1].first);
    double sum = 0;
    out.picks.emplace_back();
    out.weights.emplace_back();
    for (int k = 0; k < C::top_k; ++k) {
      out.picks.back().push_back(key[std::size_t(k)].second);
      sum += sigmoid_of(row[std::size_t(key[std::size_t(k)].second)]);
    }
    for (int e : out.picks.back())
      out.weights.back().push_back(sigmoid_of(row[std::size_t(e)]) / (sum + 1e-20) * double(C::routed_scaling));
  }
  return out;
}

/// Slice B; `experts` adds their sum, and what the residual becomes is rounded as the library rounds it.
rows_type reference_b(const layer_b& l, const rows_type& h, const routes& chosen, const rows_type& y) {
  rows_type sum = blank(int(h.size()), C::hidden);
  auto add_expert = [&](const u8* gate_up, const u8* down, const std::vector<std::pair<int, double>>& served) {
    rows_type x, act;
    for (const auto& [row, weight] : served) x.push_back(y[std::size_t(row)]);
    const auto both = multiply<gate_up_tile>(x, gate_up, program::shared_stage::tiles);
    for (std::size_t i = 0; i < served.size(); ++i) {
      act.emplace_back();
      for (int c = 0; c < C::expert_width; ++c) {
        const double g = both[0][i][std::size_t(c)];
        act.back().push_back(bf16_round(g * sigmoid_of(g) * both[1][i][std::size_t(c)] * served[i].second));
      }
    }
    const auto part = multiply<down_tile>(act, down, program::down_stage::tiles);
    for (std::size_t i = 0; i < served.size(); ++i)
      for (int c = 0; c < C::hidden; ++c) sum[std::size_t(served[i].first)][std::size_t(c)] += part[0][i][std::size_t(c)];
  };
  std::vector<std::pair<int, double>> all;
  for (int r = 0; r < int(h.size()); ++r) all.push_back({r, 1.0});
  add_expert(l.shared_gate_up, l.shared_down, all);
  for (int e = 0; e < C::experts; ++e) {
    std::vector<std::pair<int, double>> served;
    for (int r = 0; r < int(h.size()); ++r)
      for (int k = 0; k < C::top_k; ++k)
        if (chosen.picks[std::size_t(r)][std::size_t(k)] == e) served.push_back({r, chosen.weights[std::size_t(r)][std::size_t(k)]});
    if (!served.empty())
      add_expert(l.routed_gate_up + u64(e) * gate_up_bytes, l.routed_down + u64(e) * down_bytes, served);
  }
  rows_type out = h;
  for (std::size_t r = 0; r < h.size(); ++r)
    for (int c = 0; c < C::hidden; ++c)
      out[r][std::size_t(c)] = bf16_round(h[r][std::size_t(c)] + bf16_round(sum[r][std::size_t(c)]));
  return out;
}
rows_type reference_a(const layer_a& l, const rows_type& h) {
  rows_type qa = multiply<q_a_tile>(norm(h, l.input_norm, double(C::input_eps)), l.q_a, program::q_a_stage::tiles)[0];
  for (std::vector<double>& row : qa)
    for (double& v : row) v = bf16_round(v);
  rows_type out = multiply<q_b_tile>(norm(qa, l.q_a_norm, double(C::q_a_eps)), l.q_b, program::q_b_stage::tiles)[0];
  for (std::vector<double>& row : out)
    for (double& v : row) v = bf16_round(v);
  return out;
}
std::vector<double> flat(const rows_type& x) {
  std::vector<double> v;
  for (const auto& row : x) v.insert(v.end(), row.begin(), row.end());
  return v;
}

/// Everything that must hold before a time may be printed.
bool verify_all(session& s) {
  constexpr int all = C::max_rows;
  bool good = true;
  // Layer by layer, B after B: the picks of all rows, and what the span must give.
  u16* chained = device_array<u16>(std::size_t(all) * C::hidden);
  CHECK(hipMemcpy(chained, s.input.data(), s.input.size() * 2, hipMemcpyHostToDevice));
  std::vector<u16> h = s.input;
  double margin = INFINITY;
  for (int i = 0; i < depth; ++i) {
    CHECK(hipMemset(s.output, 0xff, s.input.size() * 2));
    s.enqueue(s.span_of_b() + i, 1, all, chained);
    CHECK(hipStreamSynchronize(s.stream));
    if (!s.verify(healthy(s.p.state, "slice B"), text("slice B, layer %d ran", i))) return false;
    const std::vector<u16> out = fetch(s.output, s.input.size());
    const rows_type x = rows_of(h, all, C::hidden);
    const rows_type y = norm(x, s.b[std::size_t(i)].post_norm, double(C::post_eps));
    const routes chosen = route_rows(s.b[std::size_t(i)], y);
    s.picks.push_back(chosen.picks);
    margin = std::min(margin, chosen.margin);
    if (i == 0) {
      auto first_two = [](auto v) { return v.resize(2), v; };
      const routes two{first_two(chosen.picks), first_two(chosen.weights), chosen.margin};
      const rows_type want = reference_b(s.b[0], first_two(x), two, first_two(y));
      std::vector<u16> got = out;
      got.resize(std::size_t(2) * C::hidden);
      const double e = relative_error(flat(rows_of(got, 2, C::hidden)), flat(want));
      good &= s.verify(e <= 2e-3, text("slice B against float64: %.2e, limit 2e-3", e));
      std::printf("slice B, 2 rows against float64: %.2e (limit 2e-3)\n", e);
    }
    h = out;
    CHECK(hipMemcpy(chained, out.data(), out.size() * 2, hipMemcpyHostToDevice));
  }
  std::printf("smallest routing margin of %d x %d rows: %.1e\n", depth, all, margin);
  const std::vector<u16> span = s.run_stream(s.span_of_b(), depth, all);
  good &= s.verify(span == h, "a span of B has other bits than its layers one by one");
  good &= s.verify(s.run_stream(s.span_of_b(), depth, all) == span, "two launches of B have different bits");
  for (int rows : {1, 2, 4}) {
    const std::vector<u16> fewer = s.run_stream(s.span_of_b(), depth, rows);
    good &= s.verify(std::equal(fewer.begin(), fewer.end(), span.begin()), text("%d rows have other bits than 8", rows));
  }
  s.poison_q();
  s.run_stream(s.span_of_a(), depth_a, all);
  if (!s.verify(healthy(s.p.state, "slice A"), "slice A ran")) return false;
  std::vector<std::vector<u16>> q;
  for (int i = 0; i < depth_a; ++i) q.push_back(s.q_of(i, all));
  const double e = relative_error(flat(rows_of(q[0], 2, program::q_columns)),
                                  flat(reference_a(s.a[0], rows_of(s.input, 2, C::hidden))));
  good &= s.verify(e <= 3e-3, text("slice A against float64: %.2e, limit 3e-3", e));
  std::printf("slice A, 2 rows against float64: %.2e (limit 3e-3)\n", e);
  s.poison_q();
  s.run_stream(s.span_of_a(), depth_a, all);
  for (int i = 0; i < depth_a; ++i)
    good &= s.verify(s.q_of(i, all) == q[std::size_t(i)], text("two launches of A have different bits, layer %d", i));
  s.poison_q();
  good &= s.verify(s.run_stream(s.span_of_both(), 2 * depth, all) == span, "A and B give another stream than B alone");
  good &= s.verify(s.q_of(0, all) == q[0], "A in a span with B has other bits");
  good &= s.verify(healthy(s.p.state, "slices"), "all launches ran");
  CHECK(hipFree(chained));
  return good;
}

void print_times(session& s) {
  std::printf("%-10s %4s %9s %9s %9s %16s %7s %9s %7s %s\n", "slices", "rows", "experts", "MB/layer", "us/layer", "(least..most)",
              "TB/s", "floor us", "ratio", "target");
  const kernel_facts k = facts_of_kernel<T, program>();
  for (int kind = 0; kind < 3; ++kind)
    for (int rows : {1, 2, 4, 8}) {
      const int layers = kind == 0 ? depth_a : depth;
      double bytes = kind != 1 ? double(q_a_bytes + q_b_bytes) * layers : 0, experts = 0;
      for (int i = 0; i < depth && kind != 0; ++i) {
        bytes += double(s.bytes_of_b(i, rows));
        experts += double(s.distinct(i, rows)) / depth;
      }
      const int first = kind == 0 ? s.span_of_a() : kind == 1 ? s.span_of_b() : s.span_of_both();
      const int count = kind == 2 ? 2 * depth : layers;
      const timing t = time_graph(s.stream, 4, 9, [&](int) { s.enqueue(first, count, rows); });
      if (!s.verify(healthy(s.p.state, "timing"), "the timed launches ran")) return;
      const floor_result f = time_stream<T>(s.stream, s.arena, (s.arena_bytes - u64(bytes) - (u64(1) << 22)) / 3 / 1024 * 1024,
                                               u64(bytes), floor_chunk, s.blocks, 4, 9);
      s.verify(f.good, "the stream's xor");
      const double us = t.us / layers, floor = f.time.us * bytes / double(f.bytes) / layers;
      const char* target = kind != 1 || (rows != 2 && rows != 8) ? "" : us / floor <= (rows == 2 ? 1.6 : 1.3) ? "met" : "MISSED";
      std::printf("%-10s %4d %9.1f %9.1f %9.2f %8.2f..%6.2f %7.2f %9.2f %6.2fx %s%s\n",
                  kind == 0 ? "A" : kind == 1 ? "B" : "A + B", rows, experts, bytes * 1e-6 / layers, us,
                  t.low / layers, t.high / layers, bytes / t.us * 1e-6, floor, us / floor,
                  target, *target == 0 ? "" : rows == 2 ? " (<= 1.6x)" : " (<= 1.3x)");
      std::fflush(stdout);
    }
  std::printf("kernel: %d registers, %d bytes of local memory, %d blocks, ring of %u chunks at 8 rows\n", k.registers,
              k.local_bytes, s.blocks, plan<T, program>::ring_slots(C::max_rows));
}

}  // namespace bench

int main(int argc, char** argv) {
  using namespace bench;
  start_watchdog(90);
  bool trace = false, times = true;
  for (int i = 1; i < argc; ++i) {
    trace |= std::strcmp(argv[i], "--trace") == 0;
    times &= std::strcmp(argv[i], "--no-times") != 0;
  }
  static session s;
  CHECK(hipStreamCreateWithFlags(&s.stream, hipStreamNonBlocking));
  s.blocks = compute_units();
  const device_facts facts = check(prepare_device<T, program>());
  for (const status& reason : can_run<T, program>(facts, s.blocks)) check(reason);
  if (s.blocks > plan<T, program>::max_blocks) s.blocks = plan<T, program>::max_blocks;
  s.build();
  std::printf("slice: %s, GLM-5 at TP4 sizes, one rank with itself; spans of %d layers of A, %d of B, and %d pairs; %.1f GB of weights\n",
              T::name, depth_a, depth, depth, double(s.arena_bytes) * 1e-9);
  if (!verify_all(s)) return s.verify.finish();
  if (times) print_times(s);
  if (trace)
    for (int rows : {2, 8})
      for (int kind : {1, 0}) {
        const int first = kind == 0 ? s.span_of_a() : s.span_of_b();
        print_trace<program>(s.verify, s.p.state, s.blocks, depth, kind, rows,
                             [&] { s.enqueue<traced_target>(first, depth, rows); });
      }
  return s.verify.finish();
}
