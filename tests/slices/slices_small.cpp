// The small configs of one target, TARGET: against the reference, and the same bits in every way to run them.
#include "slices/against_reference.hpp"

using namespace monolayer;
using namespace monolayer::test;

using T = sim::TARGET;

namespace {

template <class C>
const rig<T, C>& pair_of_layers() {  // made once: packing takes as long as a run
  static const rig<T, C> r({A, B});
  return r;
}

template <class C>
void same_bits(const rig<T, C>& r, std::initializer_list<setup> ways) {
  setup plain;
  plain.blocks = 5;
  const outcome expected = r.run(plain);
  MUST_RUN(expected);
  int number = 0;
  for (setup how : ways) {
    how.seed = u64(number + 2);
    const outcome o = r.run(how);
    INFO("way " << number++);
    MUST_RUN(o);
    CHECK(r.difference(o, expected) == "");
  }
}

setup way(std::vector<int> rows, int blocks, int groups = 1, u32 ring_limit = 0, std::vector<span> spans = {}) {
  setup s;
  s.rows = std::move(rows);
  s.blocks = blocks, s.groups = groups, s.ring_limit = ring_limit;
  s.spans = std::move(spans);
  return s;
}

}  // namespace

TEST_CASE("TP1 agrees with the reference", "[reference]") {
  const accuracy a = against_reference(pair_of_layers<small_slices<1>>(), {});
  CHECK(a.rows == 8);
  CHECK(a.sure_rows >= 6);
}

TEST_CASE("TP4 agrees with the reference", "[reference]") {
  setup s = with_rows({3, -1, 0, 6, -1});
  s.blocks = 4;
  const accuracy a = against_reference(pair_of_layers<small_slices<4>>(), s);
  CHECK(a.rows == 3);
}

TEST_CASE("small inputs show the eps of each norm", "[reference]") {
  reference::layer_a_options small_q_a;
  small_q_a.q_a_gain = 1e-3;
  const rig<T, small_slices<1>> r({A, B}, 5, {}, small_q_a, 1e-3);
  const setup s = with_rows({0, 1});
  against_reference(r, s);
  // The comparison would see it: without eps the reference itself moves by far more than the bound.
  const auto rows = reference::from_bf16(reference::to_bf16(r.inputs).data(), 2, r.source.g.hidden);
  for (int which = 0; which < 3; ++which) {
    auto g = r.source.g;
    (which == 0 ? g.eps_input : which == 1 ? g.eps_q_a : g.eps_post) *= 0.1f;
    INFO("eps " << which);
    if (which < 2)
      CHECK(reference::relative_l2(reference::slice_a(g, *r.source.layers[0].a, rows).q,
                                   reference::slice_a(r.source.g, *r.source.layers[0].a, rows).q) > 0.01);
    else
      CHECK(reference::relative_l2(reference::slice_b(g, *r.source.layers[1].b, rows).out,
                                   reference::slice_b(r.source.g, *r.source.layers[1].b, rows).out) > 0.01);
  }
}

TEST_CASE("zero blocks and outliers in the weights", "[reference]") {
  reference::layer_a_options how_a;
  reference::layer_b_options how_b;
  how_a.how = how_b.how = {.quantised = true, .zero_blocks = true, .outlier_blocks = true};
  const rig<T, small_slices<1>> r({A, B}, 6, how_b, how_a);
  against_reference(r, with_rows({0, 1}));
}

TEST_CASE("biases near 34 decide as f32 does", "[reference]") {
  reference::layer_b_options how_b;
  how_b.bias_near_34 = true;
  const rig<T, small_slices<1>> r({B}, 7, how_b);
  const accuracy a = against_reference(r, {});
  CHECK(a.sure_rows >= 6);
}

TEST_CASE("TP1: same bits in any grid, group, ring, mix of rows and cut of the span", "[bits]") {
  same_bits(pair_of_layers<small_slices<1>>(), {way({}, 3), way({5, -1, 2}, 8, 2), way({7}, 17, 1, 2),
                                                way({1, 0}, 9, 3, 3, {{0, 1}, {1, 1}})});
}

TEST_CASE("TP4: same bits in any grid, group, ring, mix of rows and cut of the span", "[bits]") {
  same_bits(pair_of_layers<small_slices<4>>(), {way({5, -1, 2}, 8, 2), way({-1, 7}, 17, 1, 2),
                                                way({1, 0}, 3, 3, 3, {{0, 1}, {1, 1}})});
}
