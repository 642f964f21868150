// What gfx950 and gfx942 share of the target concept: all but the matrix unit and the weight conversions.
#pragma once

#include "monolayer/arch/gfx9/isa.hpp"
#include "monolayer/arch/gfx9/ring.hpp"
#include "monolayer/arch/wave_layouts.hpp"

namespace monolayer::gfx9 {

/// A barrier of Waves waves: a counter in LDS that only grows. Orders LDS accesses; global stores need
/// drain_stores.
template <u32 Waves>
class consumer_group {
 public:
  static constexpr u32 lds_bytes = 4;
  MONOLAYER_DEVICE explicit consumer_group(lds_address at) : at_(at) {}
  MONOLAYER_DEVICE void sync() {
    const int expected = isa::opaque(expected_) + int(Waves);
    if (isa::thread() % 64 == 0) isa::flag_add(at_, 1);
    while (int(isa::uniform(isa::flag_read(at_))) - expected < 0) isa::yield();
    expected_ = isa::park(expected);
  }

 private:
  lds_address at_;
  int expected_ = 0;
};

template <u32 LoadToLdsBytes>
struct common : wave64_layout {
  using ring = gfx9::ring<LoadToLdsBytes>;
  using consumer_group = gfx9::consumer_group<consumer_waves>;
  MONOLAYER_HOST_DEVICE static constexpr u32 ring_control_bytes(u32 count) {
    return ring::control_bytes(count);
  }

  static constexpr bool few_scalars = true;  // uniform values that wait are better off in vector registers
  MONOLAYER_DEVICE static const void* opaque(const void* p) { return isa::opaque(p); }
  MONOLAYER_DEVICE static int opaque(int x) { return isa::opaque(x); }
  MONOLAYER_DEVICE static int park(int x) { return isa::park(x); }

  // --- identities
  MONOLAYER_DEVICE static int lane() { return int(isa::thread() % 64); }
  MONOLAYER_DEVICE static int wave() { return int(isa::uniform(isa::thread() / 64)); }
  MONOLAYER_DEVICE static int block() { return int(isa::block()); }
  MONOLAYER_DEVICE static int blocks() { return int(isa::blocks()); }
  /// One group, the whole chip. Blocks do go to XCDs in turn (block % 8) on today's drivers, but nothing
  /// guarantees it: groups come when the blocks read HW_REG_XCC_ID and agree on them at check-in.
  MONOLAYER_DEVICE static int group_of_block(int) { return 0; }

  // --- wave primitives
  MONOLAYER_DEVICE static u32 shuffle_xor(u32 value, int mask) {
#if MONOLAYER_AMD_DEVICE
    if (__builtin_constant_p(mask)) {  // inside a row of 16 lanes without LDS
      if (mask == 1) return isa::dpp<quad_xor_1>(value);
      if (mask == 2) return isa::dpp<quad_xor_2>(value);
      if (mask == 8) return isa::dpp<row_rotate_8>(value);
    }
#endif
    return isa::bpermute(u32(lane() ^ mask), value);
  }
  MONOLAYER_DEVICE static u64 ballot(bool predicate) { return isa::ballot(predicate); }
  MONOLAYER_DEVICE static u32 wave_max(u32 value) {
    return reduce(value, [](u32 a, u32 b) { return a > b ? a : b; });
  }
  MONOLAYER_DEVICE static u32 wave_min(u32 value) {
    return reduce(value, [](u32 a, u32 b) { return a < b ? a : b; });
  }
  /// The LDS serves the accesses of a wave in order, so the compiler alone is held.
  MONOLAYER_DEVICE static void wave_sync() { isa::wave_barrier(); }

  // --- LDS
  MONOLAYER_DEVICE static u32 lds_load4(lds_address at) { return isa::lds_load<u32>(at); }
  MONOLAYER_DEVICE static u32x2 lds_load8(lds_address at) { return isa::lds_load<u32x2>(at); }
  MONOLAYER_DEVICE static u32x4 lds_load16(lds_address at) { return isa::lds_load<u32x4>(at); }
  MONOLAYER_DEVICE static void lds_store1(lds_address at, u8 value) { isa::lds_store(at, value); }
  MONOLAYER_DEVICE static void lds_store2(lds_address at, u16 value) { isa::lds_store(at, value); }
  MONOLAYER_DEVICE static void lds_store4(lds_address at, u32 value) { isa::lds_store(at, value); }
  MONOLAYER_DEVICE static void lds_store16(lds_address at, u32x4 value) { isa::lds_store(at, value); }
  MONOLAYER_DEVICE static u32 lds_fetch_add(lds_address at, u32 value) { return isa::lds_fetch_add(at, value); }
  /// The flag's address is the same in all active lanes, and the compiler learns that so is what comes out.
  MONOLAYER_DEVICE static void lds_flag_store(lds_address at, u32 value) { isa::flag_write(at, value); }
  MONOLAYER_DEVICE static u32 lds_flag_load(lds_address at) { return isa::uniform(isa::flag_read(at)); }
  MONOLAYER_DEVICE static u32 lds_flag_load_own(lds_address at) { return isa::flag_read(at); }

  // --- memory written before the launch; the caller's outputs
  MONOLAYER_DEVICE static u32 load4(const void* p) { return isa::plain_load4(p); }
  MONOLAYER_DEVICE static u32x2 load8(const void* p) { return isa::plain_load8(p); }
  MONOLAYER_DEVICE static u32x4 load16(const void* p) { return isa::plain_load16(p); }
  MONOLAYER_DEVICE static void store2(void* p, u16 value) { isa::plain_store(p, value); }
  MONOLAYER_DEVICE static void store4(void* p, u32 value) { isa::plain_store(p, value); }
  MONOLAYER_DEVICE static void store16(void* p, u32x4 value) { isa::plain_store16(p, value); }

  // --- slots, sc1. slot_load16, poll16, tagged_load2: the active lanes' addresses lie within 2 GiB of each
  // other.
  MONOLAYER_DEVICE static u32 slot_load4(const void* p) { return isa::load_agent<u32>(p); }
  MONOLAYER_DEVICE static u32x4 slot_load16(const void* p) { return isa::buffer_load16<sc1>(p); }
  MONOLAYER_DEVICE static void slot_store2(void* p, u16 value) { isa::store_agent(p, value); }
  MONOLAYER_DEVICE static void slot_store4(void* p, u32 value) { isa::store_agent(p, value); }
  MONOLAYER_DEVICE static void slot_store16(void* p, u32x4 value) { isa::store16_agent(p, value); }
  MONOLAYER_DEVICE static void drain_stores() { isa::wait_stores(); }

  // --- arrivals: words. The compiler may move no payload load above a poll.
  MONOLAYER_DEVICE static void arrive(void* p, u32 tag) { isa::arrival_store_agent(p, tag); }
  MONOLAYER_DEVICE static void arrive_system(void* p, u32 tag) { isa::arrival_store_system(p, tag); }
  MONOLAYER_DEVICE static u32 poll4(const void* p) {
    const u32 word = isa::load_agent<u32>(p);
    isa::compiler_barrier();
    return word;
  }
  MONOLAYER_DEVICE static u32x4 poll16(const void* p) {
    isa::compiler_barrier();  // a buffer load is no atomic: two polls might become one
    const u32x4 words = isa::buffer_load16<sc1>(p);
    isa::compiler_barrier();
    return words;
  }

  // --- tagged words
  MONOLAYER_DEVICE static void tagged_store(void* p, u64 word) { isa::store_agent(p, word); }
  MONOLAYER_DEVICE static void tagged_store_peer(void* p, u64 word) { isa::store_system(p, word); }
  MONOLAYER_DEVICE static u32x4 tagged_load2(const void* p) {
    isa::compiler_barrier();
    const u32x4 words = isa::buffer_load16<sc0_sc1>(p);
    isa::compiler_barrier();
    return words;
  }
  /// At base + offset, where base is the same in all lanes: one register of a lane serves many loads.
  MONOLAYER_DEVICE static u32x4 tagged_load2(const void* base, u32 offset) {
    isa::compiler_barrier();
    const u32x4 words = isa::buffer_load16<sc0_sc1>(base, offset);
    isa::compiler_barrier();
    return words;
  }

  // --- atomics on control words
  MONOLAYER_DEVICE static u32 fetch_add(void* p, u32 value) { return isa::fetch_add_agent(p, value); }
  MONOLAYER_DEVICE static u32 compare_exchange(void* p, u32 expected, u32 desired) {
    return isa::compare_exchange_system(p, expected, desired);
  }

  // --- time
  MONOLAYER_DEVICE static u64 clock_ns() { return isa::real_time() * 10; }
  MONOLAYER_DEVICE static void pause() { isa::sleep(); }
  MONOLAYER_DEVICE static void trace(u32, u32, u32) {}

  MONOLAYER_DEVICE static void block_barrier() { isa::block_barrier(); }

 private:
  static constexpr int sc1 = 16, sc0_sc1 = 17;
  static constexpr int quad_xor_1 = 0xb1, quad_xor_2 = 0x4e;  // quad_perm [1,0,3,2] and [2,3,0,1]
  static constexpr int row_rotate_8 = 0x128, row_mirror = 0x140, row_half_mirror = 0x141;

  template <class Op>
  MONOLAYER_DEVICE static u32 reduce(u32 value, Op op) {
    value = op(value, isa::dpp<quad_xor_1>(value));
    value = op(value, isa::dpp<quad_xor_2>(value));
    value = op(value, isa::dpp<row_half_mirror>(value));
    value = op(value, isa::dpp<row_mirror>(value));  // each row of 16 lanes agrees now
    return op(op(isa::read_lane(value, 0), isa::read_lane(value, 16)),
              op(isa::read_lane(value, 32), isa::read_lane(value, 48)));
  }
};

}  // namespace monolayer::gfx9
