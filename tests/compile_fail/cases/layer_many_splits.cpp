// expect: v_up: latent must be a multiple of 128, kv_splits at most 32
// A wave weighs the splits of a row with one lane each.
#include "monolayer/layers/glm5.hpp"

struct config : monolayer::micro_layer<1> {
#ifdef MONOLAYER_FIXED
  static constexpr int kv_splits = 32;
#else
  static constexpr int kv_splits = 64;
#endif
};
static_assert(monolayer::glm5<config>::v_up_stage::tiles > 0);
