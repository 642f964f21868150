// The kernels of generate for micro_fp8_models (generate/configs.hpp).
#include "generate/targets.hpp"

std::vector<monolayer::examples::compiled_model> monolayer::examples::compiled_micro_fp8() {
  return compiled(micro_fp8_models{});
}
