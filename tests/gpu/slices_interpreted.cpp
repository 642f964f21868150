// The host's half of test_slices_interpreted.py, as a shared library: layers A B A B packed for gfx950 in plain memory
// that an interpreter in this process can work on, the same layers on the simulator, and the comparison of their bits.
// Rows carry ids; a row's bits depend on its id alone, so one run of the simulator with all rows tells what to expect.
#include <map>

#include "gpu/interpreted_interface.hpp"
#include "slices/sim_backend.hpp"

namespace monolayer::test {
namespace {

constexpr u16 poison = 0x7fc1;  // what session::set_rows leaves in outputs

struct results {
  std::vector<u16> out;                     // of rank 0
  std::vector<std::vector<std::vector<u16>>> q;  // by rank and layer
};

template <class C>
struct layers final : layers_under_test {
  using program = slices<C>;
  using plan = monolayer::plan<gfx950, program>;
  using packed_for = sim::gfx950;
  using device_session = session<interpreted_backend, packed_for, C, gfx950>;
  static constexpr int ranks = C::ranks, max_rows = C::max_rows;
  static constexpr u64 A = program::slice_a, B = program::slice_b;
  static_assert(sim::gfx950::wave_size == gfx950::wave_size && sim::gfx950::arrivals == gfx950::arrivals);
  static_assert(sim::gfx950::mxfp4_largest_scale == gfx950::mxfp4_largest_scale);

  model<packed_for, C> source{{A, B, A, B}};
  reference::batch inputs = reference::random_activations(max_rows, C::hidden, 78);
  std::map<int, results> expected;  // by the number of layers that have run
  std::unique_ptr<interpreted_backend> backend;
  std::unique_ptr<device_session> s;
  std::vector<int> rows;
  u64 epoch = 0;

  layers() {
    packed_alike();
    sim::options o;
    o.ranks = ranks;
    sim_backend machine(o);
    session<sim_backend, packed_for, C> simulated(machine, source);
    std::vector<int> all;
    for (int i = 0; i < max_rows; ++i) all.push_back(i);
    const auto [input, slots] = batch_of(all);
    simulated.set_rows(input, slots);
    run_options how;
    how.local_deadline_ns = how.peer_deadline_ns = 200'000'000'000;
    for (int first = 0; first < 4; first += 2) {
      simulated.launch(max_rows, first, 2, how);
      const sim::report r = machine.run();
      if (!r.ok) throw std::runtime_error("simulator: " + r.text);
      expected[first + 2] = results_of(simulated);
    }
  }
  /// The two targets' packed bytes are the same: both take a checkpoint's codes in order.
  void packed_alike() const {
    const slice_a_tensors a{nullptr, view(source.layers[0].a->q_a), nullptr, view(source.layers[0].a->q_b)};
    const auto& e = source.layers[1].b->get(0);
    using device_packer = slice_packer<gfx950, C>;
    std::vector<u8> simulated(device_packer::gate_up_bytes), real(simulated.size());
    must(slice_packer<packed_for, C>::expert_gate_up(simulated, view(e), 0, "gate_up"));
    must(device_packer::expert_gate_up(real, view(e), 0, "gate_up"));
    const packed_matrix q_a = must(device_packer::q_a(a, 0));
    if (simulated != real || q_a.bytes != source.layers[0].packed_for_a.q_a[0].bytes)
      throw std::runtime_error("gfx950 and its simulation pack weights differently");
  }
  std::pair<std::vector<u16>, std::vector<long long>> batch_of(const std::vector<int>& ids) const {
    const std::vector<u16> bits = reference::to_bf16(inputs);
    std::vector<u16> input(bits.size(), 0x7fc2);  // dead rows hold NaN
    std::vector<long long> slots(max_rows, -1);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] < 0) continue;
      slots[i] = 100 + ids[i];
      std::copy_n(bits.begin() + std::ptrdiff_t(ids[i]) * C::hidden, C::hidden,
                  input.begin() + std::ptrdiff_t(i) * C::hidden);
    }
    return {input, slots};
  }
  template <class S>
  results results_of(const S& of) const {
    results r{of.output(0), {}};
    for (int rank = 0; rank < ranks; ++rank) {
      r.q.emplace_back();
      for (std::size_t l = 0; l < source.layers.size(); ++l)
        r.q.back().push_back(of.of[rank].q[l] != nullptr ? of.q(rank, int(l)) : std::vector<u16>{});
    }
    return r;
  }

  void fresh(u64 newest_epoch) override {
    s.reset();
    backend = std::make_unique<interpreted_backend>();
    s = std::make_unique<device_session>(*backend, source);
    epoch = newest_epoch;
    for (int r = 0; r < ranks; ++r) static_cast<device_state*>(s->of[r].memory.state[r])->epoch = epoch;
  }
  void set_rows(const std::vector<int>& ids) override {
    rows = ids;
    const auto [input, slots] = batch_of(ids);
    s->set_rows(input, slots);
  }
  launch_params params(int rank, int first, int count, const run_options& o) override {
    return s->params(rank, int(rows.size()), first, count, o);
  }
  /// What is wrong after a launch of layers [first, first + count): states, then bits.
  std::string difference(int first, int count) override {
    epoch = epoch_after(epoch, u32(count));
    const results got = results_of(*s);
    char text[256];
    for (int r = 0; r < ranks; ++r) {
      const device_state state = s->state(r);
      if (state.failed.word != 0 || state.failed.claimed != 0 || state.failed_launches != 0) {
        const failure_record& f = state.failed;
        std::snprintf(text, sizeof text,
                      "rank %d failed: word %u block %u layer %u stage %u tile %u slot %u part %u expected %u seen %u", r,
                      f.word, f.block, f.layer, f.stage, f.tile, f.slot, f.part, f.expected, f.seen);
        return text;
      }
      if (state.epoch != epoch)
        return "rank " + std::to_string(r) + ": epoch " + std::to_string(state.epoch) + ", not " + std::to_string(epoch);
      if (s->output(r) != got.out) return "rank " + std::to_string(r) + " has another stream than rank 0";
    }
    const results& want = expected.at(first + count);
    auto compare = [&](const std::vector<u16>& g, const std::vector<u16>& w, int columns, const char* what, int rank) {
      for (int row = 0; row < max_rows; ++row)
        for (int c = 0; c < columns; ++c) {
          const int id = row < int(rows.size()) ? rows[std::size_t(row)] : -1;
          const u16 seen = g[std::size_t(row) * columns + c];
          const u16 right = id < 0 ? poison : w[std::size_t(id) * columns + c];
          if (seen == right) continue;
          std::snprintf(text, sizeof text, "%s of rank %d, row %d (id %d), column %d: %04x instead of %04x", what, rank, row,
                        id, c, seen, right);
          return false;
        }
      return true;
    };
    for (int r = 0; r < ranks; ++r)
      for (int l = first; l < first + count; ++l)
        if (source.layers[std::size_t(l)].kind == A &&
            !compare(got.q[std::size_t(r)][std::size_t(l)], want.q[std::size_t(r)][std::size_t(l)], program::q_columns,
                     "q", r))
          return text;
    if (!compare(got.out, want.out, C::hidden, "output", 0)) return text;
    return {};
  }
  /// How far the expected bits of the first two layers are from the float64 reference; empty first word: too far.
  std::string accuracy() override {
    const auto& g = source.g;
    const reference::batch x = reference::from_bf16(reference::to_bf16(inputs).data(), max_rows, g.hidden);
    const results& got = expected.at(2);
    const auto a = reference::slice_a(g, *source.layers[0].a, x);
    double worst = 0;
    for (int r = 0; r < ranks; ++r) {
      const auto part = reference::q_rows_of_rank(g, r, ranks);
      worst = std::max(worst, reference::relative_l2(
                                  reference::from_bf16(got.q[std::size_t(r)][0].data(), max_rows, program::q_columns),
                                  reference::column_slice(a.q, part.begin, part.count)));
    }
    const auto b = reference::slice_b(g, *source.layers[1].b, x, ranks);
    const double error = reference::relative_l2(reference::from_bf16(got.out.data(), max_rows, g.hidden), b.out);
    char text[128];
    std::snprintf(text, sizeof text, "%s relative l2 to float64: q %.2e, output %.2e", worst <= 3e-3 && error <= 2e-3 ? "ok" : "TOO FAR",
                  worst, error);
    return text;
  }
  const interpreted_backend& device() const override { return *backend; }
};

}  // namespace
}  // namespace monolayer::test

/// For 1 or 4 ranks, already run on the simulator.
layers_under_test* ml_create(int ranks) {
  layers_under_test* made = nullptr;
  test::guarded([&] {
    if (ranks == 1) made = new test::layers<small_slices<1>>;
    else made = new test::layers<small_slices<4>>;
    return std::string();
  });
  return made;
}
