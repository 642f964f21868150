// The producer looks at LDS by a C++ access: clang waits for every copy in flight.
// expect: producer-drain
#include <hip/hip_runtime.h>

#include "monolayer/arch/gfx950.hpp"

using namespace monolayer;
using T = gfx950;

extern "C" __global__ void __launch_bounds__(64) kernel(const u8* weights, u32 chunks) {
  for (u32 n = 0; n < chunks; ++n) {
    gfx9::isa::load_to_lds<16, 0>(weights + n * 1024, threadIdx.x, 1024 + n % 8 * 1024);
    const auto flag = gfx9::isa::lds<u32>(n % 8 * 4);
    while (__hip_atomic_load(flag, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP) == 0) T::pause();
  }
}
