// The kernels of generate for GLM-5's own size (generate/configs.hpp): in programs for a GPU alone.
#include "generate/targets.hpp"

std::vector<monolayer::examples::compiled_model> monolayer::examples::compiled_glm5() {
#if MONOLAYER_GENERATE_ON_GPU
  return compiled(glm5_models{});
#else
  return {};
#endif
}
