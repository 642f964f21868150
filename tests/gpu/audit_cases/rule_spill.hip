// 200 live registers in a block of 1024 threads.
// expect: spill, scratch
#include <hip/hip_runtime.h>

#include "monolayer/arch/gfx950.hpp"

using namespace monolayer;
using T = gfx950;

extern "C" __global__ void __launch_bounds__(1024) kernel(u32* data) {
  u32 live[200];
  for (int i = 0; i < 200; ++i) live[i] = data[i * 1024 + threadIdx.x];
  for (int i = 0; i < 200; ++i) asm volatile("" : "+v"(live[i]));
  for (int i = 0; i < 200; ++i) data[i * 1024 + threadIdx.x] = live[199 - i];
}
