// expect: gate_up: the expert width of a rank must be a multiple of 16
// 8 ranks cannot share an expert of 320: 40 columns each.
#include "monolayer/layers/glm5.hpp"

struct config : monolayer::micro_layer<8> {
#ifdef MONOLAYER_FIXED
  static constexpr int expert_width = 384 / 8;
#else
  static constexpr int expert_width = 320 / 8;
#endif
};
static_assert(monolayer::glm5<config>::shared_stage::tiles > 0);
