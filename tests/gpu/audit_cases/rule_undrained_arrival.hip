// The wave that stores does not wait for its stores before the barrier.
// expect: undrained-arrival
#include <hip/hip_runtime.h>

#include "monolayer/arch/gfx950.hpp"

using namespace monolayer;
using T = gfx950;

extern "C" __global__ void __launch_bounds__(512) kernel(u8* slot, u8* word, u32 epoch) {
  T::consumer_group group{0};
  T::slot_store16(slot + threadIdx.x * 16, u32x4{{epoch, 1, 2, 3}});
  group.sync();
  if (threadIdx.x == 0) T::arrive(word, epoch);
}
