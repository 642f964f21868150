// The function decorations work in every GPU compiler. (nvcc needs no header; HIP has its own.)
#ifndef __CUDACC__
#include <hip/hip_runtime.h>
#endif
#include <monolayer/core/macros.hpp>

static_assert(MONOLAYER_GPU_COMPILER);

MONOLAYER_HOST_DEVICE constexpr int twice(int x) { return 2 * x; }
MONOLAYER_DEVICE float scaled(float x) { return x * static_cast<float>(twice(3)); }

MONOLAYER_GLOBAL void scale(float* data, int count) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) data[i] = scaled(data[i]);
}
