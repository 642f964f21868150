// Lanes as fibers: Boost.Context's bare switch, with own pooled stacks. Stacks are reserved in slabs without
// guard pages and touched lazily; their stride is no power of two, so equal depths of many stacks fall into
// different cache sets. An overflow is noticed when a lane suspends near the end of its stack.
#pragma once

#include <sys/mman.h>

#include <boost/context/detail/fcontext.hpp>
#include <cstddef>
#include <cstdint>
#include <new>
#include <vector>

namespace monolayer::sim::detail {

using boost::context::detail::fcontext_t;
using boost::context::detail::jump_fcontext;
using boost::context::detail::make_fcontext;
using boost::context::detail::transfer_t;

/// Suspends the running context into `self` and resumes `to`; returns when somebody resumes `self`.
inline void switch_context(fcontext_t& self, fcontext_t to) {
  const transfer_t from = jump_fcontext(to, &self);
  *static_cast<fcontext_t*>(from.data) = from.fctx;
}

/// Zeroed pages that cost nothing until they are touched; null if there is no room.
inline void* reserve_pages(std::size_t bytes) {
  void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return at == MAP_FAILED ? nullptr : at;
}

class stack_pool {
 public:
  static constexpr std::size_t stack_bytes = 64 * 1024 + 320;
  static constexpr std::size_t slab_stacks = 256;

  static stack_pool& of_this_thread() {
    static thread_local stack_pool pool;
    return pool;
  }
  stack_pool() = default;
  stack_pool(const stack_pool&) = delete;
  stack_pool& operator=(const stack_pool&) = delete;
  ~stack_pool() {
    for (char* slab : slabs_) munmap(slab, slab_stacks * stack_bytes);
  }

  /// The lowest address of a stack of stack_bytes.
  char* take() {
    if (free_.empty()) grow();
    char* stack = free_.back();
    free_.pop_back();
    return stack;
  }
  void give(char* stack) { free_.push_back(stack); }

 private:
  void grow() {
    void* slab = reserve_pages(slab_stacks * stack_bytes);
    if (!slab) throw std::bad_alloc();
    slabs_.push_back(static_cast<char*>(slab));
    for (std::size_t i = slab_stacks; i-- > 0;) free_.push_back(slabs_.back() + i * stack_bytes);
  }

  std::vector<char*> slabs_;
  std::vector<char*> free_;
};

}  // namespace monolayer::sim::detail
