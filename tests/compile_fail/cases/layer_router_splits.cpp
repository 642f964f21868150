// expect: projection: each split must be a multiple of 128 columns
// The router's 256 columns of k cannot be cut into 4.
#include "monolayer/layers/glm5.hpp"

struct config : monolayer::micro_layer<1> {
#ifdef MONOLAYER_FIXED
  static constexpr int router_splits = 2;
#else
  static constexpr int router_splits = 4;
#endif
};
static_assert(monolayer::glm5<config>::router_stage::tiles > 0);
