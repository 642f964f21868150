// The kernel of one target and config, TARGET and CONFIG: what the compile checks and the audit look at.
#include "monolayer/config/configs.hpp"
#include "monolayer/host/launch_hip.hpp"
#include "monolayer/layers/slices.hpp"

using namespace monolayer;

template __global__ void monolayer::persistent_kernel<TARGET, slices<CONFIG>>(const launch_params);
