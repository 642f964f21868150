// What `generate` runs on: a GPU where the compiler is nvcc or HIP's, else the simulator's machines.
#pragma once

#if defined(__CUDACC__) || defined(__HIP__)
#define MONOLAYER_GENERATE_ON_GPU 1
#include "generate/gpu_backend.hpp"
#else
#define MONOLAYER_GENERATE_ON_GPU 0
#include "generate/sim_backend.hpp"
#endif
#include "generate/configs.hpp"

namespace monolayer::examples {

/// A list's lines on each target of this program.
template <class List>
std::vector<compiled_model> compiled(List list) {
  std::vector<compiled_model> all;
#if defined(__CUDACC__)
  add_models<gpu_backend, sm90>(all, list, "sm90");
#elif defined(__HIP__) && defined(MONOLAYER_GENERATE_GFX942)
  add_models<gpu_backend, gfx942>(all, list, "gfx942");
#elif defined(__HIP__)
  add_models<gpu_backend, gfx950>(all, list, "gfx950");
#else
  add_models<sim_backend, sim::gfx950>(all, list, "gfx950");
  add_models<sim_backend, sim::sm90>(all, list, "sm90");
#endif
  return all;
}

// Each in a source file of its own: generate_micro.cpp and so on.
std::vector<compiled_model> compiled_micro();
std::vector<compiled_model> compiled_micro_fp8();
std::vector<compiled_model> compiled_tiny();
std::vector<compiled_model> compiled_glm5();

}  // namespace monolayer::examples
