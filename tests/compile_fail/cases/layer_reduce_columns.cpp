// expect: parts_divide: a slot's parts must divide the tiles of its writer
// expect: of_slot<12, monolayer::refused::text<13>{"attn_partial"}>
// expect: tiles_and_parts<16, 32>
// Tiles of the sum over the ranks that are narrower than the tiles that make the partial sums.
#include "monolayer/core/proofs.hpp"
#include "monolayer/layers/glm5.hpp"

struct config : monolayer::micro_layer<1> {
#ifdef MONOLAYER_FIXED
  static constexpr int reduce_columns = 32;
#else
  static constexpr int reduce_columns = 8;
#endif
};
static_assert(monolayer::proven<monolayer::glm5<config>>::value);
