// A GPU as a backend of session.hpp. All ranks share the current device: each has a stream of its own, and
// their launches run side by side, so all blocks of all ranks must fit at once.
#pragma once

#include "generate/session.hpp"
#include "monolayer/host/launch_hip.hpp"

namespace monolayer::examples {

class gpu_backend {
 public:
  static constexpr u64 local_deadline_ns = 200'000'000, peer_deadline_ns = 2'000'000'000;
  static constexpr bool counts_waits = false;
  status why;

  gpu_backend(int ranks, const run_options& how) : how_(how), streams_(std::size_t(ranks)) {
    for (hipStream_t& s : streams_)
      check("hipStreamCreateWithFlags", hipStreamCreateWithFlags(&s, hipStreamNonBlocking));
  }
  gpu_backend(const gpu_backend&) = delete;
  ~gpu_backend() {
    static_cast<void>(hipDeviceSynchronize());
    for (void* at : allocated_) static_cast<void>(hipFree(at));
    for (hipStream_t s : streams_)
      if (s != nullptr) static_cast<void>(hipStreamDestroy(s));
  }

  void* allocate(int, std::size_t bytes, const char* name, memory_use) {
    void* at = nullptr;
    if (!why || !check(name, hipMalloc(&at, bytes))) return nullptr;
    allocated_.push_back(at);
    check(name, hipMemset(at, 0, bytes));
    return at;
  }
  /// Complete on return; nothing may be running.
  void write(void* to, const void* from, std::size_t bytes) {
    if (why) check("hipMemcpy", hipMemcpy(to, from, bytes, hipMemcpyHostToDevice));
  }
  void read(void* to, const void* from, std::size_t bytes) {
    if (why) check("hipMemcpy", hipMemcpy(to, from, bytes, hipMemcpyDeviceToHost));
  }
  template <class T, class P>
  void prepare(const rank_memory&, int) {
    const auto facts = prepare_device<T, P>();
    if (facts)
      facts_ = facts.value();
    else
      why = facts.why();
  }
  result<int> blocks(int ranks, int most) const {
    const int fit = std::min(most, facts_.resident_blocks / ranks);
    if (fit < 1)
      return error(
          error_code::unsupported, "--tp", std::to_string(ranks) + " ranks on one GPU",
          "at most " + std::to_string(facts_.resident_blocks) + ", as many as blocks are resident at once");
    if (how_.blocks > fit)
      return error(error_code::bad_value, "--blocks", std::to_string(how_.blocks),
                   "at most " + std::to_string(fit));
    return how_.blocks == 0 ? fit : how_.blocks;
  }
  template <class T, class P>
  void launch(const launch_params& p, int blocks) {
    why = monolayer::launch<T, P>(p, blocks, streams_[std::size_t(p.rank)]);
  }
  void finish(std::span<const u64>) {
    for (hipStream_t s : streams_) check("hipStreamSynchronize", hipStreamSynchronize(s));
  }
  stage_waits waits(const std::string&) const { return {}; }
  std::string text() const { return "one GPU of " + std::to_string(facts_.compute_units) + " compute units"; }

 private:
  bool check(const char* call, hipError_t e) {
    if (why && e != hipSuccess)
      why = error(error_code::device_failure, call, hipGetErrorString(e), "success");
    return e == hipSuccess;
  }

  run_options how_;
  std::vector<hipStream_t> streams_;  // by rank
  std::vector<void*> allocated_;
  device_facts facts_;
};

}  // namespace monolayer::examples
