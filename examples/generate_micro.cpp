// The kernels of generate for micro_models (generate/configs.hpp).
#include "generate/targets.hpp"

std::vector<monolayer::examples::compiled_model> monolayer::examples::compiled_micro() {
  return compiled(micro_models{});
}
