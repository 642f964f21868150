// What test_slices_interpreted.py and test_layers_interpreted.py know of the layers that they run: a module includes this,
// derives from layers_under_test, and defines ml_create.
#pragma once

#include <cstdint>
#include <cstring>
#include <exception>
#include <string>

#include "gpu/interpreted_backend.hpp"
#include "monolayer/arch/gfx950.hpp"

namespace monolayer::test {

struct layers_under_test {
  virtual ~layers_under_test() = default;
  virtual void fresh(u64 epoch) = 0;
  virtual void set_rows(const std::vector<int>& ids) = 0;
  virtual launch_params params(int rank, int first, int count, const run_options& o) = 0;
  virtual std::string difference(int first, int count) = 0;
  virtual std::string accuracy() = 0;
  virtual const interpreted_backend& device() const = 0;
};

inline std::string message;
template <class F>
const char* guarded(F f) {
  try {
    message = f();
  } catch (const std::exception& e) {
    message = std::string("exception: ") + e.what();
  }
  return message.c_str();
}

}  // namespace monolayer::test

using namespace monolayer;
using monolayer::test::layers_under_test;

extern "C" {

/// Layers for `ranks` ranks; null if that went wrong (see ml_message).
layers_under_test* ml_create(int ranks);
void ml_destroy(layers_under_test* l) { delete l; }
const char* ml_message() { return test::message.c_str(); }
int ml_lds_bytes() { return int(gfx950::lds_bytes); }
int ml_threads() { return (gfx950::consumer_waves + 1) * gfx950::wave_size; }
int ml_params_bytes() { return int(sizeof(launch_params)); }

/// New device memory, as before the first launch, but for the epoch.
void ml_fresh(layers_under_test* l, unsigned long long epoch) { l->fresh(epoch); }
void ml_set_rows(layers_under_test* l, const int* ids, int count) { l->set_rows({ids, ids + count}); }
/// Writes address and size of each allocation; returns how many there are.
int ml_ranges(layers_under_test* l, unsigned long long* to, int limit) {
  int n = 0;
  for (const auto& m : l->device().memory) {
    if (n == limit) return -1;
    to[2 * n] = reinterpret_cast<std::uintptr_t>(m.at.get());
    to[2 * n++ + 1] = m.bytes;
  }
  return n;
}
/// Arguments of the kernel for a launch; empty, or what is wrong with them.
const char* ml_params(layers_under_test* l, int rank, int first, int count, int blocks, int groups, unsigned ring_limit,
                      void* to) {
  return test::guarded([&] {
    test::run_options o;
    o.blocks = blocks, o.groups = groups, o.ring_limit = ring_limit;
    o.local_deadline_ns = o.peer_deadline_ns = 3'000'000'000'000;  // the interpreter's clock follows how often it is read
    const launch_params p = l->params(rank, first, count, o);
    std::memcpy(to, &p, sizeof p);
    return std::string();
  });
}
/// Empty if the launch left the simulator's bits.
const char* ml_difference(layers_under_test* l, int first, int count) {
  return test::guarded([&] { return l->difference(first, count); });
}
const char* ml_accuracy(layers_under_test* l) {
  return test::guarded([&] { return l->accuracy(); });
}
}
