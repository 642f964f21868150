// Four ranks in one launch, for the interpreter, which runs one launch at a time: block b is block b / 4 of rank b % 4.
#include "monolayer/config/configs.hpp"
#include "monolayer/host/launch_hip.hpp"
#include "monolayer/layers/slices.hpp"

namespace monolayer::test {

struct rank_of_four : gfx950 {
  MONOLAYER_DEVICE static int block() { return gfx950::block() / 4; }
  MONOLAYER_DEVICE static int blocks() { return gfx950::blocks() / 4; }
};
struct four_params {
  launch_params of[4];
};

__global__ void __launch_bounds__((gfx950::consumer_waves + 1) * 64, 1) four_ranks(
    [[maybe_unused]] const four_params all) {
#if defined(__HIP_DEVICE_COMPILE__)
  const auto* arguments = (const four_params*)__builtin_amdgcn_kernarg_segment_ptr();
  run_block<rank_of_four, slices<small_slices<4>>>(arguments->of[gfx950::block() % 4]);
#endif
}

}  // namespace monolayer::test
