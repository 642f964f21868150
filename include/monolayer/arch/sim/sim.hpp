// The simulator: a machine that runs device code on this CPU and checks every access. Link Boost.Context.
#pragma once

#include "monolayer/arch/sim/machine.hpp"
#include "monolayer/arch/sim/targets.hpp"
