// The simulator's lines for `slices_device --hashes`; without --hashes, the device test's own logic on the simulator.
//   g++ -O2 -std=c++20 -ffp-contract=off -I include -I tests tests/slices/print_hashes.cpp -lboost_context -o print_hashes
//   ./print_hashes --hashes
#define SLICES_ON_SIMULATOR
#include "gpu/slices_device.cpp"
