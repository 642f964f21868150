// One path from the store to the arrival, around a loop, does not wait.
// expect: undrained-arrival
#include <hip/hip_runtime.h>

#include "monolayer/arch/gfx950.hpp"

using namespace monolayer;
using T = gfx950;

extern "C" __global__ void __launch_bounds__(512) kernel(u8* slot, u8* word, u32 epoch, u32 tiles) {
  T::consumer_group group{0};
  for (u32 tile = 0; tile < tiles; ++tile) {
    T::slot_store2(slot + tile * 1024 + threadIdx.x * 2, u16(epoch));
    if (tile % 2 == 0) T::drain_stores();
    group.sync();
    if (threadIdx.x == 0) T::arrive(word + tile * 128, epoch);
  }
}
