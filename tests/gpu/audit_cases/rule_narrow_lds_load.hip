// 4 bytes a lane where 16 are to be had.
// expect: narrow-lds-load
#include <hip/hip_runtime.h>

#include "monolayer/arch/gfx950.hpp"

using namespace monolayer;
using T = gfx950;

extern "C" __global__ void __launch_bounds__(64) kernel(u8* weights, u32 chunks) {
  for (u32 n = 0; n < chunks; ++n) {
    __builtin_amdgcn_global_load_lds((gfx9::isa::global_pointer<u8>)(weights + n * 256 + threadIdx.x * 4),
                                     gfx9::isa::lds<u8>(n % 8 * 256), 4, 0, 0);
  }
}
