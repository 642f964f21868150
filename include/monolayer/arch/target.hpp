// The target concept: what one machine (gfx950, gfx942, sm_90a, or the simulator's models of them) supplies to
// device code. A target is a struct of constants and static functions; stages and device/ are templates over it.
//
// One matrix shape serves every machine: D[16 x columns] += A[16 x 32] * B[32 x columns] in bf16 with f32 sums.
// Weights are A (16 output features), rows of the batch are B's columns. Both operands use one rule that all
// machines share: a lane holds 8 consecutive k of its row or column, k = 8 * k_group(lane) .. + 7.
//   CDNA, wave64:  one v_mfma_f32_16x16x32_bf16 (gfx950) or two 16x16x16 (gfx942); 16 columns.
//   sm_90a, wave32: two mma.sync.m16n8k16 (the k order inside the pair is ours to choose); 8 columns.
// Quantised weights become bf16 in registers, exactly; so activations are never quantised and nothing but the
// weights' own format loses bits.
#pragma once

#include <concepts>
#include <cstdint>

#include "monolayer/core/macros.hpp"

namespace monolayer {

using u8 = std::uint8_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;
using i32 = std::int32_t;

struct alignas(16) u32x4 {
  u32 v[4];
};
struct alignas(8) u32x2 {
  u32 v[2];
};

MONOLAYER_HOST_DEVICE constexpr int popcount(u64 bits) {
#if defined(__CUDA_ARCH__)
  return __popcll(bits);
#else
  return __builtin_popcountll(bits);
#endif
}
/// Bits up to the highest one that is set; 0 for 0.
MONOLAYER_HOST_DEVICE constexpr int bit_width(u32 bits) {
#if defined(__CUDA_ARCH__)
  return 32 - __clz(int(bits));
#else
  return bits == 0 ? 0 : 32 - __builtin_clz(bits);
#endif
}

/// 8 bf16 of one column: k = 8 * k_group(lane) + 0..7, pairs in ascending order, the even k in the low half.
struct fragment_b {
  u32 v[4];
};
/// 8 bf16 of each of the `lane_rows` weight rows that a lane holds, packed as in fragment_b.
template <int LaneRows>
struct fragment_a {
  u32 v[LaneRows][4];
};
/// Four f32 sums: element r is D[d_row(lane, r)][d_column(lane, r)].
struct fragment_d {
  float v[4];
};

/// How the arrivals at a slot's part are kept: one counter a part, or one epoch word a unit.
enum class arrival_kind { counter, words };

/// Addresses in LDS (shared memory) are byte offsets into the block's LDS; device code never holds a pointer to it.
using lds_address = u32;

/// Where a block's ring of weight chunks lives. Slot i starts at slots + i * slot_bytes (a multiple of 128).
struct ring_geometry {
  lds_address control;  // T::ring_control_bytes(count) bytes of flags
  lds_address slots;
  u32 slot_bytes;
  u32 count;  // slots, 2..64
  u32 cap;    // chunks in flight at most, 1..count
};
/// Every chunk is given back with this many credits in all; a wave that consumed u of a chunk's n units gives
/// u * (ring_credits / n). So waves without work in a chunk need not touch its flags.
inline constexpr u32 ring_credits = 8;

/// The ring, one object a lane, same calls by all lanes of a wave. Chunks are numbered 0, 1, 2, ... over the launch
/// and use slot n % count; producer and consumers derive the number alike from the walk over tiles.
///   producer wave: bool push(const void* source, u32 bytes, watch&)  waits for the slot's credits and the cap, then
///                     starts the copy of `bytes` (a multiple of 16, 16-byte aligned); false if watch says stop
///                     A target may also have push_chunks(count, bytes, address_of(i), watch&), for many at once.
///                  void flush()   starts what push still holds back (a target may issue several at once) and sees to it
///                     that consumers learn of all that lands; called before the producer waits for anything else
///                  void drain()   waits until everything that was started has landed
///   consumer wave: bool wait_full(u32 n, watch&)   false if watch says stop
///                  lds_address slot(u32 n)
///                  void release(u32 n, u32 credits)   after the wave's last read of the chunk
///   one wave, before the block's first barrier: static void init(ring_geometry)
/// A `watch` has `bool give_up()`: true when the wait shall end (abort flag, deadline); called at every failed poll.
template <class T>
concept target = requires(int lane, u32 word, u64 wide, float number, lds_address at, void* global, const void* source,
                          u32x4 quad, u32x2 pair, fragment_a<T::lane_rows> a, fragment_b b, fragment_d d,
                          typename T::consumer_group group, typename T::ring ring) {
  // --- constants
  { T::name } -> std::convertible_to<const char*>;
  requires T::wave_size == 64 || T::wave_size == 32;
  { T::consumer_waves } -> std::convertible_to<int>;   // waves of a block besides the producer; wave index 0..n-1
  requires T::columns == 16 || T::columns == 8;        // columns of one matrix step
  requires T::lane_rows == 1 || T::lane_rows == 2;     // rows of A that a lane holds
  { T::lds_bytes } -> std::convertible_to<u32>;        // LDS a block may use
  { T::in_flight_bytes } -> std::convertible_to<u32>;  // cap of weight bytes in flight a block
  { T::arrivals } -> std::convertible_to<arrival_kind>;
  // --- layouts (constexpr; the packers use the same functions)
  { T::a_row(lane, 0) } -> std::same_as<int>;     // row 0..15 of A held as v[h]
  { T::k_group(lane) } -> std::same_as<int>;      // 0..3
  { T::b_column(lane) } -> std::same_as<int>;     // 0..columns-1
  { T::d_row(lane, 0) } -> std::same_as<int>;     // 0..15
  { T::d_column(lane, 0) } -> std::same_as<int>;  // 0..columns-1
  // Whether wave-uniform values that wait are better off parked (below).
  { T::few_scalars } -> std::convertible_to<bool>;
  // The same address of constant memory, about which the compiler may assume nothing that it knew before.
  { T::opaque(source) } -> std::same_as<const void*>;
  { T::opaque(lane) } -> std::same_as<int>;  // the same for a wave-uniform number
  // A wave-uniform number, kept where the target has registers to spare. opaque() brings it back.
  { T::park(lane) } -> std::same_as<int>;
  // --- identities
  { T::lane() } -> std::same_as<int>;
  { T::wave() } -> std::same_as<int>;   // consumers 0..consumer_waves-1, then the producer
  { T::block() } -> std::same_as<int>;  // 0..blocks()-1
  { T::blocks() } -> std::same_as<int>;
  { T::group_of_block(lane) } -> std::same_as<int>;  // locality group of a block (XCD, cluster)
  // --- matrix unit: D += A * B, all lanes of the wave
  { T::mma(a, b, d) } -> std::same_as<void>;
  // --- weights to bf16 in registers. `arrange` is the packer's side (constexpr): it may permute the bits of 8 codes
  //     (given in checkpoint order: code i belongs to k + i, the lowest bits first) as `widen` likes them best.
  { T::arrange_e2m1x8(word) } -> std::same_as<u32>;
  { T::arrange_e4m3x8(wide) } -> std::same_as<u64>;
  // Powers of two: staged rows are held times 2^activation_shift, and the sums of a format's weights are multiplied by
  // 2^<format>_shift at the end. All exact.
  { T::activation_shift } -> std::convertible_to<int>;
  { T::bf16_shift } -> std::convertible_to<int>;
  { T::e4m3_shift } -> std::convertible_to<int>;
  { T::mxfp4_shift } -> std::convertible_to<int>;
  { T::mxfp4_largest_scale } -> std::convertible_to<int>;  // largest e8m0 byte that stays exact
  // 8 e2m1 codes with their e8m0 scale; where mxfp4_scales_sums holds, the scale is left out and multiplies the sums
  { T::mxfp4_scales_sums } -> std::convertible_to<bool>;
  { T::widen_e2m1x8(word, word) } -> std::same_as<fragment_b>;
  { T::widen_e4m3x8(pair) } -> std::same_as<fragment_b>;  // 8 e4m3fn codes (no NaN among weights)
  // --- wave primitives, all lanes of the wave call them
  { T::shuffle_xor(word, lane) } -> std::same_as<u32>;
  { T::ballot(true) } -> std::same_as<u64>;
  { T::wave_max(word) } -> std::same_as<u32>;
  { T::wave_min(word) } -> std::same_as<u32>;
  { T::wave_sync() } -> std::same_as<void>;  // orders LDS accesses of the lanes of one wave
  // --- LDS
  { T::lds_load4(at) } -> std::same_as<u32>;
  { T::lds_load8(at) } -> std::same_as<u32x2>;
  { T::lds_load16(at) } -> std::same_as<u32x4>;
  { T::lds_store1(at, u8{}) } -> std::same_as<void>;
  { T::lds_store2(at, u16{}) } -> std::same_as<void>;
  { T::lds_store4(at, word) } -> std::same_as<void>;
  { T::lds_store16(at, quad) } -> std::same_as<void>;
  // Adds to a word and returns what it held before; lanes of any wave may do so at once. Sums do not depend on the order
  // of the adds; the old values do, so they may only hand out places whose order does not matter. Between adds and plain
  // accesses of a word stands a barrier, as between stores and loads.
  { T::lds_fetch_add(at, word) } -> std::same_as<u32>;
  // A flag in LDS that other waves of the block poll (abort, routing ready): never a plain access.
  { T::lds_flag_store(at, word) } -> std::same_as<void>;  // release: earlier LDS stores of this wave first
  { T::lds_flag_load(at) } -> std::same_as<u32>;          // acquire; all active lanes ask for the same word
  { T::lds_flag_load_own(at) } -> std::same_as<u32>;      // acquire; each lane a word of its own
  // --- memory written before the launch (weights' scales, norms, tables): ordinary loads
  { T::load4(source) } -> std::same_as<u32>;
  { T::load8(source) } -> std::same_as<u32x2>;
  { T::load16(source) } -> std::same_as<u32x4>;
  // --- the caller's outputs: ordinary stores, never read again in the launch
  { T::store2(global, u16{}) } -> std::same_as<void>;
  { T::store4(global, word) } -> std::same_as<void>;
  { T::store16(global, quad) } -> std::same_as<void>;
  // --- slots: payload that other blocks of this GPU read in this launch (device scope)
  { T::slot_load4(source) } -> std::same_as<u32>;
  { T::slot_load16(source) } -> std::same_as<u32x4>;
  { T::slot_store2(global, u16{}) } -> std::same_as<void>;
  { T::slot_store4(global, word) } -> std::same_as<void>;
  { T::slot_store16(global, quad) } -> std::same_as<void>;
  { T::drain_stores() } -> std::same_as<void>;  // waits for this wave's own stores (CDNA: vmcnt(0)); every storing
                                                // wave calls it before the consumer barrier that precedes an arrival
  // --- arrivals (one lane): counter adds `units` (release, device scope); words stores `tag` (relaxed, device scope)
  { T::arrive(global, word) } -> std::same_as<void>;
  { T::arrive_system(global, word) } -> std::same_as<void>;  // store of a word that a peer GPU polls
  { T::poll4(source) } -> std::same_as<u32>;     // acquire where the target's arrivals are counters, else relaxed
  { T::poll16(source) } -> std::same_as<u32x4>;  // four words at once, as poll4
  // --- tagged words: 4 bytes of data with the epoch's low 32 bits above them, one 8-byte store
  { T::tagged_store(global, wide) } -> std::same_as<void>;       // to this GPU's own slot
  { T::tagged_store_peer(global, wide) } -> std::same_as<void>;  // to a mailbox, system scope
  { T::tagged_load2(source) } -> std::same_as<u32x4>;            // two words: {data, tag, data, tag}; each untorn
  // --- atomics on control words (system-wide failure record, exit count), one lane
  { T::fetch_add(global, word) } -> std::same_as<u32>;             // device scope, relaxed
  { T::compare_exchange(global, word, word) } -> std::same_as<u32>;  // returns the old value; system scope
  // --- time
  { T::clock_ns() } -> std::same_as<u64>;
  { T::pause() } -> std::same_as<void>;  // inside every polling loop
  { T::trace(word, word, word) } -> std::same_as<void>;  // layer, stage, tile now at work (simulator's reports)
  // --- the whole block, at the start and the end of a launch only (nothing may be in flight)
  { T::block_barrier() } -> std::same_as<void>;
  // --- the ring
  { T::ring_control_bytes(word) } -> std::same_as<u32>;
  { T::ring::init(ring_geometry{}) } -> std::same_as<void>;
  { typename T::ring{ring_geometry{}}.slot(word) } -> std::same_as<lds_address>;
  { ring.flush() } -> std::same_as<void>;
  { ring.drain() } -> std::same_as<void>;
  { ring.release(word, word) } -> std::same_as<void>;
  // --- the consumer group's barrier (T::consumer_waves waves; never the whole block's barrier on CDNA); constructed
  //     with the address of T::consumer_group::lds_bytes bytes of LDS that are zero at the launch's start; `group` lives in registers of each lane
  { group.sync() } -> std::same_as<void>;
};

}  // namespace monolayer
