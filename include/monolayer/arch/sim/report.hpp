// What a host program says to the simulator and what it hears back: options, faults, reports.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace monolayer::sim {

/// What an allocation, or an annotated part of one, may be used for.
enum class memory {
  plain,    // written by the host before the launch: load*, ring pushes
  output,   // the caller's outputs and caches: store*; load* and pushes of words that the same launch doesn't
            // write
  slot,     // slot_*, tagged_*, arrive, poll of this rank
  mailbox,  // tagged_* and arrive_system of any rank, poll of its own
  control,  // arrive, arrive_system, poll, fetch_add, compare_exchange
};
enum class fill { poison, zero };

enum class error {
  none,
  race,              // two accesses that nothing orders, at least one a store
  early_read,        // a slot's word that nobody has written
  group_scope,       // group-scope data read outside its group
  unread_overwrite,  // a mailbox word overwritten before its readers saw it
  output_read,       // an output word read in the launch that writes it
  lds,               // LDS: out of bounds, misaligned, never written, unsynchronised
  ring,              // a chunk read before it landed, after it was given back, unevenly credited ...
  bounds,            // an access outside every allocation, or misaligned
  access,            // an operation that this kind of memory does not allow
  divergent,         // lanes of a wave met at different operations
  deadlock,          // nothing can progress
  in_flight,         // a block left with copies in flight
  stack,             // a lane's stack is full
  exception,         // device code threw
  limit,             // options::max_steps
};
const char* name_of(error kind);

/// Where a lane is: what T::trace() said last, and who it is.
struct place {
  int rank = -1, block = -1, wave = -1, lane = -1;
  std::uint32_t layer = 0, stage = 0, tile = 0;
};
struct waiter {
  place at;
  std::string what;  // "polls 'counter qa' + 0 (= 3)", "consumer barrier", ...
};

/// A wave that goes to sleep.
struct wait {
  place at;
  std::uint64_t clock_ns = 0;
  bool for_weights = false;           // in its ring, for a copy or for room
  std::function<std::string()> what;  // in words, as waiter::what
};

struct options {
  int ranks = 1;
  std::uint64_t seed = 1;  // another seed, another legal order
  int groups = 1;  // locality groups of a rank; block b is in group b % groups unless group_of says otherwise
  std::function<int(int block)> group_of = {};
  bool checks = true;             // races, scopes, uninitialised reads (bounds are always checked)
  bool deadlock_is_error = true;  // false: the clock jumps, so that deadlines expire
  std::uint64_t idle_limit_ns =
      200'000'000'000;          // with deadlock_is_error false: give up after so long without progress
  std::uint64_t max_steps = 0;  // 0: no limit
  std::uint64_t step_ns = 20;   // the virtual clock's growth a scheduling step
  std::function<std::string(std::uint32_t layer, std::uint32_t stage)> stage_name = {};  // for reports
  /// Called as a wave goes to sleep because what it polls for is not there yet. A wave can sleep several times in one
  /// wait: whatever changes beside what it polls wakes it.
  std::function<void(const wait&)> on_wait = {};
};

enum class fault_kind {
  stop_rank,   // no wave of the rank runs after `after` scheduling steps
  stop_block,  // the same for one block of a rank
  slow_rank,   // the rank is scheduled rarely
  lose_arrival,
  delay_arrival,
  repeat_arrival,  // the nth arrival (from 0, counted on `rank`, -1: on the machine)
  lose_tagged,
  delay_tagged,
  repeat_tagged,  // the nth tagged store
};
struct fault {
  fault_kind kind;
  int rank = 0;
  int block = 0;
  std::uint64_t after = 0;     // scheduling steps (stop_*)
  std::uint64_t nth = 0;       // which arrival or tagged store
  std::uint64_t delay_ns = 0;  // delay_*, repeat_*: so much later; 0: when nothing else can happen
};

struct statistics {
  std::uint64_t steps = 0, rendezvous = 0, mma = 0, polls = 0, pauses = 0, stores = 0, loads = 0, chunks = 0,
                barriers = 0, idle_rounds = 0, joins = 0, clock_ns = 0;
};

struct report {
  bool ok = true;
  error kind = error::none;
  std::string text;             // several lines: what happened, both places
  place first, second;          // the access that stopped the run, and the earlier one (rank -1: none)
  std::vector<waiter> waiters;  // after a deadlock
  int unfinished = 0;           // launches that a stopped rank or block keeps from ending
  statistics stats;
  explicit operator bool() const { return ok; }
};

inline const char* name_of(error kind) {
  switch (kind) {
    case error::none:
      return "none";
    case error::race:
      return "race";
    case error::early_read:
      return "early read";
    case error::group_scope:
      return "group scope";
    case error::unread_overwrite:
      return "unread word overwritten";
    case error::output_read:
      return "output read in its launch";
    case error::lds:
      return "LDS";
    case error::ring:
      return "ring";
    case error::bounds:
      return "bounds";
    case error::access:
      return "access";
    case error::divergent:
      return "divergent";
    case error::deadlock:
      return "deadlock";
    case error::in_flight:
      return "copies in flight at exit";
    case error::stack:
      return "stack";
    case error::exception:
      return "exception";
    case error::limit:
      return "step limit";
  }
  return "?";
}

}  // namespace monolayer::sim
