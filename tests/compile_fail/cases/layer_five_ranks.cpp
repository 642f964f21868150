// expect: glm5_layer: TP is 1, 2, 4 or 8
// 64 heads and experts of 2048 are shared by 1, 2, 4 or 8 ranks.
#include "monolayer/config/glm5.hpp"

#ifdef MONOLAYER_FIXED
static_assert(monolayer::glm5_layer<4>::heads == 16);
#else
static_assert(monolayer::glm5_layer<5>::heads == 12);
#endif
