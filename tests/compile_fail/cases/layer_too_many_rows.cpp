// expect: lds_budget: a block needs more LDS than the target has
// expect: plan: the staged rows of max_rows rows and two ring slots do not fit the target's LDS; lower max_rows
// One rank of GLM-5 has 64 heads' outputs to stage for each row: more than three rows do not fit 160 KiB.
#define MONOLAYER_SKIP_PROOFS
#include "monolayer/arch/sim/targets.hpp"
#include "monolayer/host/plan.hpp"
#include "monolayer/layers/glm5.hpp"

struct config : monolayer::glm5_layer<1> {
#ifdef MONOLAYER_FIXED
  static constexpr int max_rows = 3;
#else
  static constexpr int max_rows = 4;
#endif
};
static_assert(monolayer::plan<monolayer::sim::gfx950, monolayer::glm5<config>>::slots_bytes > 0);
