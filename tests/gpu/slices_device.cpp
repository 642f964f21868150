// Both slices on a real GPU: against float64, and bit for bit between row counts, dead rows, grid sizes, ring sizes, spans
// and layers, ranks, and many replays of captured graphs. At TP4 the four ranks run side by side on one GPU.
//   nvcc -x cu -std=c++20 -O3 -gencode arch=compute_90a,code=sm_90a --expt-relaxed-constexpr -fmad=false
//        -I include -I tests tests/gpu/slices_device.cpp -o slices_device
//   ./slices_device [--small] [--full] [--replays N] [--hashes]     neither --small nor --full: both
// --hashes only prints what the small configurations give; tests/slices/print_hashes.cpp prints the simulator's lines.
// The last line counts; exit status 0 if all passed.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#if defined(SLICES_ON_SIMULATOR)
#include "slices/sim_backend.hpp"
#else
#include "gpu/hip_backend.hpp"
#endif

namespace monolayer::test {
namespace {

#if defined(SLICES_ON_SIMULATOR)
using target = sim::sm90;
struct backend_type : sim_backend {
  explicit backend_type(int ranks) : sim_backend(options(ranks)) {}
  static sim::options options(int ranks) {
    sim::options o;
    o.ranks = ranks;
    return o;
  }
  void finish() {
    const sim::report r = run();
    if (!r.ok) throw std::runtime_error(r.text);
  }
};
constexpr u64 local_deadline = 200'000'000'000, peer_deadline = 200'000'000'000;
#else
#if defined(__CUDACC__)
using target = sm90;
#elif defined(MONOLAYER_TEST_GFX942)
using target = gfx942;
#else
using target = gfx950;
#endif
using backend_type = hip_backend;
constexpr u64 local_deadline = 200'000'000, peer_deadline = 2'000'000'000;
#endif

int passed = 0, failed = 0;
bool verify(bool good, const std::string& what) {
  ++(good ? passed : failed);
  if (!good) std::printf("FAIL %s\n", what.c_str());
  std::fflush(stdout);
  return good;
}
std::string text(const char* format, auto... values) {
  char buffer[512];
  std::snprintf(buffer, sizeof buffer, format, values...);
  return buffer;
}

double seconds() {
  static const auto start = std::chrono::steady_clock::now();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

constexpr u16 poison = 0x7fc1;

/// What one run of some rows gave: rows are named by ids, -1 is a dead row.
struct outcome {
  std::vector<std::vector<u16>> out;             // by rank
  std::vector<std::vector<std::vector<u16>>> q;  // by rank and layer
};

template <class C>
struct rig {
  using program = slices<C>;
  using session_type = session<backend_type, target, C>;
  static constexpr int ranks = C::ranks, max_rows = C::max_rows;

  std::string name;
  model<target, C> source;
  backend_type backend{ranks};
  session_type s;
  std::vector<u16> inputs;  // by row id
  std::vector<long long> slots;
  run_options how;
  outcome expected;  // of all rows, by id
  std::vector<int> everyone;

  rig(std::string label, u64 seed, const std::vector<int>& experts)
      : name(std::move(label)),
        source({program::slice_a, program::slice_b, program::slice_a, program::slice_b}, seed, {}, {}, experts),
        s(backend, source),
        inputs(reference::to_bf16(reference::random_activations(max_rows, C::hidden, seed + 77))) {
    how.local_deadline_ns = local_deadline;
    how.peer_deadline_ns = peer_deadline;
    how.blocks = std::min(most_blocks(), 132 / ranks);
    for (int i = 0; i < max_rows; ++i) everyone.push_back(i);
  }
  int most_blocks() const {
    int most = monolayer::plan<target, program>::max_blocks;
#if defined(SLICES_ON_SIMULATOR)
    return std::min(most, 3);
#else
    return std::min(most, backend.resident_blocks / ranks);
#endif
  }
  int layer_count() const { return int(source.layers.size()); }

  std::vector<u16> input_of(const std::vector<int>& ids) const {
    std::vector<u16> in(std::size_t(max_rows) * C::hidden, 0x7fc2);  // dead rows hold NaN
    for (std::size_t i = 0; i < ids.size(); ++i)
      if (ids[i] >= 0)
        std::copy_n(inputs.begin() + std::ptrdiff_t(ids[i]) * C::hidden, C::hidden, in.begin() + std::ptrdiff_t(i) * C::hidden);
    return in;
  }
  std::vector<long long> slots_of(const std::vector<int>& ids) const {
    std::vector<long long> v(max_rows, -1);
    for (std::size_t i = 0; i < ids.size(); ++i)
      if (ids[i] >= 0) v[i] = 100 + ids[i];
    return v;
  }
  bool healthy(const std::string& what) {
    for (int r = 0; r < ranks; ++r) {
      const device_state st = s.state(r);
      if (st.failed.word == 0) continue;
      const failure_record& f = st.failed;
      verify(false, name + ", " + what +
                        text(": rank %d has failure %u (of rank %u block %u layer %u stage %u tile %u slot %u part %u, "
                             "expected %u, seen %u)",
                             r, f.word, f.rank, f.block, f.layer, f.stage, f.tile, f.slot, f.part, f.expected, f.seen));
      return false;
    }
    return true;
  }
  /// Layers [first, first + count) as one launch a rank.
  void launch(int rows, int first, int count, const run_options& o) {
    s.launch(rows, first, count, o);
    backend.finish();
  }
  outcome collect() const {
    outcome o;
    for (int r = 0; r < ranks; ++r) {
      o.out.push_back(s.output(r));
      o.q.emplace_back();
      for (int l = 0; l < layer_count(); ++l)
        o.q.back().push_back(s.of[r].q[std::size_t(l)] != nullptr ? s.q(r, l) : std::vector<u16>{});
    }
    return o;
  }
  outcome run(const std::vector<int>& ids, const run_options& o) {
    s.set_rows(input_of(ids), slots_of(ids));
    launch(int(ids.size()), 0, layer_count(), o);
    return collect();
  }
  /// Empty if every live row has the bits of its id in `expected`, on every rank, and the others were left alone.
  std::string difference(const outcome& o, const std::vector<int>& ids) const {
    for (int r = 0; r < ranks; ++r)
      for (int row = 0; row < max_rows; ++row) {
        const int id = row < int(ids.size()) ? ids[std::size_t(row)] : -1;
        auto compare = [&](const u16* got, const std::vector<u16>& want, int columns) {
          for (int c = 0; c < columns; ++c)
            if (got[std::size_t(row) * columns + c] != (id < 0 ? poison : want[std::size_t(id) * columns + c])) return c;
          return -1;
        };
        if (const int c = compare(o.out[r].data(), expected.out[r], C::hidden); c >= 0)
          return text("output of rank %d, row %d (id %d), column %d", r, row, id, c);
        for (int l = 0; l < layer_count(); ++l)
          if (!o.q[r][l].empty())
            if (const int c = compare(o.q[r][l].data(), expected.q[r][l], program::q_columns); c >= 0)
              return text("q of rank %d, layer %d, row %d (id %d), column %d", r, l, row, id, c);
      }
    return {};
  }
  bool same(const outcome& o, const std::vector<int>& ids, const std::string& what) {
    const std::string d = difference(o, ids);
    return verify(d.empty(), name + ", " + what + ": other bits in " + d);
  }

  /// Layer by layer from what the GPU itself made of the layers before, so that each error stands alone.
  bool against_reference() {
    s.set_rows(input_of(everyone), slots_of(everyone));
    std::vector<reference::batch> before(source.layers.size() + 1);
    before[0] = reference::from_bf16(inputs.data(), max_rows, C::hidden);
    for (int l = 0; l < layer_count(); ++l) {
      launch(max_rows, l, 1, how);
      if (!healthy(text("layer %d alone", l))) return false;
      before[std::size_t(l) + 1] = before[std::size_t(l)];
      if (source.layers[std::size_t(l)].kind == program::slice_b)
        before[std::size_t(l) + 1] = reference::from_bf16(s.output(0).data(), max_rows, C::hidden);
    }
    expected = collect();
    for (int r = 1; r < ranks; ++r) verify(expected.out[r] == expected.out[0], name + text(", rank %d has another stream than rank 0", r));
    const std::size_t layers = source.layers.size();
    std::vector<std::string> lines(layers);
    std::vector<char> good(layers, 0);
    auto check_layer = [&](int l) {
      const auto& layer = source.layers[std::size_t(l)];
      const reference::batch& in = before[std::size_t(l)];
      if (layer.kind == program::slice_a) {
        const auto ref = reference::slice_a(source.g, *layer.a, in);
        double worst = 0;
        for (int r = 0; r < ranks; ++r) {
          const auto part = reference::q_rows_of_rank(source.g, r, ranks);
          const auto q = reference::from_bf16(expected.q[r][l].data(), max_rows, program::q_columns);
          worst = std::max(worst, reference::relative_l2(q, reference::column_slice(ref.q, part.begin, part.count)));
        }
        good[std::size_t(l)] = worst <= 3e-3;
        lines[std::size_t(l)] = text("layer %d, slice A: q rel l2 %.2e (limit 3e-3)", l, worst);
      } else {
        const auto& out = before[std::size_t(l) + 1];
        auto ref = reference::slice_b(source.g, *layer.b, in, ranks);
        double error = reference::relative_l2(out, ref.out), margin = ref.margin[0];
        for (double m : ref.margin) margin = std::min(margin, m);
        std::string note;
        // Where two experts are as good as equal, f32 may choose the other one: then it must agree on that.
        for (int row = 0; row < max_rows && error > 2e-3; ++row) {
          if (ref.margin[std::size_t(row)] > 1e-5) continue;
          reference::pick_table forced = ref.picks;
          forced[std::size_t(row)].back() = next_best(*layer.b, ref, row);
          const auto other = reference::slice_b(source.g, *layer.b, in, ranks, &forced);
          if (reference::relative_l2(out, other.out) < error) {
            error = reference::relative_l2(out, other.out);
            ref = other;
            note += text(", row %d took its next best expert", row);
          }
        }
        reference::batch got_sum = out;
        for (std::size_t i = 0; i < got_sum.values.size(); ++i) got_sum.values[i] -= in.values[i];
        good[std::size_t(l)] = error <= 2e-3;
        lines[std::size_t(l)] = text("layer %d, slice B: out rel l2 %.2e (limit 2e-3), of the experts' sum %.2e, smallest "
                                     "margin %.1e%s",
                                     l, error, reference::relative_l2(got_sum, ref.sum), margin, note.c_str());
      }
    };
    std::vector<std::thread> threads;
    for (int l = 0; l < layer_count(); ++l) threads.emplace_back(check_layer, l);
    for (std::thread& t : threads) t.join();
    bool all = true;
    for (int l = 0; l < layer_count(); ++l) {
      std::printf("%s, %s\n", name.c_str(), lines[std::size_t(l)].c_str());
      all &= verify(good[std::size_t(l)], name + ", " + lines[std::size_t(l)]);
    }
    return all;
  }
  static int next_best(const reference::layer_b& layer, const reference::slice_b_result& ref, int row) {
    int best = -1;
    double score = -1e30;
    for (int e = 0; e < C::experts; ++e) {
      const auto& picks = ref.picks[std::size_t(row)];
      if (std::find(picks.begin(), picks.end(), e) != picks.end()) continue;
      const double v = reference::sigmoid(ref.logits(row, e)) + double(layer.bias[std::size_t(e)]);
      if (v > score) score = v, best = e;
    }
    return best;
  }

  std::vector<std::vector<int>> row_sets() const {
    std::vector<std::vector<int>> sets;
    for (int n = 1; n <= max_rows; ++n) sets.push_back(std::vector<int>(everyone.begin(), everyone.begin() + n));
    if (max_rows >= 8) {
      sets.push_back({-1, 2, -1, 0});
      sets.push_back({7, 6, 5, 4, 3, 2, 1, 0});
      sets.push_back({-1, -1, -1, -1, -1, -1, -1, 3});
      sets.push_back({4, -1, 6, -1, 1, -1, 0});
    } else {
      sets.push_back(std::vector<int>(everyone.rbegin(), everyone.rend()));
      sets.push_back({-1, 1});
      sets.push_back({-1, 0, -1});
    }
    sets.push_back({-1, -1});
    return sets;
  }
  /// A launch without live rows must leave everything as it was.
  bool bits() {
    for (const std::vector<int>& ids : row_sets()) {
      std::string label = "rows";
      for (int id : ids) label += " " + (id < 0 ? std::string("-") : std::to_string(id));
      const outcome o = run(ids, how);
      if (!healthy(label)) return false;
      same(o, ids, label);
    }
    const std::vector<int> grids = ranks == 1 ? std::vector<int>{132, 100, 64, 32, 31, 7} : std::vector<int>{33, 32, 20, 7};
    for (int blocks : grids) {
      if (blocks > most_blocks()) continue;
      run_options o = how;
      o.blocks = blocks;
      const outcome got = run(everyone, o);
      if (!healthy(text("%d blocks", blocks))) return false;
      same(got, everyone, text("%d blocks", blocks));
    }
    for (u32 limit : {2u, 3u, 5u}) {
      run_options o = how;
      o.ring_limit = limit;
      const outcome got = run(everyone, o);
      if (!healthy(text("ring of %u", limit))) return false;
      same(got, everyone, text("ring of %u", limit));
    }
    return true;
  }

#if !defined(SLICES_ON_SIMULATOR)
  /// Graphs of two widths on every rank's stream, replayed over and over while the rows change: several launches are under
  /// way at once, and a rank may run ahead of another.
  bool replays(int count) {
    struct variant {
      std::vector<int> ids;
      u16* input = nullptr;  // pinned
      long long* slots = nullptr;
    };
    constexpr int in_flight = 16;
    const std::size_t row_values = std::size_t(max_rows) * C::hidden, q_values = std::size_t(max_rows) * program::q_columns;
    std::vector<variant> variants;
    std::vector<void*> pinned;
    auto pin = [&](std::size_t bytes) {
      void* at = nullptr;
      MUST_HIP(hipHostMalloc(&at, bytes));
      pinned.push_back(at);
      return at;
    };
    for (const std::vector<int>& ids : row_sets()) {
      variant v{ids};
      const std::vector<u16> in = input_of(ids);
      const std::vector<long long> sl = slots_of(ids);
      v.input = static_cast<u16*>(pin(in.size() * 2));
      v.slots = static_cast<long long*>(pin(sl.size() * 8));
      std::copy(in.begin(), in.end(), v.input);
      std::copy(sl.begin(), sl.end(), v.slots);
      variants.push_back(v);
    }
    u16* poisoned = static_cast<u16*>(pin(std::max(row_values, q_values) * 2));
    std::fill_n(poisoned, std::max(row_values, q_values), poison);
    std::vector<int> q_layers;
    for (int l = 0; l < layer_count(); ++l)
      if (s.of[0].q[std::size_t(l)] != nullptr) q_layers.push_back(l);
    const std::size_t result_values = row_values + q_values * q_layers.size();
    std::vector<u16*> results;
    for (int i = 0; i < in_flight * ranks; ++i) results.push_back(static_cast<u16*>(pin(result_values * 2)));

    const int widths[2] = {max_rows, 2};
    hipGraphExec_t graphs[2][ranks];
    for (int w = 0; w < 2; ++w)
      for (int r = 0; r < ranks; ++r) {
        hipGraph_t graph;
        MUST_HIP(hipStreamBeginCapture(backend.streams[r], hipStreamCaptureModeThreadLocal));
        backend.template launch<target, program>(s.params(r, widths[w], 0, layer_count(), how), how.blocks);
        MUST_HIP(hipStreamEndCapture(backend.streams[r], &graph));
        MUST_HIP(hipGraphInstantiate(&graphs[w][r], graph, nullptr, nullptr, 0));
        MUST_HIP(hipGraphDestroy(graph));
      }
    const double begin = seconds();
    long wrong = 0;
    std::string first;
    for (int done = 0; done < count; done += in_flight) {
      const int n = std::min(in_flight, count - done);
      std::vector<const variant*> used;
      for (int i = 0; i < n; ++i) {
        const variant& v = variants[std::size_t((done + i) * 5 + (done + i) / 7) % variants.size()];
        used.push_back(&v);
        const int w = int(v.ids.size()) <= 2 ? 1 : 0;
        for (int r = 0; r < ranks; ++r) {
          const hipStream_t st = backend.streams[r];
          MUST_HIP(hipMemcpyAsync(s.of[r].input, v.input, row_values * 2, hipMemcpyHostToDevice, st));
          MUST_HIP(hipMemcpyAsync(s.of[r].row_slots, v.slots, max_rows * 8, hipMemcpyHostToDevice, st));
          MUST_HIP(hipMemcpyAsync(s.of[r].output, poisoned, row_values * 2, hipMemcpyHostToDevice, st));
          for (int l : q_layers)
            MUST_HIP(hipMemcpyAsync(s.of[r].q[std::size_t(l)], poisoned, q_values * 2, hipMemcpyHostToDevice, st));
        }
        for (int r = 0; r < ranks; ++r) MUST_HIP(hipGraphLaunch(graphs[w][r], backend.streams[r]));
        for (int r = 0; r < ranks; ++r) {
          u16* to = results[std::size_t(i * ranks + r)];
          MUST_HIP(hipMemcpyAsync(to, s.of[r].output, row_values * 2, hipMemcpyDeviceToHost, backend.streams[r]));
          for (std::size_t k = 0; k < q_layers.size(); ++k)
            MUST_HIP(hipMemcpyAsync(to + row_values + k * q_values, s.of[r].q[std::size_t(q_layers[k])], q_values * 2,
                                    hipMemcpyDeviceToHost, backend.streams[r]));
        }
      }
      backend.finish();
      if (!healthy(text("replay %d", done))) return false;
      for (int i = 0; i < n; ++i) {
        outcome o;
        for (int r = 0; r < ranks; ++r) {
          const u16* from = results[std::size_t(i * ranks + r)];
          o.out.push_back({from, from + row_values});
          o.q.emplace_back(std::size_t(layer_count()));
          for (std::size_t k = 0; k < q_layers.size(); ++k)
            o.q.back()[std::size_t(q_layers[k])].assign(from + row_values + k * q_values, from + row_values + (k + 1) * q_values);
        }
        const std::string d = difference(o, used[std::size_t(i)]->ids);
        if (!d.empty() && wrong++ == 0) first = text("replay %d, %s", done + i, d.c_str());
      }
    }
    for (auto& of_width : graphs)
      for (hipGraphExec_t g : of_width) MUST_HIP(hipGraphExecDestroy(g));
    for (void* at : pinned) MUST_HIP(hipHostFree(at));
    std::printf("%s, %d graph replays on %d ranks in %.2f s, epoch now %llu\n", name.c_str(), count, ranks, seconds() - begin,
                static_cast<unsigned long long>(s.state(0).epoch));
    return verify(wrong == 0, name + text(", %ld of %d replays gave other bits, the first: ", wrong, count) + first);
  }
#else
  bool replays(int) { return true; }
#endif

  /// One line a layer and row, to be compared with another target's.
  void print_hashes() {
    s.set_rows(input_of(everyone), slots_of(everyone));
    for (int l = 0; l < layer_count(); ++l) {
      launch(max_rows, l, 1, how);
      if (!healthy("hashes")) return;
      const outcome o = collect();
      const bool is_a = source.layers[std::size_t(l)].kind == program::slice_a;
      for (int row = 0; row < max_rows; ++row) {
        u64 h = 0xcbf29ce484222325ull;
        for (int r = 0; r < ranks; ++r) {
          const std::vector<u16>& v = is_a ? o.q[r][l] : o.out[r];
          const std::size_t columns = is_a ? program::q_columns : C::hidden;
          for (std::size_t c = 0; c < columns; ++c) h = (h ^ v[std::size_t(row) * columns + c]) * 0x100000001b3ull;
        }
        std::printf("hash %s layer %d row %d %016llx\n", name.c_str(), l, row, static_cast<unsigned long long>(h));
      }
    }
    std::fflush(stdout);
  }
};

template <class C>
struct fp8_slices : C {
  using expert_weights = fp8_channel;
};

template <class M>
std::size_t packed_bytes(const M& m) {
  std::size_t n = 0;
  for (const auto& l : m.layers)
    for (const auto* v : {&l.packed_for_a.q_a, &l.packed_for_a.q_b, &l.packed_for_b.routed_gate_up, &l.packed_for_b.routed_down,
                          &l.packed_for_b.shared_gate_up, &l.packed_for_b.shared_down})
      for (const packed_matrix& p : *v) n += p.bytes.size();
  return n;
}
template <class C>
void test_slices(const char* name, int replays, const std::vector<int>& experts = {}) {
  try {
    const double begin = seconds();
    rig<C> r(name, 5, experts);
    std::printf("%s: %d ranks of %d blocks, %zu MB packed, set up in %.1f s\n", name, C::ranks, r.how.blocks,
                packed_bytes(r.source) >> 20, seconds() - begin);
    std::fflush(stdout);
    // Bits are compared even where the reference disagrees: both say something.
    r.against_reference();
    if (r.expected.out.empty()) return;
    if (r.bits()) r.replays(replays);
  } catch (const std::exception& e) {
    verify(false, std::string(name) + ": " + e.what());
  }
}
template <class C>
void hashes(const char* name) {
  try {
    rig<C> r(name, 5, {});
    r.print_hashes();
  } catch (const std::exception& e) {
    verify(false, std::string(name) + ": " + e.what());
  }
}

}  // namespace
}  // namespace monolayer::test

int main(int argc, char** argv) {
  using namespace monolayer;
  using namespace monolayer::test;
  bool small = false, full = false, only_hashes = false;
  int replays = 1000;
  for (int i = 1; i < argc; ++i) {
    small |= std::strcmp(argv[i], "--small") == 0;
    full |= std::strcmp(argv[i], "--full") == 0;
    only_hashes |= std::strcmp(argv[i], "--hashes") == 0;
    if (std::strcmp(argv[i], "--replays") == 0 && i + 1 < argc) replays = std::atoi(argv[++i]);
  }
  if (!small && !full) small = full = true;
  seconds();
#if !defined(SLICES_ON_SIMULATOR)
  setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  std::thread([] {
    std::this_thread::sleep_for(std::chrono::seconds(240));
    std::printf("FAIL: still running after 240 s\n");
    std::fflush(stdout);
    std::_Exit(3);
  }).detach();
#else
  full = false;
#endif
  if (only_hashes) {
    hashes<small_slices<1>>("small-tp1");
    hashes<small_slices<4>>("small-tp4");
    return failed == 0 ? 0 : 1;
  }
  if (small) {
    test_slices<small_slices<1>>("small TP1", replays);
    test_slices<small_slices<4>>("small TP4", replays);
#if !defined(SLICES_ON_SIMULATOR)
    test_slices<fp8_slices<small_slices<4>>>("small TP4 fp8_channel", replays / 10);
    test_slices<with_bf16_weights<small_slices<4>>>("small TP4 bf16", replays / 10);
#endif
  }
#if !defined(SLICES_ON_SIMULATOR)
  // Twelve experts, the first and the last among them: eight rows still share some and not others.
  const std::vector<int> experts = {0, 3, 17, 64, 65, 100, 127, 128, 191, 200, 254, 255};
  if (full) {
    test_slices<glm5_slices<4>>("GLM-5 TP4", replays, experts);
    test_slices<glm5_slices<1>>("GLM-5 TP1", replays, experts);
  }
#endif
  std::printf("%.1f s\n%d passed, %d failed\n", seconds(), passed, failed);
  return failed == 0 ? 0 : 1;
}
