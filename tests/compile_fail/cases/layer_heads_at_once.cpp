// expect: attention: heads must be a multiple of heads_at_once, at most 16
// expect: attention<config
// A rank with 8 heads cannot attend with 3 at a time.
#include "monolayer/layers/glm5.hpp"

struct config : monolayer::micro_layer<1> {
#ifdef MONOLAYER_FIXED
  static constexpr int heads_at_once = 4;
#else
  static constexpr int heads_at_once = 3;
#endif
};
static_assert(monolayer::glm5<config>::attention_stage::tiles > 0);
