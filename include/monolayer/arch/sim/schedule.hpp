// Who runs next: a seeded choice among the waves that can run, whose character (bursts, frequent switches,
// priorities, eager or late landing of stores and copies) is redrawn now and then. Waves that poll in vain
// are parked until something that they polled changes.
#pragma once

#include <bit>
#include <cstring>
#include <stdexcept>

#include "monolayer/arch/sim/engine.hpp"

namespace monolayer::sim::detail {

inline void engine::enqueue(int rank, int blocks, u32 lds_bytes, std::function<void()> main,
                            const traits& target) {
  auto l = std::make_unique<launch>();
  l->rank = rank, l->blocks = blocks, l->lds_bytes = lds_bytes, l->target = target, l->main = std::move(main);
  ranks.at(static_cast<std::size_t>(rank)).queue.push_back(std::move(l));
}

inline void engine::start_launch(rank_state& rank, int index) {
  rank.running = std::move(rank.queue.front());
  rank.queue.pop_front();
  launch& l = *rank.running;
  l.id = ++launches;
  l.first_epoch = ++rank.last_epoch;
  const int wave_count = l.target.consumer_waves + 1;
  l.live_waves = l.blocks * wave_count;
  for (int b = 0; b < l.blocks; ++b) {
    if (rank.blocks.size() <= static_cast<std::size_t>(b))
      rank.blocks.push_back(std::make_unique<block_memory>());
    block_memory& m = *rank.blocks[static_cast<std::size_t>(b)];
    if (m.ids < static_cast<u32>(wave_count)) {
      m.first_id = static_cast<u32>(identities.size()), m.ids = static_cast<u32>(wave_count);
      if (identities.size() + m.ids > 0xffff) throw std::length_error("sim: too many waves");
      for (int v = 0; v < wave_count; ++v) identities.push_back({index, b, v, {}});
    }
    if (m.bytes < l.lds_bytes) {
      if (m.lds) munmap(m.lds, m.bytes), munmap(m.cells, m.bytes / 4 * sizeof(cell));
      m.bytes = (l.lds_bytes + 4095u) & ~std::size_t{4095};
      m.lds = static_cast<u8*>(reserve_pages(m.bytes));
      m.cells = static_cast<cell*>(reserve_pages(m.bytes / 4 * sizeof(cell)));
      if (!m.lds || !m.cells) throw std::bad_alloc();
    }
    auto blk = std::make_unique<block_state>();
    blk->of = &l, blk->index = b, blk->memory = &m, blk->lds = m.lds, blk->lds_bytes = l.lds_bytes;
    blk->group = opt.group_of ? opt.group_of(b) : b % opt.groups;
    blk->live_waves = wave_count;
    if (l.lds_bytes) std::memset(m.lds, 0xA5, l.lds_bytes);
    for (int v = 0; v < wave_count; ++v) {
      std::unique_ptr<wave> w(new wave);
      w->block = blk.get(), w->index = v, w->size = static_cast<u32>(l.target.wave_size);
      w->live = w->runnable = l.target.wave_size == 64 ? ~0ull : (1ull << l.target.wave_size) - 1;
      wave_clock& c = w->clock;
      c.first = m.first_id, c.count = static_cast<u32>(wave_count), c.self = static_cast<u32>(v),
      c.id = c.first + c.self;
      c.outer = rank.base;
      for (u32 i = 0; i < c.count; ++i) c.local[i] = {l.first_epoch - 1, l.first_epoch - 1};
      c.local[v].executed = l.first_epoch;
      auto& marks = identities[c.id].marks;
      if (marks.size() > 4096) marks.erase(marks.begin(), marks.end() - 1024);
      marks.push_back({l.first_epoch, 0, 0, 0});
      w->priority = static_cast<u32>(rng.next());
      redraw(*w);
      make_ready(*w);
      blk->waves.push_back(std::move(w));
    }
    l.at.push_back(std::move(blk));
  }
}

inline void engine::start_wave(wave& w) {
  w.started = true;
  stack_pool& pool = stack_pool::of_this_thread();
  for (u32 i = 0; i < w.size; ++i) {
    w.stacks[i] = pool.take();
    w.contexts[i] =
        make_fcontext(w.stacks[i] + stack_pool::stack_bytes, stack_pool::stack_bytes, &engine::lane_entry);
  }
}

inline void engine::drop_waves(launch& l) {
  for (auto& b : l.at)
    for (auto& w : b->waves) {
      if (w->started && w->state != wave_state::done)
        for (u32 i = 0; i < w->size; ++i) stack_pool::of_this_thread().give(w->stacks[i]);
      w->started = false;
    }
}

inline void engine::wave_done(wave& w) {
  for (u32 i = 0; i < w.size; ++i) stack_pool::of_this_thread().give(w.stacks[i]);
  unwatch(w);
  block_state& b = *w.block;
  launch& l = *b.of;
  ++progress;
  --b.live_waves;
  if (b.live_waves == 0)
    for (auto& r : b.rings)
      if (!r->flying.empty() || !r->held.empty())
        fail(error::in_flight,
             "rank " + std::to_string(l.rank) + " block " + std::to_string(b.index) + " left with " +
                 std::to_string(r->flying.size() + r->held.size()) +
                 " ring copies in flight (drain() is missing)",
             here(w, 0));
  if (--l.live_waves == 0) finish_launch(ranks[static_cast<std::size_t>(l.rank)]);
}

/// A kernel boundary: everything has landed, and whatever starts later on this rank comes after all of it.
inline void engine::finish_launch(rank_state& rank) {
  launch& l = *rank.running;
  auto* merged = new outer_clock;
  if (rank.base) merged->pairs = rank.base->pairs;
  std::vector<outer_clock*> seen;
  for (auto& b : l.at)
    for (auto& w : b->waves) {
      land_all(*w);
      wave_clock& c = w->clock;
      c.advance();
      rank.last_epoch = std::max(rank.last_epoch, c.epoch());
      if (c.outer && std::find(seen.begin(), seen.end(), c.outer.get()) == seen.end()) {
        seen.push_back(c.outer.get());
        merged->join(c.outer->pairs.data(), 0, static_cast<u32>(c.outer->pairs.size()));
      }
      const clock_pair all{c.epoch(), c.epoch()};
      merged->join(&all, c.id, 1);
    }
  rank.base = ref<outer_clock>(merged);
  rank.running.reset();
  if (!rank.queue.empty() && !rank.stopped) start_launch(rank, static_cast<int>(&rank - ranks.data()));
}

inline void engine::make_ready(wave& w) {
  w.state = wave_state::ready;
  if (w.ready_index >= 0) return;
  w.ready_index = static_cast<int>(ready.size());
  ready.push_back(&w);
}
inline void engine::remove_ready(wave& w) {
  if (w.ready_index < 0) return;
  ready.back()->ready_index = w.ready_index;
  ready[static_cast<std::size_t>(w.ready_index)] = ready.back();
  ready.pop_back();
  w.ready_index = -1;
}

inline void engine::new_mode() {
  constexpr u32 tournaments[] = {1, 1, 2, 8}, quanta[] = {1, 4, 40, 400}, periods[] = {1, 4, 32, 256};
  mode_left = static_cast<int>(32 + rng.below(2000));
  tournament = tournaments[rng.below(4)];
  quantum = quanta[rng.below(4)];
  land_period = periods[rng.below(4)];
  for (wave* w : ready) w->priority = static_cast<u32>(rng.next());
}

inline wave& engine::choose() {
  if (--mode_left < 0) new_mode();
  const u32 n = static_cast<u32>(ready.size());
  wave* best = ready[rng.below(n)];
  for (u32 i = 1; i < tournament; ++i) {
    wave* other = ready[rng.below(n)];
    if (other->priority > best->priority) best = other;
  }
  for (int i = 0; i < 16 && ranks[static_cast<std::size_t>(best->block->of->rank)].slow; ++i)
    best = ready[rng.below(n)];
  return *best;
}

inline int pick_lane(const wave& w) {
  const u64 m = w.runnable;
  if (w.descending) {
    const u64 low = m & (~0ull >> (63 - w.rotation));
    return 63 - std::countl_zero(low ? low : m);
  }
  const u64 high = m & (~0ull << w.rotation);
  return std::countr_zero(high ? high : m);
}

inline void engine::run_wave(wave& w) {
  if (!w.started) start_wave(w);
  if (!w.runnable) {  // every lane that could run had paused: the next turn of their polling loops
    w.runnable = w.paused;
    w.paused = 0;
    w.woken = w.looked = false;
    ++w.turn;
    w.polled.clear();
  }
  w.budget = static_cast<int>(1 + rng.below(quantum));
  const int lane = pick_lane(w);
  current = {this, &w, lane};
  switch_context(scheduler, w.contexts[lane]);
  current = {};
  if (halted) throw stopped{};
  if (w.state != wave_state::ready) remove_ready(w);
  if (w.state == wave_state::done) wave_done(w);
}

inline report engine::run() {
  if (halted) return result;
  result = {};
  idle_progress = ~0ull;
  try {
    apply_stops();
    for (std::size_t r = 0; r < ranks.size(); ++r)
      if (!ranks[r].running && !ranks[r].queue.empty() && !ranks[r].stopped)
        start_launch(ranks[r], static_cast<int>(r));
    for (;;) {
      ++stats.steps;
      clock_ns += opt.step_ns;
      if (!faults.empty()) apply_stops();
      if (!delayed.empty()) fire_delayed(false);
      if (!pending.empty() || !flying.empty()) background();
      if (opt.max_steps && stats.steps > opt.max_steps)
        collect_waiters(), fail(error::limit, "options::max_steps reached");
      if (ready.empty()) {
        if (!idle()) break;
        continue;
      }
      run_wave(choose());
    }
    ref<outer_clock> all(new outer_clock);  // the host waited for all ranks
    for (auto& r : ranks)
      if (r.base) all->join(r.base->pairs.data(), 0, static_cast<u32>(r.base->pairs.size()));
    for (auto& r : ranks) r.base = all;
  } catch (const stopped&) {
  }
  for (auto& r : ranks) {  // after an error the machine is dead: lanes are abandoned where they stand
    if (r.running) drop_waves(*r.running), ++result.unfinished;
    result.unfinished += halted ? 0 : static_cast<int>(r.queue.size());
  }
  if (halted || result.unfinished) {
    ready.clear(), pending.clear(), flying.clear(), delayed.clear(), watchers.clear();
    std::fill(watch_filter.begin(), watch_filter.end(), u16{0});
    for (auto& r : ranks) r.running.reset(), r.queue.clear();
  }
  stats.clock_ns = clock_ns;
  result.stats = stats;
  return result;
}

}  // namespace monolayer::sim::detail
