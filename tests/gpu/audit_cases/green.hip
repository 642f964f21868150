// A producer, consumers with the matrix unit, a slot and its arrival, a poll and a reader; counts in LDS.
// expect: nothing
// audit: --require v_mfma_f32_16x16x32_bf16 --require global_load_lds_dwordx4 --dynamic-lds 66560 --code-bytes 65536
#include <hip/hip_runtime.h>

#include "monolayer/arch/gfx950.hpp"

using namespace monolayer;
using T = gfx950;

struct watch {
  MONOLAYER_DEVICE bool give_up() { return T::lds_flag_load(0) != 0; }
};
extern "C" __global__ void __launch_bounds__(576)
    kernel(const u8* weights, u8* slot, u8* word, u8* out, u32 chunks, u32 epoch) {
  const ring_geometry geometry{64, 1024, 8192, 8, 5};
  if (T::wave() == 0) {
    T::ring::init(geometry);
    if (T::lane() < 2) T::lds_store4(u32(T::lane()) * 4, 0);
  }
  T::block_barrier();
  T::ring ring{geometry};
  T::consumer_group group{4};
  watch w;
  if (T::wave() == T::consumer_waves) {
    for (u32 n = 0; n < chunks; ++n) {
      if (!ring.push(weights + n * 8192, 8192, w)) break;
    }
    ring.drain();
  } else {
    for (u32 n = 0; n < chunks; ++n) {
      if (!ring.wait_full(n, w)) return;
      const u32x4 codes = T::lds_load16(ring.slot(n) + threadIdx.x * 16);
      ring.release(n, 1);
      T::lds_fetch_add(512 + 4 * (codes.v[0] % 64), 1);
      fragment_d d{};
      for (int s = 0; s < 4; ++s) {
        const fragment_b b = T::widen_e2m1x8(codes.v[s], 127);
        T::mma(fragment_a<1>{{{b.v[0], b.v[1], b.v[2], b.v[3]}}}, b, d);
      }
      T::slot_store16(slot + threadIdx.x * 16, __builtin_bit_cast(u32x4, d));
      T::drain_stores();
      group.sync();
      if (threadIdx.x == 0) T::arrive(word, epoch + n);
      if (T::wave() == 1) {
        while (T::poll4(word + 128) != epoch + n) T::pause();
      }
      group.sync();
      T::store16(out + threadIdx.x * 16, T::slot_load16(slot + 8192 + threadIdx.x * 16));
    }
  }
  T::block_barrier();
}
