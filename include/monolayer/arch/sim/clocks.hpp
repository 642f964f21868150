// Vector clocks, one component pair a wave of the machine.
//   executed: what the wave did up to this epoch happened before (its loads, its LDS accesses, its landed
//   stores) drained:  its stores to memory up to this epoch are visible to whoever knows it
// On CDNA a store is visible only after its own wave drained it, so a barrier or an arrival that carries
// `executed` without `drained` does not order the stores: that is how a forgotten drain_stores() is found
// whatever the seed.
//
// A wave keeps the pairs of its own block in place and shares what it knows of other blocks as an immutable
// vector, so barriers are cheap and only an arrival from another block copies anything.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "monolayer/arch/target.hpp"

namespace monolayer::sim::detail {

inline constexpr u32 max_block_waves = 17;

/// Intrusive reference (objects have a member `references`); single-threaded.
template <class T>
class ref {
 public:
  ref() = default;
  explicit ref(T* object) : object_(object) {
    if (object_) ++object_->references;
  }
  ref(const ref& other) : ref(other.object_) {}
  ref(ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  ref& operator=(ref other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~ref() {
    if (object_ && --object_->references == 0) delete object_;
  }
  T* get() const { return object_; }
  T* operator->() const { return object_; }
  T& operator*() const { return *object_; }
  explicit operator bool() const { return object_ != nullptr; }
  bool operator==(const ref& other) const { return object_ == other.object_; }

 private:
  T* object_ = nullptr;
};

struct clock_pair {
  u32 executed = 0, drained = 0;
};
struct outer_clock {
  u32 references = 0;
  std::vector<clock_pair> pairs;  // by wave id

  clock_pair of(u32 wave) const { return wave < pairs.size() ? pairs[wave] : clock_pair{}; }
  void join(const clock_pair* from, u32 first, u32 count) {
    if (pairs.size() < first + count) pairs.resize(first + count);
    u32* to = &pairs[first].executed;
    const u32* source = &from->executed;
    for (u32 i = 0; i < 2 * count; ++i) to[i] = to[i] < source[i] ? source[i] : to[i];
  }
};

/// What a wave knew when it released.
struct snapshot {
  u32 references = 0;
  u32 wave = 0, epoch = 0;   // who, and its own executed then
  u32 first = 0, count = 0;  // ids of its block's waves
  ref<outer_clock> outer;
  clock_pair local[max_block_waves];
};

struct wave_clock {
  u32 id = 0, self = 0, first = 0, count = 0;
  clock_pair local[max_block_waves];
  ref<outer_clock> outer;
  ref<snapshot> released;  // the current snapshot, while it still describes this wave

  u32 epoch() const { return local[self].executed; }
  /// The epoch to stamp an access with: later than everything that was released.
  u32 access_epoch() {
    if (released) advance();
    return local[self].executed;
  }
  void advance() {
    released = {};
    ++local[self].executed;
  }
  clock_pair of(u32 wave) const {
    const u32 d = wave - first;
    return d < count ? local[d] : outer ? outer->of(wave) : clock_pair{};
  }
  bool same_block(u32 wave) const { return wave - first < count; }
  void drain() {
    if (released) advance();
    local[self].drained = local[self].executed;
    advance();
  }
  const ref<snapshot>& release() {
    if (!released) {
      released = ref<snapshot>(new snapshot);
      snapshot& s = *released;
      s.wave = id, s.epoch = epoch(), s.first = first, s.count = count, s.outer = outer;
      std::copy(local, local + count, s.local);
    }
    return released;
  }
  void join_outer(const ref<outer_clock>& other) {
    if (!other || other == outer) return;
    if (!outer) {
      outer = other;
      return;
    }
    own_outer().join(other->pairs.data(), 0, static_cast<u32>(other->pairs.size()));
  }
  /// True if anything was new.
  bool acquire(const snapshot& s) {
    if (of(s.wave).executed >= s.epoch) return false;
    if (released) advance();
    join_outer(s.outer);
    if (s.first == first) {
      for (u32 i = 0; i < count; ++i) merge(local[i], s.local[i]);
    } else {
      own_outer().join(s.local, s.first, s.count);
    }
    return true;
  }
  static void merge(clock_pair& to, const clock_pair& from) {
    to.executed = std::max(to.executed, from.executed);
    to.drained = std::max(to.drained, from.drained);
  }

 private:
  outer_clock& own_outer() {
    if (!outer) {
      outer = ref<outer_clock>(new outer_clock);
    } else if (outer->references > 1) {
      auto* copy = new outer_clock;
      copy->pairs = outer->pairs;
      outer = ref<outer_clock>(copy);
    }
    return *outer;
  }
};

}  // namespace monolayer::sim::detail
