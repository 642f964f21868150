// Mistakes that the author of a stage can make and no proof sees: the simulator or the bits must tell. The
// report's kind and words are what docs/custom_layer.md says of them.
#define MONOLAYER_SKIP_PROOFS  // a table that hides a read is one of the mistakes
#include <catch2/catch_test_macros.hpp>

#include "custom_layer/simulated.hpp"

using namespace custom_layer;

namespace {

using T = sim::gfx950;
using C = small_config;
using right = program<C>;

enum class mistake { none, undeclared_read, reads_what_it_writes, diverges, too_wide, taps_reversed };
mistake active = mistake::none;

/// short_conv, then one thing wrong.
struct wrong_conv : right::conv_stage {
  using base = right::conv_stage;
  template <class Block>
  static bool run_tile(Block& b, int tile) {
    const int row = tile / base::of_row, first = tile % base::of_row * base::tile_columns;
    if (!base::run_tile(b, tile)) return false;
    if (b.column_of(row) < 0) return true;
    const auto y = slot_view<T, typename Block::program, right::y>::current(b);
    const u8* state = layer_data<T>(b.entry(), right::state) +
                      u64(T::load8(b.params->row_slots + row).v[0]) * base::request_bytes;
    const u32 t = T::load8(b.params->batch.positions + row).v[0];
    if (active == mistake::reads_what_it_writes && Block::thread() == 0)
      y.store8(row, first, T::load16(state + t % C::taps * base::value_bytes + first * 2));
    if (active == mistake::too_wide && Block::thread() == 0)
      y.store8(row, (first + base::tile_columns) % C::channels, u32x4{});
    return true;
  }
};

/// limited_gate_up whose lanes without a valid column stay away from the exchange that store_features makes.
struct wrong_gate_up : right::gate_up_stage {
  template <class Block>
  static bool run_tile(Block& b, int tile) {
    if (active != mistake::diverges) return right::gate_up_stage::run_tile(b, tile);
    const auto act = slot_view<T, typename Block::program, right::act>::current(b);
    return project<right::gate_up_stage::weights>(b, [&](int feature, int column, bool valid, float(&y)[2]) {
      if (valid)
        stages::store_features(b, act, tile * tile_features, feature, column, valid, mul(silu(y[0]), y[1]));
    });
  }
};

struct wrong : right {
  using codes = code_list<in_stage, wrong_conv, out_stage, wrong_gate_up, down_stage, sum_stage>;
};
struct undeclared : wrong {
  static constexpr program_info info = [] {
    program_info p = right::info;
    p.kinds[conv].stages[1].reads[0] = {};
    return p;
  }();
};

struct outcome {
  sim::report report;
  std::vector<u16> out;
};

template <class P>
outcome run(mistake what, u64 seed) {
  static const auto make = [](mistake m) {
    model<C> all({right::conv, right::mlp}, 3);
    if (m == mistake::taps_reversed)
      for (int i = 0; i < C::taps / 2; ++i)
        std::swap_ranges(&all.layers[0].taps[std::size_t(i * all.channels)],
                         &all.layers[0].taps[std::size_t((i + 1) * all.channels)],
                         &all.layers[0].taps[std::size_t((C::taps - 1 - i) * all.channels)]);
    return all;
  };
  model<C> m = make(what);
  active = what;
  simulated<T, C, P> machine(m, 2, 3, seed);
  model<C> inputs({}, 7);
  outcome o;
  for (int step = 0; step < 2; ++step) {
    o.report = machine.step({{0, step}, {-1, 0}, {1, step}}, inputs.vector(C::max_rows * C::hidden, 1, 0));
    if (!o.report.ok) return o;
  }
  o.out.assign(machine.output(0), machine.output(0) + C::max_rows * C::hidden);
  return o;
}

bool says(const sim::report& r, const char* words) { return r.text.find(words) != std::string::npos; }

}  // namespace

TEST_CASE("without a mistake the program is right and does not depend on the seed") {
  const outcome first = run<wrong>(mistake::none, 1);
  INFO(first.report.text);
  REQUIRE(first.report.ok);
  for (u64 seed : {2, 3}) CHECK((run<wrong>(mistake::none, seed).out == first.out));
}
TEST_CASE("a slot that is read and not declared") {
  int stopped = 0;
  for (u64 seed : {1, 2, 3}) {
    const outcome o = run<undeclared>(mistake::undeclared_read, seed);
    UNSCOPED_INFO(o.report.text);
    const bool order = o.report.kind == sim::error::early_read || o.report.kind == sim::error::race;
    stopped += !o.report.ok && order && says(o.report, "slot x") && says(o.report, "short_conv");
  }
  CHECK(stopped == 3);
}
TEST_CASE("memory that is read in the launch that writes it") {
  const outcome o = run<wrong>(mistake::reads_what_it_writes, 1);
  INFO(o.report.text);
  CHECK(o.report.kind == sim::error::output_read);
  CHECK(says(o.report, "short_conv"));
}
TEST_CASE("lanes that part before an exchange") {
  const outcome o = run<wrong>(mistake::diverges, 1);
  INFO(o.report.text);
  CHECK(o.report.kind == sim::error::divergent);
  CHECK(says(o.report, "gate_up"));
}
TEST_CASE("a tile that writes columns of another one") {
  int stopped = 0;
  for (u64 seed : {1, 2, 3}) {
    const outcome o = run<wrong>(mistake::too_wide, seed);
    UNSCOPED_INFO(o.report.text);
    stopped += o.report.kind == sim::error::race && says(o.report, "slot y");
  }
  CHECK(stopped == 3);
}
TEST_CASE("taps in the wrong order give other bits, and no report") {
  const outcome o = run<wrong>(mistake::taps_reversed, 1);
  CHECK(o.report.ok);
  CHECK((o.out != run<wrong>(mistake::none, 1).out));
}
