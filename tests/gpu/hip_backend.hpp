// A GPU as a backend of session.hpp. All ranks share the one device: each has a stream of its own, and their launches
// run side by side when all blocks of all ranks fit at once.
#pragma once

#include "monolayer/host/launch_hip.hpp"
#include "slices/session.hpp"

namespace monolayer::test {

inline void must(hipError_t e, const char* call) {
  if (e != hipSuccess) throw std::runtime_error(std::string(call) + ": " + hipGetErrorString(e));
}
#define MUST_HIP(call) ::monolayer::test::must((call), #call)

struct hip_backend {
  std::vector<hipStream_t> streams;  // by rank
  std::vector<void*> allocated;
  int resident_blocks = 0;  // of the newest prepared program

  explicit hip_backend(int ranks) : streams(std::size_t(ranks)) {
    for (hipStream_t& s : streams) MUST_HIP(hipStreamCreateWithFlags(&s, hipStreamNonBlocking));
  }
  hip_backend(const hip_backend&) = delete;
  ~hip_backend() {
    static_cast<void>(hipDeviceSynchronize());
    for (void* at : allocated) static_cast<void>(hipFree(at));
    for (hipStream_t s : streams) static_cast<void>(hipStreamDestroy(s));
  }

  void* allocate(int, std::size_t bytes, const char*, memory_use) {
    void* at = nullptr;
    MUST_HIP(hipMalloc(&at, bytes));
    allocated.push_back(at);
    MUST_HIP(hipMemset(at, 0, bytes));
    return at;
  }
  /// Complete on return; nothing may be running.
  void write(void* to, const void* from, std::size_t bytes) {
    MUST_HIP(hipMemcpy(to, from, bytes, hipMemcpyHostToDevice));
  }
  void read(void* to, const void* from, std::size_t bytes) const {
    MUST_HIP(hipMemcpy(to, from, bytes, hipMemcpyDeviceToHost));
  }
  template <class T, class P>
  void prepared(const rank_memory&, int) {
    resident_blocks = must(prepare_device<T, P>()).resident_blocks;
  }
  template <class T, class P>
  void launch(const launch_params& p, int blocks) {
    must(monolayer::launch<T, P>(p, blocks, streams[std::size_t(p.rank)]));
  }
  /// Waits for all ranks.
  void finish() {
    for (hipStream_t s : streams) MUST_HIP(hipStreamSynchronize(s));
    MUST_HIP(hipGetLastError());
  }
};

}  // namespace monolayer::test
