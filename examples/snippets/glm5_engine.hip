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
/// Once for a span and a width of the batch; a step only writes rows and positions.
result<launch_params> prepare(const rank_memory& memory, const span_arguments& span) {
  if (const auto device = prepare_device<T, P>(); !device) return device.why();
  return bind<T, P>(memory, span);  // every argument is checked here
}
/// One step of decoding over the span's layers: asynchronous, allocates nothing, may be captured in a graph.
status step(const launch_params& params, int blocks, hipStream_t stream) { return launch<T, P>(params, blocks, stream); }
