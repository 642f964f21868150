// Allocations: one reserved range of addresses, each allocation on its own pages with unused ones behind it,
// so any address finds its region in one look-up and a stray access finds none.
#pragma once

#include <cstring>
#include <new>
#include <stdexcept>

#include "monolayer/arch/sim/engine.hpp"

namespace monolayer::sim::detail {

inline engine::engine(options o) : opt(std::move(o)), rng(opt.seed) {
  if (opt.ranks < 1 || opt.groups < 1) throw std::invalid_argument("sim: ranks and groups are at least 1");
  for (arena_bytes = std::size_t{64} << 30; arena_bytes >= (std::size_t{1} << 30); arena_bytes /= 2)
    if ((arena = static_cast<u8*>(reserve_pages(arena_bytes)))) break;
  if (!arena) throw std::bad_alloc();
  pages = static_cast<region**>(reserve_pages((arena_bytes >> page_shift) * sizeof(region*)));
  if (!pages) throw std::bad_alloc();
  ranks.resize(static_cast<std::size_t>(opt.ranks));
  arrivals_seen.resize(ranks.size() + 1);
  tagged_seen.resize(ranks.size() + 1);
  syncs.resize(1);
}

inline engine::~engine() {
  for (auto& r : regions)
    if (r->cells) munmap(r->cells, (r->bytes / 4 + 4) * sizeof(cell));
  for (auto& r : ranks)
    for (auto& b : r.blocks)
      if (b->lds) munmap(b->lds, b->bytes), munmap(b->cells, b->bytes / 4 * sizeof(cell));
  munmap(pages, (arena_bytes >> page_shift) * sizeof(region*));
  munmap(arena, arena_bytes);
}

inline void* engine::allocate(int rank, std::size_t bytes, std::string name, memory kind, fill how) {
  if (rank < 0 || rank >= opt.ranks) throw std::invalid_argument("sim: no such rank");
  if (bytes == 0) throw std::invalid_argument("sim: allocation of no bytes");
  const std::size_t page = std::size_t{1} << page_shift, whole = (bytes + page - 1) & ~(page - 1);
  if (arena_used + whole + 2 * page > arena_bytes) throw std::bad_alloc();
  auto r = std::make_unique<region>();
  arena_used += page;  // never mapped: what runs past the previous allocation ends here
  r->base = arena + arena_used;
  r->bytes = bytes, r->rank = rank, r->filled = how;
  r->parts.push_back({r->base, bytes, std::move(name), kind, false});
  for (std::size_t p = 0; p < whole >> page_shift; ++p) pages[(arena_used >> page_shift) + p] = r.get();
  arena_used += whole;
  if (how == fill::poison) std::memset(r->base, 0xA5, bytes);
  regions.push_back(std::move(r));
  return regions.back()->base;
}

inline void engine::annotate(void* at, std::size_t bytes, std::string name, memory kind, bool group_scope) {
  region* r = region_of(at);
  u8* first = static_cast<u8*>(at);
  if (!r || first + bytes > r->base + r->bytes)
    throw std::invalid_argument("sim: annotate: not inside an allocation");
  if ((first - r->base) % 16)
    throw std::invalid_argument("sim: annotate: parts start at multiples of 16 bytes");
  if (r->parts.size() >= 0xffff) throw std::length_error("sim: too many annotations");
  if (r->part_of.empty()) r->part_of.resize((r->bytes + 15) / 16);
  const auto begin = r->part_of.begin() + (first - r->base) / 16;
  std::fill(begin, begin + static_cast<std::ptrdiff_t>((bytes + 15) / 16), static_cast<u16>(r->parts.size()));
  r->parts.push_back({first, bytes, std::move(name), kind, group_scope});
}

inline void engine::expect_readers(void* at, std::size_t bytes, int readers) {
  region* r = region_of(at);
  u8* first = static_cast<u8*>(at);
  if (!r || first + bytes > r->base + r->bytes || (first - r->base) % 8 || bytes % 8 || readers < 0 ||
      readers > 255)
    throw std::invalid_argument(
        "sim: expect_readers: 8-byte words inside an allocation, at most 255 readers");
  if (r->expected.empty()) r->expected.resize((r->bytes + 7) / 8);
  const auto begin = r->expected.begin() + (first - r->base) / 8;
  std::fill(begin, begin + static_cast<std::ptrdiff_t>(bytes / 8), static_cast<u8>(readers));
  if (r->cells)  // what was unread is forgotten
    for (std::size_t i = 0; i < bytes; i += 8) {
      cell& c = r->cell_at(first + i);
      if (polled_kind(c.write[0].kind)) c.polled.readers = 255, c.polled.on_the_way = 0;
    }
}

inline region& engine::bounds(const void* at, u32 bytes, const char* what) {
  region* r = region_of(at);
  const wave& w = *current.of;
  if (!r || static_cast<const u8*>(at) + bytes > r->base + r->bytes) {
    const region* before = r;  // name the allocation that ends before the address
    for (const auto& other : regions)
      if (!r && other->base <= at && (!before || other->base > before->base)) before = other.get();
    char hex[32];
    std::snprintf(hex, sizeof hex, "%p", at);
    fail(error::bounds,
         std::string(what) + " of " + std::to_string(bytes) + " bytes at " + hex +
             " is outside every allocation" +
             (before ? "; " + std::to_string(static_cast<const u8*>(at) - before->base) +
                           " bytes after the start of '" + before->parts[0].name + "' (" +
                           std::to_string(before->bytes) + " bytes)"
                     : std::string()),
         here(w, current.lane));
  }
  if (reinterpret_cast<u64>(at) & (bytes - 1))
    fail(error::bounds,
         std::string(what) + " of " + std::to_string(bytes) + " bytes is misaligned at " + words(*r, at),
         here(w, current.lane));
  return *r;
}

}  // namespace monolayer::sim::detail
