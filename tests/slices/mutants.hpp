// Device code with one thing wrong. A mutant is a target whose functions misbehave when their mutation is active, or a
// program that does; with none active it is the target itself, which the tests check first.
#pragma once

#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "slices/sim_backend.hpp"

namespace monolayer::test {

enum class mutation {
  none,
  missing_arrival,     // block 0 never arrives at slot act
  early_arrival,       // a store of slot act follows its arrival
  missing_drain,       // storing waves do not wait for their stores (words only)
  wrong_epoch,         // polls take the previous use of slot act for the present one
  wrong_tag,           // polls of tagged words take any older epoch for the present one
  early_chunk,         // a chunk is read without waiting for it
  one_buffer,          // the mailbox has one buffer for all sums
  k_order,             // rows and weights disagree on the order of k
  scale_lane,          // a lane takes another feature's scales
  bf16_bias,           // the router's bias is rounded to bf16
  arrival_order,       // partial sums are added as they come
};
inline mutation active = mutation::none;
inline u64 epoch_before = 0;  // of the launch that runs

template <class Base>
struct mutant : Base {
  static constexpr bool words = Base::arrivals == arrival_kind::words;

  // ---- layouts, as device code asks for them
  static int a_row(int lane, int h) {
    return active == mutation::scale_lane ? Base::a_row(lane ^ (Base::wave_size == 64 ? 1 : 4), h) : Base::a_row(lane, h);
  }
  static int k_group(int lane) {
    return active == mutation::k_order ? Base::k_group(lane) ^ 1 : Base::k_group(lane);
  }

  // ---- the ring
  struct ring : Base::ring {
    using Base::ring::ring;
    template <class W>
    bool wait_full(u32 n, W& watch) {
      return active == mutation::early_chunk || Base::ring::wait_full(n, watch);
    }
  };

  // ---- slots
  static void slot_store16(void* at, u32x4 v) {
    if (active == mutation::early_arrival && Base::wave() == 0 && Base::lane() == 0 && is(at, "slot act buffer 0"))
      kept()[sim::detail::current.of->block].push_back({at, v});
    else
      Base::slot_store16(at, v);
  }
  static void arrive(void* at, u32 value) {
    if (active == mutation::missing_arrival && Base::block() == 0 && is(at, "arrivals of act")) return;
    Base::arrive(at, value);
    if (active != mutation::early_arrival || Base::lane() != 0) return;
    auto& late = kept()[sim::detail::current.of->block];
    for (const auto& [to, v] : late) Base::slot_store16(to, v);
    late.clear();
  }
  static void drain_stores() {
    if (active != mutation::missing_drain) Base::drain_stores();
  }
  static u32 poll4(const void* at) {
    const u32 seen = Base::poll4(at);
    return active == mutation::wrong_epoch && is(at, "arrivals of act") ? seen + 0x40000000u : seen;
  }
  static u32x4 poll16(const void* at) {
    u32x4 v = Base::poll16(at);
    if (active == mutation::wrong_epoch && is(at, "arrivals of act"))
      for (u32& word : v.v) word = tag();
    return v;
  }

  // ---- tagged words
  static void tagged_store_peer(void* at, u64 word) {
    Base::tagged_store_peer(static_cast<u8*>(at) + shift(at), word);
  }
  static u32x4 tagged_load2(const void* at) {
    if (active == mutation::arrival_order && is(at, "mailbox")) return next_arrived(static_cast<const u8*>(at));
    u32x4 v = Base::tagged_load2(static_cast<const u8*>(at) + shift(at));
    if (active == mutation::wrong_tag)
      for (int i : {1, 3})
        if (v.v[i] != 0) v.v[i] = tag();
    return v;
  }

  /// Forgets what the last run left behind.
  static void reset(mutation now, u64 epoch) {
    active = now;
    epoch_before = epoch;
    kept().clear();
    order().clear();
  }
  /// Where the program's mailbox has its slots' buffers; to be told before the first run.
  template <class Program>
  static void describe() {
    using layout = slot_layout<Program, Base::arrivals>;
    mailbox().clear();
    for (int s = 0; s < Program::info.slot_count; ++s)
      if (layout::in_mailbox(s))
        mailbox().push_back({layout::payload_offset(s), layout::buffer_bytes(s),
                             u64(Program::info.max_rows) * slot_row_bytes(Program::info.slots[s]), Program::info.ranks});
  }

 protected:
  static const sim::detail::region& region_at(const void* at) { return *sim::detail::machine_now().region_of(at); }
  static bool is(const void* at, const char* name) { return region_at(at).part(at).name == name; }
  static u32 tag() { return u32(epoch_after(epoch_before, sim::detail::current.of->layer + 1)); }

 private:
  struct mailbox_slot {
    u64 offset, buffer_bytes, source_bytes;  // source: one rank's rows in a buffer
    int ranks;
  };
  static std::vector<mailbox_slot>& mailbox() {
    static std::vector<mailbox_slot> slots;
    return slots;
  }
  static const mailbox_slot& mailbox_slot_at(u64 offset) {
    const mailbox_slot* slot = nullptr;
    for (const mailbox_slot& s : mailbox())
      if (offset >= s.offset) slot = &s;
    return *slot;
  }
  static std::ptrdiff_t shift(const void* at) {
    if (active != mutation::one_buffer || !is(at, "mailbox")) return 0;
    const u64 offset = u64(static_cast<const u8*>(at) - region_at(at).base);
    const mailbox_slot& s = mailbox_slot_at(offset);
    return std::ptrdiff_t((offset - s.offset) % s.buffer_bytes) - std::ptrdiff_t(offset);
  }
  /// The k-th load of a sum gets the k-th rank whose words have come.
  static u32x4 next_arrived(const u8* at) {
    const u64 offset = u64(at - region_at(at).base);
    const mailbox_slot& slot = mailbox_slot_at(offset);
    const std::size_t k = (offset - slot.offset) % slot.buffer_bytes / slot.source_bytes;
    const u8* first = at - k * slot.source_bytes;
    auto& came = order()[{first, tag()}];
    if (k < came.size()) return Base::tagged_load2(first + u64(came[k]) * slot.source_bytes);
    u32x4 v = {};
    for (u64 s = u64(slot.ranks); s-- > 0;) {  // of those that came since, the last rank first
      if (std::find(came.begin(), came.end(), int(s)) != came.end()) continue;
      v = Base::tagged_load2(first + s * slot.source_bytes);
      if (v.v[1] != tag() || v.v[3] != tag()) continue;
      came.push_back(int(s));
      return v;
    }
    return v;
  }
  static auto& kept() {
    static std::map<const void*, std::vector<std::pair<void*, u32x4>>> stores;  // by block
    return stores;
  }
  static auto& order() {
    static std::map<std::pair<const u8*, u32>, std::vector<int>> sources;
    return sources;
  }
};

static_assert(target<mutant<sim::gfx950>> && target<mutant<sim::sm90>>);

template <class Program>
struct mutant_of : Program {
  MONOLAYER_HOST_DEVICE static u32 router_key(float score, float bias) {
    if (active == mutation::bf16_bias) bias = to_float(from_float<bf16>(bias));
    return Program::router_key(score, bias);
  }
};

}  // namespace monolayer::test
