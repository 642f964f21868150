// The host's half of test_layers_interpreted.py, as a shared library: a dense layer, a MoE layer and a MoE layer that
// attends to the picks of the one before, packed for gfx950 in plain memory that an interpreter in this process can work on.
// The simulator makes the same launches on memory of its own; streams, caches and picks must be equal, bit for bit.
#include <map>

#include "glm5/session.hpp"
#include "gpu/interpreted_interface.hpp"
#include "slices/sim_backend.hpp"

namespace monolayer::test {
namespace {

using C = with_mxfp4_layer<micro_layer<1>>;
using P = glm5<C>;
using simulated = sim::gfx950;
static_assert(simulated::wave_size == gfx950::wave_size && simulated::arrivals == gfx950::arrivals);

/// A row: its request and position, by the number that launches call it.
struct known_row {
  token_row token;
  int input;
};
// Contexts below and beyond index_topk (64); rows 2 and 3 are neighbours of one request, so one reads the other's token
// from slot `own`.
constexpr known_row known_rows[] = {{{0, 90}, 0}, {{1, 11}, 1}, {{2, 100}, 2}, {{2, 101}, 3}, {{3, 63}, 4}};
constexpr int requests = 4, tokens = 112;

std::vector<reference::glm5_layer> make_layers() {
  std::vector<reference::glm5_layer> all;
  for (int i = 0; i < 3; ++i) {
    reference::glm5_layer_options o = glm5_formats_of<C>();
    o.dense = i == 0;
    o.indexer = i != 2;
    all.push_back(reference::make_glm5_layer(glm5_geometry_of<C>(), u64(500 + i), o));
  }
  return all;
}

struct whole_layers final : layers_under_test {
  using device_session = glm5_session<interpreted_backend, simulated, C, gfx950>;
  using sim_session = glm5_session<sim_backend, simulated, C>;
  static constexpr int max_rows = C::max_rows;
  glm5_model<simulated, C> model{make_layers()};
  std::vector<u16> inputs = reference::to_bf16(reference::random_activations(int(std::size(known_rows)), C::hidden, 79));
  std::unique_ptr<interpreted_backend> memory;
  std::unique_ptr<sim_backend> machine;
  std::unique_ptr<device_session> on_device;
  std::unique_ptr<sim_session> expected;
  std::vector<token_row> rows;
  std::vector<u64> kinds;

  static paging_options paging() {
    paging_options p;
    p.requests = requests;
    p.tokens = tokens;
    p.row_pad = 64;
    p.page_pad = 256;
    return p;
  }
  void fresh(u64 newest_epoch) override {
    on_device.reset();
    expected.reset();
    memory = std::make_unique<interpreted_backend>();
    machine = std::make_unique<sim_backend>(sim::options{.ranks = 1});
    on_device = std::make_unique<device_session>(*memory, model, paging());
    expected = std::make_unique<sim_session>(*machine, model, paging());
    for (int l = 0; l < int(model.layers.size()); ++l)
      for (int r = 0; r < requests; ++r) {
        const auto cache = reference::random_cache(tokens, C::kv_lora + C::rope, C::index_dim, u64(100 + 10 * l + r),
                                                   kv_format_of<C>(), key_format_of<C>());
        on_device->set_cache(l, r, cache);
        expected->set_cache(l, r, cache);
      }
    static_cast<device_state*>(on_device->of[0].memory.state[0])->epoch = newest_epoch;
    static_cast<device_state*>(expected->of[0].memory.state[0])->epoch = newest_epoch;
  }
  void set_rows(const std::vector<int>& numbers) override {
    rows.clear();
    std::vector<u16> input(std::size_t(max_rows) * C::hidden, 0x7fc2);  // dead rows hold NaN
    std::vector<std::vector<int>> lists;
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      const int n = numbers[i];
      rows.push_back(n < 0 ? dead_row : known_rows[n].token);
      lists.emplace_back();
      if (n < 0) continue;
      std::copy_n(inputs.begin() + std::ptrdiff_t(n) * C::hidden, C::hidden, input.begin() + std::ptrdiff_t(i) * C::hidden);
      for (int t = known_rows[n].token.position % 3; t <= known_rows[n].token.position; t += 3) lists.back().push_back(t);
    }
    on_device->set_rows(rows, input, lists);
    expected->set_rows(rows, input, lists);
  }
  /// Arguments of the kernel for a launch of layers [first, first + count), which the simulator makes at once. A layer
  /// without an indexer attends to the picks before it, or to the caller's list where the span has none.
  launch_params params(int, int first, int count, const run_options& o) override {
    kinds.clear();
    for (int l = first; l < first + count; ++l) kinds.push_back(model.layers[std::size_t(l)].kind(false));
    on_device->launch(int(rows.size()), first, kinds, o);
    expected->launch(int(rows.size()), first, kinds, o);
    const sim::report r = machine->run();
    if (!r.ok) throw std::runtime_error("simulator: " + r.text);
    return memory->launched.back();
  }
  /// What is wrong after that launch.
  std::string difference(int first, int count) override {
    const device_state got = on_device->state(0), want = expected->state(0);
    char text[256];
    if (got.failed.word != 0 || got.failed_launches != 0) {
      const failure_record& f = got.failed;
      std::snprintf(text, sizeof text, "failed: word %u block %u layer %u stage %u tile %u slot %u part %u expected %u seen %u",
                    f.word, f.block, f.layer, f.stage, f.tile, f.slot, f.part, f.expected, f.seen);
      return text;
    }
    if (got.epoch != want.epoch) return "epoch " + std::to_string(got.epoch) + ", not " + std::to_string(want.epoch);
    if (got.bad_entries != want.bad_entries) return "bad entries: " + std::to_string(got.bad_entries);
    const std::vector<u16> out = on_device->output(0), right = expected->output(0);
    for (std::size_t i = 0; i < out.size(); ++i)
      if (out[i] != right[i]) {
        std::snprintf(text, sizeof text, "output, row %d, column %d: %04x instead of %04x", int(i) / C::hidden,
                      int(i) % C::hidden, out[i], right[i]);
        return text;
      }
    for (int l = first; l < first + count; ++l)
      for (std::size_t i = 0; i < rows.size(); ++i) {
        if (rows[i].request < 0) continue;
        if (on_device->cached(0, l, rows[i].request, rows[i].position) != expected->cached(0, l, rows[i].request, rows[i].position))
          return "layer " + std::to_string(l) + ", row " + std::to_string(i) + ": what was put into the caches";
      }
    if (count > 1)
      for (std::size_t i = 0; i < rows.size(); ++i)
        if (rows[i].request >= 0 && on_device->picks(0, rows[i], int(i)) != expected->picks(0, rows[i], int(i)))
          return "picks of row " + std::to_string(i);
    return {};
  }
  /// How far the simulator's bits of the dense layer alone are from the float64 reference under the same picks.
  std::string accuracy() override {
    fresh(0);
    set_rows({0, 1});
    run_options patient;
    patient.local_deadline_ns = patient.peer_deadline_ns = 3'000'000'000'000;
    params(0, 0, 1, patient);
    reference::query_rows q{reference::batch(2, C::hidden), {}, {}};
    reference::token_lists picked;
    std::vector<reference::request_cache> caches;
    for (int r = 0; r < requests; ++r)
      caches.push_back(reference::random_cache(tokens, C::kv_lora + C::rope, C::index_dim, u64(100 + r), kv_format_of<C>(),
                                               key_format_of<C>()));
    for (int i = 0; i < 2; ++i) {
      q.positions.push_back(rows[std::size_t(i)].position);
      q.requests.push_back(rows[std::size_t(i)].request);
      picked.push_back(expected->picks(0, rows[std::size_t(i)], i));
      for (int c = 0; c < C::hidden; ++c) q.h(i, c) = reference::bf16_decode(inputs[std::size_t(i) * C::hidden + std::size_t(c)]);
    }
    reference::step_options how;
    how.points.cache = kv_format_of<C>();
    how.points.index_cache = key_format_of<C>();
    how.points.q_with_factors = P::factors_in_q;
    how.points.range = C::index_topk / C::kv_splits;
    how.points.step = attention_areas<C, simulated>::step;
    how.dense_slices = C::dense_slices;
    how.lists = &picked;
    const auto wanted = reference::layer_step(model.g, model.layers[0].weights, q, caches, how);
    const std::vector<u16> out = expected->output(0);
    const double error = reference::relative_l2(reference::from_bf16(out.data(), 2, C::hidden), wanted.out);
    char text[96];
    std::snprintf(text, sizeof text, "%s relative l2 to float64: %.2e", error <= 4e-3 ? "ok" : "TOO FAR", error);
    return text;
  }
  const interpreted_backend& device() const override { return *memory; }
};

}  // namespace
}  // namespace monolayer::test

layers_under_test* ml_create(int) {
  layers_under_test* made = nullptr;
  test::guarded([&] {
    made = new test::whole_layers;
    return std::string();
  });
  return made;
}
