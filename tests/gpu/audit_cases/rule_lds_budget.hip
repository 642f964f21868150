// Static and dynamic LDS together are more than a CU has.
// expect: lds-budget
// audit: --dynamic-lds 163840
#include <hip/hip_runtime.h>

#include "monolayer/arch/gfx950.hpp"

using namespace monolayer;
using T = gfx950;

extern "C" __global__ void __launch_bounds__(64) kernel(u32* data) {
  __shared__ u32 fixed[64];
  fixed[threadIdx.x] = data[threadIdx.x];
  __syncthreads();
  data[threadIdx.x] = fixed[63 - threadIdx.x];
}
