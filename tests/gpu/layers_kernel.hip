// The kernel of whole layers of one target and config, TARGET and CONFIG: what the compile checks and the audit look at.
#include "monolayer/config/glm5.hpp"
#include "monolayer/host/launch_hip.hpp"
#include "monolayer/layers/glm5.hpp"

using namespace monolayer;

template __global__ void monolayer::persistent_kernel<TARGET, glm5<CONFIG>>(const launch_params);
