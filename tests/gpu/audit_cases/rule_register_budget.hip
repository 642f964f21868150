// 150 registers a lane, launched with 1024 threads.
// expect: register-budget
// audit: --threads 1024
#include <hip/hip_runtime.h>

#include "monolayer/arch/gfx950.hpp"

using namespace monolayer;
using T = gfx950;

extern "C" __global__ void __launch_bounds__(64) kernel(u32* data) {
  u32 live[150];
  for (int i = 0; i < 150; ++i) live[i] = data[i * 64 + threadIdx.x];
  for (int i = 0; i < 150; ++i) asm volatile("" : "+v"(live[i]));
  for (int i = 0; i < 150; ++i) data[i * 64 + threadIdx.x] = live[149 - i];
}
