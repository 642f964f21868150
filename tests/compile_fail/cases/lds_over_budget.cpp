// expect: lds_budget: a block needs more LDS than the target has
// expect: lds_budget<171008, 163840>
// Staged rows, the ring and the control words of a block together.
#include "monolayer/core/proofs.hpp"

#ifdef MONOLAYER_FIXED
static_assert(monolayer::lds_budget<163840, 163840>::value);
#else
static_assert(monolayer::lds_budget<171008, 163840>::value);
#endif
