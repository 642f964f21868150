// More code than the instruction cache, or whatever the limit is, has room for.
// expect: code-size
// audit: --code-bytes 32
#include <hip/hip_runtime.h>

extern "C" __global__ void __launch_bounds__(64) kernel(unsigned* data) {
  const unsigned x = data[threadIdx.x];
  data[threadIdx.x] = x * x + (x >> 3) * 77 + (x ^ 0x1234567);
}
