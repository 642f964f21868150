// expect: attention: kv_splits must divide index_topk
// expect: attention<config
// A list of 64 entries cannot be cut into 3 ranges of one length.
#include "monolayer/layers/glm5.hpp"

struct config : monolayer::micro_layer<1> {
#ifdef MONOLAYER_FIXED
  static constexpr int kv_splits = 4;
#else
  static constexpr int kv_splits = 3;
#endif
};
static_assert(monolayer::glm5<config>::attention_stage::tiles > 0);
