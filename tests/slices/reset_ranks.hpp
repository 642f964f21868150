// The collective reset of all ranks of a session, as an engine's processes would call it.
#pragma once

#include <algorithm>
#include <barrier>
#include <cstring>
#include <span>
#include <thread>
#include <vector>

#include "monolayer/host/reset.hpp"

namespace monolayer::test {

/// Every rank in a thread of its own calls reset(); what rank `other` says of itself may differ. The threads meet in
/// the gather. `of`: what a session holds of each rank.
template <class T, class P, class Rank, std::size_t Ranks>
std::vector<status> reset_ranks(Rank (&of)[Ranks], int other = -1) {
  std::vector<u64> gathered(2 * Ranks);
  std::barrier meet(std::ptrdiff_t{Ranks});
  std::vector<status> results(Ranks);
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < Ranks; ++r)
    threads.emplace_back([&, r] {
      const memory_access plain{[](void* to, const void* from, std::size_t n) { std::memcpy(to, from, n); },
                                [](void* to, const void* from, std::size_t n) { std::memcpy(to, from, n); },
                                [](void* at, std::size_t n) { std::memset(at, 0, n); }};
      const all_gather gather = [&](std::span<const u64> mine, std::span<u64> all) {
        meet.arrive_and_wait();
        std::copy(mine.begin(), mine.end(), gathered.begin() + std::ptrdiff_t(2 * r));
        if (int(r) == other) gathered[2 * r + 1] ^= 1;
        meet.arrive_and_wait();
        std::copy(gathered.begin(), gathered.end(), all.begin());
        meet.arrive_and_wait();
      };
      results[r] = reset<T, P>(of[r].memory.state[r], of[r].memory.arrivals, plain, gather);
    });
  for (auto& t : threads) t.join();
  return results;
}

}  // namespace monolayer::test
