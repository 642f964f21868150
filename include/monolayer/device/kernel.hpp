// The persistent kernel: one block a compute unit, one producer wave and the consumer waves, over a span of layers.
#pragma once

#include "monolayer/device/pipeline.hpp"

namespace monolayer {

/// The producer wave's side of the walk: it turns runs of chunks into pushes to the ring.
template <class T, class Program>
struct producer {
  using target = T;
  using program = Program;
  using layout = lds_layout<T, Program>;
  static constexpr program_info info = Program::info;

  const launch_params* params;
  typename T::ring ring;
  const layer_entry* entry = nullptr;
  u32 layer = 0;

  /// Waits, in LDS, until the consumers have routed this layer.
  MONOLAYER_DEVICE bool wait_routing() {
    // Lanes may see the flag change at different times, and must go on together.
    const auto missing = [&] { return T::ballot(T::lds_flag_load(layout::routing_flag) != routing_epoch(layer)) != 0; };
    if (!missing()) return true;
    ring.flush();
    watch<T> w = wait_for_consumers();
    while (missing())
      if (T::ballot(w.give_up()) != 0) return false;
    return true;
  }
  /// Pushes `count` chunks of `bytes` bytes; address_of(i) may be asked by lanes on their own.
  template <class AddressOf>
  MONOLAYER_DEVICE bool push(u32 count, u32 bytes, AddressOf address_of) {
    watch<T> w = wait_for_consumers();
    if constexpr (requires { ring.push_chunks(count, bytes, address_of, w); }) {
      return ring.push_chunks(count, bytes, address_of, w);
    } else {
      MONOLAYER_NO_UNROLL
      for (u32 c = 0; c < count; ++c)
        if (!ring.push(address_of(c), bytes, w)) return false;
      return true;
    }
  }

 private:
  // The producer waits for its own block's consumers, which have deadlines of their own and abort the block when one
  // passes; it only needs to outlast the longest of them.
  MONOLAYER_DEVICE watch<T> wait_for_consumers() const {
    return {layout::abort_flag, nullptr, 2 * (params->local_deadline_ns + params->peer_deadline_ns)};
  }
};

namespace detail {

template <class T, class Program>
MONOLAYER_DEVICE ring_geometry ring_of_launch(const launch_params& p, int live) {
  using layout = lds_layout<T, Program>;
  u32 count = layout::ring_slots(p.lds_bytes, live);
  if (p.ring_limit >= layout::fewest_slots && p.ring_limit < count) count = p.ring_limit;
  u32 cap = T::in_flight_bytes / layout::slot_bytes;
  if (cap > count) cap = count;
  return {layout::ring_control, layout::rows + layout::row_bytes(live), layout::slot_bytes, count, cap < 1 ? 1 : cap};
}

/// Sets up the control tables; all threads of the block take part. Returns the number of live rows.
template <class T, class Program>
MONOLAYER_DEVICE int set_up(const launch_params& p) {
  using layout = lds_layout<T, Program>;
  // Dead rows are known from memory, so a captured graph of a fixed width can replay with fewer live rows.
  bool alive = T::lane() < p.rows && (T::load8(p.row_slots + T::lane()).v[1] >> 31) == 0;
  // A row that names a slot or a position that does not exist is left out, and counted.
  if constexpr (requires { Program::max_context; }) {
    if (alive) {
      const auto number = [](u32x2 v) { return u64(v.v[1]) << 32 | v.v[0]; };
      const u64 position = number(T::load8(p.batch.positions + T::lane()));
      const bool known = number(T::load8(p.row_slots + T::lane())) < p.batch.cache_slots &&
                         position < p.batch.rope_positions && position < u64(Program::max_context);
      if (!known && T::block() == 0 && T::wave() == 0) T::fetch_add(&p.state->bad_entries, 1);
      alive = known;
    }
  }
  const u64 all = T::ballot(alive);
  if (T::wave() == 0) {
    for (u32 at = 4 * u32(T::lane()); at < layout::distinct_count; at += 4 * T::wave_size) T::lds_store4(at, 0);
    T::wave_sync();
    if (T::lane() == 0) {
      // A rank that has failed does nothing until it is reset; the whole block decides by this one load.
      T::lds_store4(layout::refused, T::poll4(&p.state->failed.word) != 0 ? 1u : 0u);
    }
    if (T::lane() >= popcount(all) && T::lane() < max_rows_limit)
      T::lds_store4(layout::live_rows + 4 * u32(T::lane()), ~0u);
    if (alive)
      T::lds_store4(layout::live_rows + 4 * u32(popcount(all & ((u64(1) << T::lane()) - 1))), u32(T::lane()));
    if (T::lane() < Program::info.slot_count)
      T::lds_store4(layout::clocks + 16 * u32(T::lane()), T::load4(&p.state->uses[T::lane()]));
  }
  return T::opaque(popcount(all));
}

/// Without a live row there is nothing to compute or to wait for; the epoch moves on all the same.
MONOLAYER_DEVICE int layers_to_run(const launch_params& p, int live) { return live == 0 ? 0 : p.layer_count; }

/// Blocks that wait for one another must all be resident: every block arrives here before its first wait.
template <class Block>
MONOLAYER_DEVICE bool check_in(Block& b, u32 base) {
  using T = typename Block::target;
  if (T::wave() == 0 && T::lane() == 0) {
    T::fetch_add(&b.params->state->check_in, 1);
    wait_counter(b, &b.params->state->check_in, base + b.blocks(), {failure::check_in, 0, 0, 0, 0});
  }
  return b.sync();
}

template <class T, class Program>
MONOLAYER_DEVICE position consume(const launch_params& p, ring_geometry g, int live) {
  block<T, Program> b(p, g);
  b.live = live;
  b.set_tag(u32(newest_epoch<T>(p)));
  bool good = check_in(b, T::load4(&p.state->check_in_base));
  MONOLAYER_NO_UNROLL
  for (u32 next = 0; good && int(next) < layers_to_run(*b.all_params, b.live); next = b.layer + 1) {
    b.params = b.all_params;
    b.layer = next;
    b.set_tag(next_tag(b.tag()));
    good = consume_layer<Program>(b, T::load8(&b.entry().kind).v[0]);
  }
  return {b.all_params, b.number(), b.blocks(), b.layer, b.stage, b.tile};
}

template <class T, class Program>
MONOLAYER_DEVICE void produce(const launch_params& p, ring_geometry g, int live) {
  producer<T, Program> producing{&p, typename T::ring(g)};
  MONOLAYER_NO_UNROLL
  for (int i = 0; i < layers_to_run(*producing.params, live); ++i) {
    producing.params = reload<T>(producing.params);
    producing.layer = u32(i);
    producing.entry = producing.params->layers + i;
    if (!produce_layer<Program>(producing, T::load8(&producing.entry->kind).v[0])) break;
  }
  producing.ring.flush();
  producing.ring.drain();  // a block must not end with copies to its LDS in flight
}

/// Gives the tagged words of rows that were not live the newest epoch's tag, in the slots that this launch used: their
/// readers are then all done with older uses. Rare and at the end of a launch; one wave does it.
template <class T, class Program>
MONOLAYER_DEVICE void refresh_tags(const launch_params& p, u32 tag) {
  using layout = lds_layout<T, Program>;
  using memory = slot_layout<Program, T::arrivals>;
  const auto refresh = [&]<int Slot>() {
    constexpr slot_info s = Program::info.slots[Slot];
    if constexpr (s.transport == transport::tagged) {
      constexpr u64 offset = memory::payload_offset(Slot), buffer_bytes = memory::buffer_bytes(Slot);
      constexpr u64 row_bytes = slot_row_bytes(s);
      constexpr bool peers = s.scope == scope::peers;
      if (T::lds_load4(layout::clocks + 16 * Slot + 8) == 0) return;
      int j = 0;
      MONOLAYER_NO_UNROLL
      for (int row = 0; row < Program::info.max_rows; ++row) {
        if (j < max_rows_limit && int(T::lds_load4(layout::live_rows + 4 * u32(j))) == row) {
          ++j;
          continue;
        }
        MONOLAYER_NO_UNROLL
        for (int target = 0; target < s.buffers * (peers ? Program::info.ranks : 1); ++target) {
          const u64 from = offset + u64(target % s.buffers) * buffer_bytes +
                           (u64(peers ? p.rank * Program::info.max_rows : 0) + u64(row)) * row_bytes;
          u8* at = (peers ? p.mailbox[target / s.buffers] : p.slots) + from;
          MONOLAYER_NO_UNROLL
          for (u64 word = u64(T::lane()) * 8; word < row_bytes; word += 8 * T::wave_size) {
            if (peers)
              T::tagged_store_peer(at + word, u64(tag) << 32);
            else
              T::tagged_store(at + word, u64(tag) << 32);
          }
        }
      }
    }
  };
  [&]<int... Slots>(std::integer_sequence<int, Slots...>) {
    (refresh.template operator()<Slots>(), ...);
  }(std::make_integer_sequence<int, Program::info.slot_count>{});
}

/// The last block to leave moves the state on, unless the rank has failed. One lane. Returns the newest epoch's tag when
/// that passed a multiple of tag_refresh_period, else 0, which is no epoch's tag.
template <class T, class Program>
MONOLAYER_DEVICE u32 leave(const position& at) {
  const launch_params& p = *at.params;
  if (T::lds_load4(lds_layout<T, Program>::abort_flag) != 0) {
    record_failure<T, Program>(at);
    tell_peers<T, Program>(p);
  }
  const u64 newest = newest_epoch<T>(p);
  const u32 check_in_base = T::load4(&p.state->check_in_base), exit_base = T::load4(&p.state->exit_base);
  const u32 before = T::fetch_add(&p.state->exits, 1);
  if (before + 1 != exit_base + at.blocks) return 0;
  if (T::poll4(&p.state->failed.word) != 0) {
    T::fetch_add(&p.state->failed_launches, 1);
    return 0;
  }
  MONOLAYER_NO_UNROLL
  for (int s = 0; s < Program::info.slot_count; ++s)
    T::store4(&p.state->uses[s], T::lds_load4(lds_layout<T, Program>::clocks + 16 * u32(s)));
  const u64 epoch = epoch_after(newest, u32(p.layer_count));
  T::store4(&p.state->epoch, u32(epoch));
  T::store4(reinterpret_cast<u8*>(&p.state->epoch) + 4, u32(epoch >> 32));
  T::store4(&p.state->check_in_base, check_in_base + at.blocks);
  T::store4(&p.state->exit_base, exit_base + at.blocks);
  return newest / tag_refresh_period != epoch / tag_refresh_period ? u32(epoch) : 0;
}

}  // namespace detail

/// One block of a launch: what the target's kernel calls, with all threads of all waves.
template <class T, class Program>
MONOLAYER_DEVICE void run_block(const launch_params& p) {
  using layout = lds_layout<T, Program>;
  const int live = detail::set_up<T, Program>(p);
  const ring_geometry g = detail::ring_of_launch<T, Program>(p, live);
  if (T::wave() == T::consumer_waves) T::ring::init(g);
  T::block_barrier();
  const auto failed_before = [] { return T::lds_flag_load(layout::refused) != 0; };
  position at{&p, u32(T::block()), u32(T::blocks()), 0, 0, 0};
  if (!failed_before()) {
    // Two ifs and this order: an else would keep what the producer needs in registers throughout the consumers' code.
    if (T::wave() == T::consumer_waves) detail::produce<T, Program>(p, g, live);
    if (T::wave() != T::consumer_waves)
      at = detail::consume<T, Program>(p, g, live);
  }
  T::block_barrier();
  if (T::wave() != 0) return;
  if (failed_before()) {
    if (at.block == 0 && T::lane() == 0) T::fetch_add(&at.params->state->failed_launches, 1);
  } else if (T::lds_flag_load(layout::abort_flag) != 0) {
    if (T::lane() == 0) detail::leave<T, Program>(at);  // it drains its stores: no other lane may wait for it
  } else {
    u32 refresh = T::lane() == 0 ? detail::leave<T, Program>(at) : 0;
    refresh = T::wave_max(refresh);
    if (refresh != 0) detail::refresh_tags<T, Program>(*at.params, refresh);
  }
}

}  // namespace monolayer
