// The other weight formats on one target, TARGET.
#include "slices/against_reference.hpp"

using namespace monolayer;
using namespace monolayer::test;

using T = sim::TARGET;

TEMPLATE_TEST_CASE("weight formats", "[reference][bits]", with_bf16_weights<small_slices<1>>,
                   with_bf16_weights<small_slices<4>>, fp8_channel_slices<1>) {
  const rig<T, TestType> r({A, B}, 3);
  setup s = with_rows({4, -1, 1});
  against_reference(r, s);
  s.spans = {{0, 1}, {1, 1}};
  const outcome expected = r.run(s);
  MUST_RUN(expected);
  setup other = with_rows({1, 4});
  other.blocks = 8, other.groups = 2, other.ring_limit = 2, other.seed = 9;
  const outcome o = r.run(other);
  MUST_RUN(o);
  CHECK(r.difference(o, expected) == "");
}
