// A private array with a run-time index.
// expect: scratch
#include <hip/hip_runtime.h>

#include "monolayer/arch/gfx950.hpp"

using namespace monolayer;
using T = gfx950;

extern "C" __global__ void __launch_bounds__(64) kernel(u32* data) {
  u32 local[512];
  for (int i = 0; i < 512; ++i) local[data[i] % 512] = data[threadIdx.x + i];
  data[threadIdx.x] = local[data[threadIdx.x] % 512];
}
