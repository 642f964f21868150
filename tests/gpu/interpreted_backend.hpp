// Memory of a device that works on the host's addresses, for code that an interpreter in this process executes: a backend
// of session.hpp whose launches only leave their arguments behind.
#pragma once

#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "slices/session.hpp"

namespace monolayer::test {

struct interpreted_backend {
  struct block_of_memory {
    std::unique_ptr<void, decltype(&std::free)> at;
    std::size_t bytes;
  };
  std::vector<block_of_memory> memory;
  std::vector<launch_params> launched;

  void* allocate(int, std::size_t bytes, const char*, memory_use) {
    // No two allocations adjoin, so that reading past the end of one is seen.
    void* at = std::aligned_alloc(256, (bytes + 511) / 256 * 256);
    if (at == nullptr) throw std::bad_alloc();
    std::memset(at, 0, bytes);
    memory.push_back({{at, &std::free}, bytes});
    return at;
  }
  void write(void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); }
  void read(void* to, const void* from, std::size_t bytes) const { std::memcpy(to, from, bytes); }
  template <class T, class P>
  void prepared(const rank_memory&, int) {}
  template <class T, class P>
  void launch(const launch_params& p, int) {
    launched.push_back(p);
  }
};

}  // namespace monolayer::test
