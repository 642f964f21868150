// A pointer that was loaded, with no word about its address space.
// expect: flat-access
#include <hip/hip_runtime.h>

#include "monolayer/arch/gfx950.hpp"

using namespace monolayer;
using T = gfx950;

extern "C" __global__ void __launch_bounds__(64) kernel(u32* const* table, u32* out) {
  T::store4(out + threadIdx.x, table[threadIdx.x][0]);
}
