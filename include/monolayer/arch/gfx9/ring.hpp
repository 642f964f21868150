// The ring of weight chunks on CDNA: one producer wave copies from memory straight into LDS, consumer waves
// read it.
//
// Flags, two words a slot, accessed by assembly alone (isa.hpp):
//   full[s]   how often slot s has been filled; chunk n is there when full[n % count] = n / count + 1
//   given[s]  credits given back; free for chunk n when given[n % count] = ring_credits * (n / count)
// The chip says that a copy has landed only by vmcnt, one counter of the wave that counts its operations in
// order. So the producer remembers after how many load instructions each chunk ends; a chunk has landed when
// no more instructions are outstanding than were issued behind it. That is found by waiting, so a landed
// chunk is *published* (its full flag written) when the producer next has to wait: for the cap on chunks in
// flight, for a free slot, in flush, in drain. In a steady stream it waits for the oldest chunk only; the
// others fly on.
//
// While it streams, the producer must not load through the vector memory unit (a poll of global memory, a
// load at an address that differs between lanes) and must read LDS by lds_flag_load alone: else the compiler
// waits for all copies (the audit's rule producer-drain). Before it waits for anything but this ring it calls
// flush(): else what has landed stays unpublished.
#pragma once

#include "monolayer/arch/gfx9/isa.hpp"

namespace monolayer::gfx9 {

/// LaneBytes: what one lane copies by one instruction, 16 on gfx950 and 4 on gfx942.
template <u32 LaneBytes>
class ring {
 public:
  MONOLAYER_DEVICE explicit ring(ring_geometry g)
      : control_(isa::uniform(g.control)),
        slots_(isa::uniform(g.slots)),
        slot_bytes_(isa::uniform(g.slot_bytes)),
        count_(isa::uniform(g.count)),
        cap_(isa::uniform(g.cap)),
        reciprocal_(0xffffffffu / count_ + 1) {}

  MONOLAYER_HOST_DEVICE static constexpr u32 control_bytes(u32 count) { return count * 8; }

  MONOLAYER_DEVICE static void init(ring_geometry g) {
    for (u32 i = isa::thread() % 64; i < g.count * 2; i += 64) isa::lds_store<u32>(g.control + i * 4, 0u);
  }

  // --- producer
  template <class Watch>
  MONOLAYER_DEVICE bool push(const void* source, u32 bytes, Watch& watch) {
    const place p = find(next_);
    bool free = p.use == 0;
    while (true) {
      if (!free) free = int(isa::uniform(isa::flag_read(given(p.slot))) - ring_credits * p.use) >= 0;
      const bool full = next_ - published_ >= cap_;
      if (free && !full) break;
      if (!free && stopped(watch)) return false;
      if (published_ != next_) {
        publish_oldest();
      } else {
        isa::yield();
      }
    }
    copy(reinterpret_cast<const u8*>(isa::uniform(reinterpret_cast<u64>(source))), isa::uniform(bytes),
         slots_ + p.slot * slot_bytes_);
    ends_ = isa::thread() % 64 == p.slot ? issued_ : ends_;
    ++next_;
    return true;
  }
  MONOLAYER_DEVICE void flush() {
    while (published_ != next_) publish_oldest();
  }
  MONOLAYER_DEVICE void drain() { flush(); }

  // --- consumers
  template <class Watch>
  MONOLAYER_DEVICE bool wait_full(u32 n, Watch& watch) {
    const place p = find(n);
    while (int(isa::uniform(isa::flag_read(full(p.slot))) - (p.use + 1)) < 0) {
      if (stopped(watch)) return false;
      isa::yield();
    }
    return true;
  }
  MONOLAYER_DEVICE lds_address slot(u32 n) { return slots_ + find(n).slot * slot_bytes_; }
  MONOLAYER_DEVICE void release(u32 n, u32 credits) {
    if (isa::thread() % 64 == 0) isa::flag_add(given(find(n).slot), credits);
  }

 private:
  struct place {
    u32 slot, use;
  };
  /// Exact for n < 2^26: the reciprocal is too large by less than count / 2^32 / count.
  MONOLAYER_DEVICE place find(u32 n) const {
    n = isa::uniform(n);
    const u32 use = isa::multiply_high(n, reciprocal_);
    return {n - use * count_, use};
  }
  /// All lanes agree; saying so keeps the compiler from masking lanes in every loop around a push.
  template <class Watch>
  MONOLAYER_DEVICE static bool stopped(Watch& watch) {
    return isa::uniform(u32(watch.give_up())) != 0;
  }
  MONOLAYER_DEVICE lds_address full(u32 slot) const { return control_ + slot * 4; }
  MONOLAYER_DEVICE lds_address given(u32 slot) const { return control_ + (count_ + slot) * 4; }

  static constexpr u32 piece = 64 * LaneBytes;  // bytes that one instruction copies
  static constexpr u32 group = 4;  // instructions that share M0: the offset field reaches 4095 bytes

  template <u32 Index = 0>
  MONOLAYER_DEVICE void copy_group(const u8* source, u32 lane, lds_address to) {
    isa::load_to_lds<LaneBytes, Index * piece>(source, lane, to);
    if constexpr (Index + 1 < group) copy_group<Index + 1>(source, lane, to);
  }
  template <u32 Index = 0>
  MONOLAYER_DEVICE void copy_rest(const u8* source, u32 bytes, u32 lane, lds_address to) {
    if (bytes > Index * piece) {
      if (lane * LaneBytes + Index * piece < bytes)
        isa::load_to_lds<LaneBytes, Index * piece>(source, lane, to);
      ++issued_;
      if constexpr (Index + 1 < group) copy_rest<Index + 1>(source, bytes, lane, to);
    }
  }
  MONOLAYER_DEVICE void copy(const u8* source, u32 bytes, lds_address to) {
    const u32 lane = isa::thread() % 64;
    for (; bytes >= group * piece; bytes -= group * piece, source += group * piece, to += group * piece) {
      copy_group(source, lane, to);
      issued_ += group;
    }
    copy_rest(source, bytes, lane, to);
  }

  // s_waitcnt has its count in the instruction: round down to one of these (waiting longer is always right).
  static constexpr u32 waits[16] = {0, 1, 2, 3, 4, 6, 8, 12, 16, 20, 24, 28, 32, 40, 48, 56};
  template <int First = 0, int Last = 15>
  MONOLAYER_DEVICE static void wait_until_outstanding(u32 allowed) {
    if constexpr (First == Last) {
      isa::wait_loads<waits[First]>();
    } else {
      constexpr int middle = (First + Last + 1) / 2;
      if (allowed >= waits[middle]) {
        wait_until_outstanding<middle, Last>(allowed);
      } else {
        wait_until_outstanding<First, middle - 1>(allowed);
      }
    }
  }
  MONOLAYER_DEVICE void publish_oldest() {
    const place p = find(published_);
    wait_until_outstanding(issued_ - isa::read_lane(ends_, p.slot));
    isa::flag_write(full(p.slot), p.use + 1);
    ++published_;
  }

  u32 control_, slots_, slot_bytes_, count_, cap_, reciprocal_;
  u32 next_ = 0, published_ = 0;  // chunks started, chunks published
  u32 issued_ = 0;                // load instructions
  u32 ends_ = 0;                  // lane s: issued_ after the chunk in slot s
};

}  // namespace monolayer::gfx9
