// The whole block's barrier between tiles.
// expect: barrier-in-loop
#include <hip/hip_runtime.h>

#include "monolayer/arch/gfx950.hpp"

using namespace monolayer;
using T = gfx950;

struct never {
  MONOLAYER_DEVICE bool give_up() { return false; }
};
extern "C" __global__ void __launch_bounds__(576) kernel(const u8* weights, u8* out, u32 chunks) {
  T::ring ring{{0, 1024, 8192, 8, 4}};
  never watch;
  if (T::wave() == T::consumer_waves) {
    for (u32 n = 0; n < chunks; ++n) ring.push(weights + n * 8192, 8192, watch);
    ring.drain();
  } else {
    for (u32 n = 0; n < chunks; ++n) {
      ring.wait_full(n, watch);
      T::store16(out + threadIdx.x * 16, T::lds_load16(ring.slot(n) + threadIdx.x * 16));
      ring.release(n, 1);
      T::block_barrier();
    }
  }
}
