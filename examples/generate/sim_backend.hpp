// The simulator as a backend of session.hpp. It counts where waves had to wait.
#pragma once

#include <cstdio>
#include <map>

#include "generate/session.hpp"
#include "monolayer/host/launch_sim.hpp"

namespace monolayer::examples {

class sim_backend {
 public:
  static constexpr u64 local_deadline_ns = 200'000'000'000,
                       peer_deadline_ns = 200'000'000'000;  // of virtual time
  static constexpr bool counts_waits = true;
  status why;

  sim_backend(int ranks, const run_options& how) : how_(how), machine_(options_of(ranks, how)) {
    if (how.trace_file.empty()) return;
    trace_ = std::fopen(how.trace_file.c_str(), "w");
    if (trace_ == nullptr)
      why = error(error_code::bad_value, "--trace", how.trace_file, "a file that can be written");
    else
      std::fputs("launch,rank,block,wave,layer,stage,tile,virtual_ns,waits_for\n", trace_);
  }
  sim_backend(const sim_backend&) = delete;
  ~sim_backend() {
    if (trace_ != nullptr) std::fclose(trace_);
  }

  void* allocate(int rank, std::size_t bytes, const char* name, memory_use use) {
    constexpr sim::memory kinds[] = {sim::memory::plain, sim::memory::output, sim::memory::slot,
                                     sim::memory::mailbox, sim::memory::control};
    return machine_.allocate(rank, bytes, name, kinds[int(use)], sim::fill::zero);
  }
  void write(void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); }
  void read(void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); }
  template <class T, class P>
  void prepare(const rank_memory& memory, int rank) {
    annotate<T, P>(machine_, memory, rank);
    info_ = &P::info;
    consumer_waves_ = T::consumer_waves;
  }
  /// Results do not depend on it: two blocks show waits between blocks, and more only take more time.
  result<int> blocks(int, int most) const {
    const int wanted = how_.blocks == 0 ? 2 : how_.blocks;
    if (wanted > most)
      return error(error_code::bad_value, "--blocks", std::to_string(wanted),
                   "at most " + std::to_string(most));
    return wanted;
  }
  template <class T, class P>
  void launch(const launch_params& p, int blocks) {
    why = monolayer::launch<T, P>(machine_, p, blocks);
  }
  /// Runs what was launched: layers of these kinds.
  void finish(std::span<const u64> kinds) {
    kinds_ = kinds;
    newest_.clear();
    ++launch_;
    const sim::report report = machine_.run();
    if (!report.ok) why = error(error_code::device_failure, "simulated launch", report.text, "no fault");
  }
  stage_waits waits(const std::string& stage) const {
    const auto at = waits_.find(stage);
    return at == waits_.end() ? stage_waits{} : at->second;
  }
  std::string text() const {
    return how_.checks ? "the simulator, which checks every access" : "the simulator, without checks";
  }

 private:
  sim::options options_of(int ranks, const run_options& how) {
    sim::options o;
    o.ranks = ranks;
    o.seed = how.seed;
    o.checks = how.checks;
    o.stage_name = [this](u32 layer, u32 stage) { return stage_name(layer, stage); };
    o.on_wait = [this](const sim::wait& w) { note(w); };
    return o;
  }
  const char* stage_name(u32 layer, u32 stage) const {
    return info_->kinds[kinds_[layer]].stages[stage].name;
  }

  /// The producer walks ahead of the stages: its waits for room are of no stage. A block's wait counts once a
  /// tile, however many of its waves wait and however often they were woken in vain.
  void note(const sim::wait& w) {
    if (w.at.wave >= consumer_waves_) return;
    const std::array<u32, 4> here = {w.at.layer, w.at.stage, w.at.tile, u32(w.for_weights)};
    auto& newest = newest_.try_emplace({w.at.rank, w.at.block}, std::array<u32, 4>{~0u}).first->second;
    if (newest == here) return;
    newest = here;
    const char* stage = stage_name(w.at.layer, w.at.stage);
    ++(w.for_weights ? waits_[stage].for_weights : waits_[stage].for_others);
    if (trace_ != nullptr)
      std::fprintf(trace_, "%d,%d,%d,%d,%u,%s,%u,%llu,%s\n", launch_, w.at.rank, w.at.block, w.at.wave,
                   w.at.layer, stage, w.at.tile, static_cast<unsigned long long>(w.clock_ns),
                   w.what().c_str());
  }

  run_options how_;
  std::FILE* trace_ = nullptr;
  const program_info* info_ = nullptr;
  int consumer_waves_ = 0, launch_ = 0;
  std::span<const u64> kinds_;                               // of the running launch
  std::map<std::array<int, 2>, std::array<u32, 4>> newest_;  // of each rank and block: where it waited last
  std::map<std::string, stage_waits> waits_;                 // by stage
  sim::machine machine_;
};

}  // namespace monolayer::examples
