// README.md shows this from its first include on; tests/host/test_docs.cpp compares, tests/gpu compiles it.
#include <monolayer/host/glm5.hpp>
#include <monolayer/host/launch_hip.hpp>

using namespace monolayer;

struct my_layer : glm5_layer<8> {  // one of eight ranks; every choice has a default
  using kv_cache = fp8_rows;
  using index_cache = fp8_keys<shuffled_16x16>;
};
using P = glm5<my_layer>;
using T = gfx950;  // or gfx942, sm90
using sizes = plan<T, P>;  // bytes and limits, all constants; the program's proofs run here

/// Device memory of one rank, zeroed once. The other ranks' `mailbox` and `state` follow by peer access or IPC.
rank_memory reserve(int rank, void* (*device_zeros)(u64 bytes)) {
  rank_memory m{.slots_bytes = sizes::slots_bytes, .arrivals_bytes = sizes::arrivals_bytes,
                .mailbox_bytes = sizes::mailbox_bytes, .state_bytes = sizes::state_bytes};
  m.slots = device_zeros(m.slots_bytes), m.arrivals = device_zeros(m.arrivals_bytes);
  m.mailbox[rank] = device_zeros(m.mailbox_bytes), m.state[rank] = device_zeros(m.state_bytes);
  return m;
}
/// Packs one layer's tensors for a rank, copies them to the device and checks that they fit the kernel.
result<layer_entry> load(u64 kind, const glm5_tensors& tensors, int rank, void* kv_cache, void* index_cache,
                         const void* (*to_device)(const std::vector<u8>&)) {
  const auto packed = glm5_host<T, my_layer>::pack_layer(kind, tensors, rank);
  if (!packed) return packed.why();  // names the tensor, what was seen and what is wanted
  bound_glm5<my_layer> bound{.data = {}, .kv_cache = kv_cache, .index_cache = index_cache};
  for (int id = 0; id < P::data_count; ++id)
    if (const packed_matrix& m = packed.value()[id]; !m.bytes.empty()) bound.data[id] = {m.header, to_device(m.bytes)};
  return bind_glm5<T, my_layer>(kind, bound, rank);
}
/// Captures a launch over the span's layers, once a width of the batch; a step writes rows and positions and replays it.
result<hipGraph_t> capture(const rank_memory& memory, const span_arguments& span, hipStream_t stream) {
  const auto params = bind<T, P>(memory, span);  // every argument is checked here
  if (!params) return params.why();
  if (const auto device = prepare_device<T, P>(); !device) return device.why();
  hipGraph_t graph = nullptr;
  if (hipStreamBeginCapture(stream, hipStreamCaptureModeThreadLocal) != hipSuccess)
    return error(error_code::device_failure, "stream", "one that captures already, or is in error", "an idle stream");
  const status launched = launch<T, P>(params.value(), span.blocks, stream);  // asynchronous, allocates nothing
  if (hipStreamEndCapture(stream, &graph) != hipSuccess || !launched)
    return launched ? error(error_code::device_failure, "capture", "an error", "success") : launched;
  return graph;
}
