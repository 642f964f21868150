// The kernels of generate for tiny_models (generate/configs.hpp).
#include "generate/targets.hpp"

std::vector<monolayer::examples::compiled_model> monolayer::examples::compiled_tiny() {
  return compiled(tiny_models{});
}
