// A function that is not inlined.
// expect: call
#include <hip/hip_runtime.h>

#include "monolayer/arch/gfx950.hpp"

using namespace monolayer;
using T = gfx950;

__device__ __attribute__((noinline)) void callee(u8* out) { T::store4(out, 1); }
extern "C" __global__ void __launch_bounds__(64) kernel(u8* out) {
  callee(out);
  T::store4(out + 4, 2);
}
