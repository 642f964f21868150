// Whole layers on a real GPU: a golden folder at one TP (co-resident ranks on one device) within the simulator's bounds,
// and 1000 replays of captured graphs in mixed widths with dead rows, bit for bit. One program for each configuration:
//   nvcc -x cu -std=c++20 -O3 -gencode arch=compute_90a,code=sm_90a --expt-relaxed-constexpr -fmad=false -I include -I tests
//        -DMONOLAYER_TEST_ON_GPU -DCONFIG="with_mxfp4_layer<micro_layer<4>>" tests/gpu/layers_device.cpp -o layers_device
//   ./layers_device FOLDER [replays]
// The last line counts; exit status 0 if all passed.
#include <chrono>
#include <cstdlib>
#include <thread>

#include "glm5/golden.hpp"

namespace monolayer::test {
namespace {

#if defined(__CUDACC__)
using target = sm90;
#else
using target = gfx950;
#endif
using C = CONFIG;
using P = glm5<C>;

/// Rows of eight requests, one a request, so that a row's bits do not depend on which others are in the launch.
struct replayed {
  static constexpr int ranks = C::ranks, max_rows = C::max_rows;
  glm5_model<target, C> model;
  layer_rig<target, C> rig;
  std::vector<u64> kinds;
  std::vector<token_row> everyone;
  std::vector<u16> inputs;  // by request
  std::vector<std::vector<u16>> expected;

  static std::vector<reference::glm5_layer> weights_of(const reference::golden_trace& t) {
    std::vector<reference::glm5_layer> all;
    for (const auto& l : t.layers) all.push_back(l.weights);
    return all;
  }
  static layer_setup setup(const reference::golden_trace& t, int blocks) {
    layer_setup s;
    s.blocks = blocks;
    s.paging.requests = max_rows;
    s.paging.tokens = int(t.tokens.size());
    return s;
  }
  replayed(const reference::golden_trace& t, int blocks) : model(weights_of(t)), rig(model, setup(t, blocks)) {
    for (const auto& l : model.layers) kinds.push_back(l.kind(false));
    const int tokens = int(t.tokens.size());
    for (int i = 0; i < max_rows; ++i) everyone.push_back({i, tokens - 1 - i * 13});
    inputs = reference::to_bf16(reference::random_activations(max_rows, C::hidden, 5));
    for (int l = 0; l < int(model.layers.size()); ++l)
      for (int i = 0; i < max_rows; ++i)
        rig.s.set_cache(l, i, reference::random_cache(tokens, C::kv_lora + C::rope, C::index_dim, u64(100 + i),
                                                      kv_format_of<C>(), key_format_of<C>()));
    rig.s.set_rows(everyone, inputs);
    launch(max_rows);
    run_all(rig.backend);
    const std::vector<u16> out = rig.s.output(0);
    for (int i = 0; i < max_rows; ++i)
      expected.emplace_back(out.begin() + long(i) * C::hidden, out.begin() + long(i + 1) * C::hidden);
  }
  void launch(int rows) {
    rig.s.launch(rows, 0, kinds, {.blocks = rig.how.blocks, .local_deadline_ns = local_deadline_ns,
                                  .peer_deadline_ns = peer_deadline_ns});
  }

  /// Graphs of two widths, replayed while the rows behind them change.
  void replay(int count) {
    const int widths[2] = {max_rows, std::min(2, max_rows)};
    hipGraphExec_t graphs[2][ranks];
    for (int w = 0; w < 2; ++w) {
      for (int r = 0; r < ranks; ++r) MUST_HIP(hipStreamBeginCapture(rig.backend.streams[r], hipStreamCaptureModeThreadLocal));
      rig.s.launch_only(widths[w], kinds, {.blocks = rig.how.blocks, .local_deadline_ns = local_deadline_ns,
                                           .peer_deadline_ns = peer_deadline_ns});
      hipGraph_t captured[ranks];  // all captures end before the first graph is made
      for (int r = 0; r < ranks; ++r) MUST_HIP(hipStreamEndCapture(rig.backend.streams[r], &captured[r]));
      for (int r = 0; r < ranks; ++r) {
        MUST_HIP(hipGraphInstantiate(&graphs[w][r], captured[r], nullptr, nullptr, 0));
        MUST_HIP(hipGraphDestroy(captured[r]));
      }
    }
    reference::generator random(3);
    long wrong = 0;
    for (int i = 0; i < count; ++i) {
      // Each row of the width is some request's or dead; requests at most once.
      const int w = int(random.next() % 3 == 0);
      std::vector<int> order(everyone.size());
      std::iota(order.begin(), order.end(), 0);
      for (std::size_t k = order.size(); k > 1; --k) std::swap(order[k - 1], order[std::size_t(random.next() % k)]);
      std::vector<token_row> rows(std::size_t(max_rows), dead_row);
      std::vector<u16> values(std::size_t(max_rows) * C::hidden, 0x7fc2);  // dead rows hold NaN
      for (int k = 0; k < widths[w]; ++k) {
        if (random.next() % 3 == 0) continue;
        rows[std::size_t(k)] = everyone[std::size_t(order[std::size_t(k)])];
        std::copy_n(inputs.begin() + long(order[std::size_t(k)]) * C::hidden, C::hidden, values.begin() + long(k) * C::hidden);
      }
      rig.s.set_rows(rows, values);
      for (int r = 0; r < ranks; ++r) MUST_HIP(hipGraphLaunch(graphs[w][r], rig.backend.streams[r]));
      run_all(rig.backend);
      for (int r = 0; r < ranks; ++r) {
        const std::vector<u16> out = rig.s.output(r);
        for (int k = 0; k < max_rows; ++k) {
          const auto at = out.begin() + long(k) * C::hidden;
          const token_row& row = rows[std::size_t(k)];
          const bool good = row.request < 0 || k >= widths[w]
                                ? std::all_of(at, at + C::hidden, [](u16 x) { return x == 0x7fc1; })
                                : std::equal(at, at + C::hidden, expected[std::size_t(row.request)].begin());
          if (!good && wrong++ < 3) std::printf("replay %d rank %d row %d of request %d: other bits\n", i, r, k, row.request);
        }
      }
      if (wrong > 20) break;
    }
    CHECK(wrong == 0);
    for (int r = 0; r < ranks; ++r) CHECK(rig.s.state(r).failed.word == 0u);
    for (int r = 0; r < ranks; ++r) CHECK(rig.s.state(r).bad_entries == 0u);
    for (auto& of_width : graphs)
      for (hipGraphExec_t g : of_width) MUST_HIP(hipGraphExecDestroy(g));
  }
};

}  // namespace
}  // namespace monolayer::test

int main(int argc, char** argv) {
  using namespace monolayer::test;
  if (argc < 2) {
    std::printf("usage: layers_device FOLDER [replays]\n");
    return 2;
  }
  setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  std::thread([] {
    std::this_thread::sleep_for(std::chrono::seconds(200));
    std::printf("FAIL: still running after 200 s\n");
    std::fflush(stdout);
    std::_Exit(3);
  }).detach();
  const auto start = std::chrono::steady_clock::now();
  plain_checks& checks = plain_checks::all();
  try {
    const auto trace = monolayer::reference::load_golden(argv[1]);
    const int blocks = std::min(monolayer::plan<target, P>::max_blocks, 132 / C::ranks);
    check_golden<target, C>(trace, {0, 1, 2, 3}, 1, blocks);
    const int replays = argc > 2 ? std::atoi(argv[2]) : 1000;
    if (replays > 0) {
      replayed again(trace, blocks);
      again.replay(replays);
      std::printf("%d graph replays\n", replays);
    }
  } catch (const std::exception& e) {
    std::printf("FAIL exception: %s\n", e.what());
    ++checks.failed;
  }
  std::printf("%s TP%d: %.1f s\n%d passed, %d failed\n", argv[1], C::ranks,
              std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(), checks.passed, checks.failed);
  return checks.failed == 0 ? 0 : 1;
}
