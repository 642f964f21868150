// The layers of GLM-5 in their own size on one target, TARGET.
#include "slices/against_reference.hpp"

using namespace monolayer;
using namespace monolayer::test;

using T = sim::TARGET;

namespace {
struct glm5_alone : glm5_slices<1> {
  static constexpr int max_rows = 3;
};
}  // namespace

TEMPLATE_TEST_CASE("GLM-5's own geometry", "[full]", glm5_slices<4>, glm5_alone) {
  // Sixteen experts are enough for two rows to choose from; all of them would be gigabytes.
  std::vector<int> experts;
  for (int e = 0; e < 16; ++e) experts.push_back(16 * e + e % 5);
  const rig<T, TestType> r({A, B}, 1, {}, {}, 1, experts);
  setup s = with_rows({1, -1, 0});
  s.blocks = 16;
  const accuracy a = against_reference(r, s);
  CHECK(a.rows == 2);
  s.spans = {{0, 1}, {1, 1}};
  const outcome expected = r.run(s);
  MUST_RUN(expected);
  setup other = with_rows({1});
  other.blocks = 24, other.groups = 8, other.ring_limit = 3, other.seed = 2;
  const outcome o = r.run(other);
  MUST_RUN(o);
  CHECK(r.difference(o, expected) == "");
}
