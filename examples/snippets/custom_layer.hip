// The program of examples/custom_layer/ on a GPU: docs/custom_layer.md shows it, tests/gpu compiles it.
#include "custom_layer/host.hpp"
#include "monolayer/host/launch_hip.hpp"

using namespace monolayer;

using T = gfx950;  // or gfx942, sm90
using C = custom_layer::small_config;
using P = custom_layer::program<C>;
using sizes = plan<T, P>;

/// A rank of the program on the current device. Ranks exchange `mailbox` and `state` (peer access, IPC) before step().
struct custom_rank {
  int rank, blocks = 0;
  rank_memory memory{.slots_bytes = sizes::slots_bytes, .arrivals_bytes = sizes::arrivals_bytes,
                     .mailbox_bytes = sizes::mailbox_bytes, .state_bytes = sizes::state_bytes};

  status start() {
    const auto device = prepare_device<T, P>();
    if (!device) return device.why();
    blocks = std::min(device.value().compute_units, sizes::max_blocks);
    for (const status& why : can_run<T, P>(device.value(), blocks)) return why;
    void** const to[] = {&memory.slots, &memory.arrivals, &memory.mailbox[rank], &memory.state[rank]};
    const u64 bytes[] = {memory.slots_bytes, memory.arrivals_bytes, memory.mailbox_bytes, memory.state_bytes};
    for (int i = 0; i < 4; ++i)
      if (hipMalloc(to[i], bytes[i]) != hipSuccess || hipMemset(*to[i], 0, bytes[i]) != hipSuccess)
        return error(error_code::device_failure, "memory", "none", std::to_string(bytes[i]) + " bytes");
    return {};
  }
  /// All layers for one token of each row: asynchronous on `stream`, and capturable. `a` has the layers (made by
  /// packer::bind_layer), the rows and the positions.
  status step(span_arguments a, hipStream_t stream) const {
    a.rank = rank;
    a.blocks = blocks;
    const auto params = bind<T, P>(memory, a);
    return params ? launch<T, P>(params.value(), blocks, stream) : params.why();
  }
};

template __global__ void monolayer::persistent_kernel<T, P>(const launch_params);
