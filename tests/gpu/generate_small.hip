// All of examples/generate for one small config in one source: a compile check, and a program for a machine with the GPU.
#include "generate.cpp"

namespace monolayer::examples {

std::vector<compiled_model> compiled_micro() { return compiled(model_list<with_mxfp4_layer<micro_layer<4>>>{}); }
std::vector<compiled_model> compiled_micro_fp8() { return {}; }
std::vector<compiled_model> compiled_tiny() { return {}; }
std::vector<compiled_model> compiled_glm5() { return {}; }

}  // namespace monolayer::examples
