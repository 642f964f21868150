// A sum of floats in LDS whose order is the waves'.
// expect: float-atomic
#include <hip/hip_runtime.h>

extern "C" __global__ void __launch_bounds__(256) kernel(float* data) {
  __shared__ float sum;
  if (threadIdx.x == 0) sum = 0.0f;
  __syncthreads();
  __hip_atomic_fetch_add(&sum, data[threadIdx.x], __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP);
  __syncthreads();
  if (threadIdx.x == 0) data[0] = sum;
}
