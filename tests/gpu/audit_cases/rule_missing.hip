// No matrix instruction.
// expect: missing
// audit: --require v_mfma_f32_16x16x32_bf16
#include <hip/hip_runtime.h>

#include "monolayer/arch/gfx950.hpp"

using namespace monolayer;
using T = gfx950;

extern "C" __global__ void __launch_bounds__(64) kernel(u8* out) { T::store4(out, 1); }
