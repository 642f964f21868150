// NVIDIA H100/H200 (sm_90a). Weights reach shared memory by bulk copies that mbarriers watch, become bf16 in
// registers and meet the activations in mma.sync.m16n8k16. Compile with nvcc for sm_90a; device code of this
// header reaches shared memory by byte offsets from the block's dynamic shared memory, of which it takes all.
//
// Order between blocks (PTX memory model): payload by relaxed stores, the consumers' bar.sync, one
// red.release.gpu; the waiter's ld.acquire.gpu by one lane, bar.sync, relaxed loads. Release and acquire are
// cumulative over the barrier, so a storing warp has nothing to drain. Relaxed gpu-scope loads are served by
// L2; no slot is ever read through ld.global.nc.
#pragma once

#if !defined(__CUDACC__)
#error \
    "monolayer/arch/sm90.hpp is for nvcc; packers and simulators include monolayer/arch/sm90/weight_bits.hpp"
#endif

#include <cuda_runtime.h>

#include "monolayer/arch/sm90/weight_bits.hpp"
#include "monolayer/arch/target.hpp"
#include "monolayer/arch/wave_layouts.hpp"
#include "monolayer/core/macros.hpp"

namespace monolayer {

struct sm90 : wave32_layout, sm90_weight_bits {
  // --- constants
  static constexpr const char* name = "sm_90a";
  static constexpr u32 lds_bytes = 227 * 1024;
  static constexpr u32 in_flight_bytes = 64 * 1024;
  static constexpr int mxfp4_largest_scale = 252;
  static constexpr bool few_scalars = false;  // uniform values that wait are better off in vector registers
  MONOLAYER_DEVICE static int opaque(int x) { return x; }
  MONOLAYER_DEVICE static int park(int x) { return x; }
  MONOLAYER_DEVICE static const void* opaque(const void* p) { return p; }  // arguments lie in constant memory
  // --- identities
  /// Opaque at each use: what follows from the thread's number is cheap to find again, and the compiler would otherwise
  /// compute it for all stages before the loop over layers and hold it in registers (20 of 128 for attention alone). The
  /// number itself stays in a register: to read the special register at each use costs a tile 0.2 us.
  MONOLAYER_DEVICE static u32 thread() {
    u32 x = threadIdx.x;
    asm volatile("" : "+r"(x));
    return x;
  }
  MONOLAYER_DEVICE static int lane() { return static_cast<int>(thread() % 32); }
  MONOLAYER_DEVICE static int wave() { return static_cast<int>(thread() / 32); }
  /// Volatile, or the compiler would read it once and hold it.
  MONOLAYER_DEVICE static int block() {
    int x;
    asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(x));
    return x;
  }
  MONOLAYER_DEVICE static int blocks() { return static_cast<int>(gridDim.x); }  // lies in constant memory
  MONOLAYER_DEVICE static int group_of_block(int) { return 0; }  // no clusters yet: the GPU is one group

  // --- matrix unit. Lane t of a row's four holds k = 8 t .. 8 t + 7; the instruction pairs k by its own
  // numbers, of
  //     which the two steps take words 0, 1 and 2, 3 of both operands alike.
  MONOLAYER_DEVICE static void mma(const fragment_a<2>& a, const fragment_b& b, fragment_d& d) {
    mma_step(d, a.v[0][0], a.v[1][0], a.v[0][1], a.v[1][1], b.v[0], b.v[1]);
    mma_step(d, a.v[0][2], a.v[1][2], a.v[0][3], a.v[1][3], b.v[2], b.v[3]);
  }

  // --- weights to bf16 (see weight_bits.hpp for the bit order)
  MONOLAYER_DEVICE static fragment_b widen_e2m1x8(u32 word, u32 /*scale*/) {
    const u32 last = ((word << 6) & e2m1_last_low) | ((word >> 2) & e2m1_last_high);
    return {{word & e2m1_mask, (word << 4) & e2m1_mask, rotate_left(word, 10) & e2m1_mask, last}};
  }
  MONOLAYER_DEVICE static fragment_b widen_e4m3x8(u32x2 words) {
    fragment_b wide;
    for (int i = 0; i < 2; ++i) {
      const u32 word = words.v[i];
      wide.v[2 * i] = word & e4m3_mask;
      wide.v[2 * i + 1] = (rotate_left(word, 28) & e4m3_last_high) | ((word << 4) & e4m3_last_low);
    }
    return wide;
  }

  // --- wave primitives
  MONOLAYER_DEVICE static u32 shuffle_xor(u32 value, int mask) {
    return __shfl_xor_sync(all_lanes, value, mask);
  }
  MONOLAYER_DEVICE static u64 ballot(bool vote) { return __ballot_sync(all_lanes, vote); }
  MONOLAYER_DEVICE static u32 wave_max(u32 value) { return __reduce_max_sync(all_lanes, value); }
  MONOLAYER_DEVICE static u32 wave_min(u32 value) { return __reduce_min_sync(all_lanes, value); }
  MONOLAYER_DEVICE static void wave_sync() { __syncwarp(); }

  // --- LDS. Plain C++ accesses, which compile to LDS and STS: the compiler may order and merge them between
  // barriers.
  MONOLAYER_DEVICE static u32 lds_load4(lds_address at) { return *lds<const u32>(at); }
  MONOLAYER_DEVICE static u32x2 lds_load8(lds_address at) {
    const uint2 value = *lds<const uint2>(at);
    return {{value.x, value.y}};
  }
  MONOLAYER_DEVICE static u32x4 lds_load16(lds_address at) { return from(*lds<const uint4>(at)); }
  MONOLAYER_DEVICE static void lds_store1(lds_address at, u8 value) { *lds<u8>(at) = value; }
  MONOLAYER_DEVICE static void lds_store2(lds_address at, u16 value) { *lds<u16>(at) = value; }
  MONOLAYER_DEVICE static void lds_store4(lds_address at, u32 value) { *lds<u32>(at) = value; }
  MONOLAYER_DEVICE static void lds_store16(lds_address at, u32x4 value) { *lds<uint4>(at) = to(value); }
  MONOLAYER_DEVICE static u32 lds_fetch_add(lds_address at, u32 value) { return atomicAdd(lds<u32>(at), value); }
  /// Releases the calling lane's earlier stores; where other lanes stored too, wave_sync() goes before it.
  MONOLAYER_DEVICE static void lds_flag_store(lds_address at, u32 value) {
    asm volatile("st.release.cta.shared::cta.u32 [%0], %1;" ::"r"(shared(at)), "r"(value) : "memory");
  }
  MONOLAYER_DEVICE static u32 lds_flag_load(lds_address at) {
    u32 value;
    asm volatile("ld.acquire.cta.shared::cta.u32 %0, [%1];" : "=r"(value) : "r"(shared(at)) : "memory");
    return value;
  }
  MONOLAYER_DEVICE static u32 lds_flag_load_own(lds_address at) { return lds_flag_load(at); }

  // --- memory written before the launch. Not through ld.global.nc either: the last block of a launch moves
  // on state
  //     that all blocks have read at its start.
  MONOLAYER_DEVICE static u32 load4(const void* at) {
    u32 value;
    asm volatile("ld.global.u32 %0, [%1];" : "=r"(value) : "l"(at));
    return value;
  }
  MONOLAYER_DEVICE static u32x2 load8(const void* at) {
    u32x2 value;
    asm volatile("ld.global.v2.u32 {%0, %1}, [%2];" : "=r"(value.v[0]), "=r"(value.v[1]) : "l"(at));
    return value;
  }
  MONOLAYER_DEVICE static u32x4 load16(const void* at) {
    u32x4 value;
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(value.v[0]), "=r"(value.v[1]), "=r"(value.v[2]), "=r"(value.v[3])
                 : "l"(at));
    return value;
  }

  // --- the caller's outputs
  MONOLAYER_DEVICE static void store2(void* at, u16 value) {
    asm volatile("st.global.u16 [%0], %1;" ::"l"(at), "h"(value));
  }
  MONOLAYER_DEVICE static void store4(void* at, u32 value) {
    asm volatile("st.global.u32 [%0], %1;" ::"l"(at), "r"(value));
  }
  MONOLAYER_DEVICE static void store16(void* at, u32x4 value) {
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(at), "r"(value.v[0]), "r"(value.v[1]),
                 "r"(value.v[2]), "r"(value.v[3]));
  }

  // --- slots. The asm is volatile, so it keeps its place among barriers and polls (which are volatile as
  // well); it
  //     clobbers nothing, since no C++ access ever touches a slot. Loads are asynchronous: several may be in
  //     flight.
  MONOLAYER_DEVICE static u32 slot_load4(const void* at) {
    u32 value;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(at));
    return value;
  }
  MONOLAYER_DEVICE static u32x4 slot_load16(const void* at) {
    u32x4 value;
    asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(value.v[0]), "=r"(value.v[1]), "=r"(value.v[2]), "=r"(value.v[3])
                 : "l"(at));
    return value;
  }
  MONOLAYER_DEVICE static void slot_store2(void* at, u16 value) {
    asm volatile("st.relaxed.gpu.global.u16 [%0], %1;" ::"l"(at), "h"(value));
  }
  MONOLAYER_DEVICE static void slot_store4(void* at, u32 value) {
    asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(at), "r"(value));
  }
  MONOLAYER_DEVICE static void slot_store16(void* at, u32x4 value) {
    asm volatile("st.relaxed.gpu.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(at), "r"(value.v[0]),
                 "r"(value.v[1]), "r"(value.v[2]), "r"(value.v[3]));
  }
  MONOLAYER_DEVICE static void drain_stores() {
  }  // the arrival's release covers every store before the barrier

  // --- arrivals
  MONOLAYER_DEVICE static void arrive(void* at, u32 units) {
    asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(at), "r"(units) : "memory");
  }
  MONOLAYER_DEVICE static void arrive_system(void* at, u32 word) {
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(at), "r"(word) : "memory");
  }
  MONOLAYER_DEVICE static u32 poll4(const void* at) {
    u32 value;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
    return value;
  }
  /// For arrivals kept as words, which this target does not have: relaxed, so it orders no payload behind it.
  MONOLAYER_DEVICE static u32x4 poll16(const void* at) { return slot_load16(at); }

  // --- tagged words. Data and tag are one 8-byte element, which PTX never splits; a v2 load is two such
  // elements in
  //     no fixed order, each whole. So equality of the tag vouches for the data without acquire.
  MONOLAYER_DEVICE static void tagged_store(void* at, u64 word) {
    asm volatile("st.relaxed.gpu.global.b64 [%0], %1;" ::"l"(at), "l"(word));
  }
  MONOLAYER_DEVICE static void tagged_store_peer(void* at, u64 word) {
    asm volatile("st.relaxed.sys.global.b64 [%0], %1;" ::"l"(at), "l"(word));
  }
  MONOLAYER_DEVICE static u32x4 tagged_load2(const void* at) {
    u64 first, second;
    asm volatile("ld.relaxed.sys.global.v2.b64 {%0, %1}, [%2];" : "=l"(first), "=l"(second) : "l"(at));
    return {{static_cast<u32>(first), static_cast<u32>(first >> 32), static_cast<u32>(second),
             static_cast<u32>(second >> 32)}};
  }

  // --- atomics on control words
  MONOLAYER_DEVICE static u32 fetch_add(void* at, u32 amount) {
    u32 old;
    asm volatile("atom.relaxed.gpu.global.add.u32 %0, [%1], %2;"
                 : "=r"(old)
                 : "l"(at), "r"(amount)
                 : "memory");
    return old;
  }
  MONOLAYER_DEVICE static u32 compare_exchange(void* at, u32 expected, u32 desired) {
    u32 old;
    asm volatile("atom.relaxed.sys.global.cas.b32 %0, [%1], %2, %3;"
                 : "=r"(old)
                 : "l"(at), "r"(expected), "r"(desired)
                 : "memory");
    return old;
  }

  // --- time
  MONOLAYER_DEVICE static u64 clock_ns() {
    u64 time;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
    return time;
  }
  /// One lane of a block polls, and a poll's own round trip to L2 (about 0.3 us) paces it: 132 blocks ask L2
  /// for less than one sector a nanosecond. So the pause only gives issue slots away, 40 ns at most, and
  /// costs a hop nothing worth the name.
  MONOLAYER_DEVICE static void pause() { __nanosleep(20); }
  MONOLAYER_DEVICE static void trace(u32, u32, u32) {}

  /// LDS written before it may be ring memory after it: the fence orders those writes before bulk copies.
  MONOLAYER_DEVICE static void block_barrier() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
  }

  // --- the consumer group's barrier: hardware barrier 1 (0 is the block's), no LDS
  class consumer_group {
   public:
    static constexpr u32 lds_bytes = 0;
    MONOLAYER_DEVICE explicit consumer_group(lds_address) {}
    MONOLAYER_DEVICE void sync() { asm volatile("bar.sync 1, %0;" ::"n"(32 * consumer_waves) : "memory"); }
  };

  // --- the ring
  /// A full and an empty mbarrier a slot, and one word with the number of chunks started so far.
  MONOLAYER_HOST_DEVICE static constexpr u32 ring_control_bytes(u32 count) { return 16 * count + 16; }

  /// Phase p of a slot's mbarriers belongs to its p-th chunk. Parity tells a phase only from its neighbour, which is
  /// enough for the producer, who follows every phase. A consumer wave may skip chunks, even a whole round of the
  /// ring, so before it looks at a parity it makes sure that the chunk has been started: then the phase before is over.
  /// What has been started stands in one LDS word, which a wave reads only when it gets past what it knows.
  class ring {
   public:
    MONOLAYER_DEVICE explicit ring(const ring_geometry& geometry)
        : geometry_(geometry),
          reciprocal_(0xFFFFFFFFu / geometry.count + 1) {}

    /// By one wave; a block_barrier() must follow.
    MONOLAYER_DEVICE static void init(const ring_geometry& geometry) {
      for (u32 slot = lane(); slot < geometry.count; slot += 32) {
        init_mbarrier(geometry.control + 8 * slot, 1);
        init_mbarrier(geometry.control + 8 * (geometry.count + slot), ring_credits);
      }
      if (lane() == 0) lds_store4(geometry.control + 16 * geometry.count, 0);
      asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
      __syncwarp();
    }

    // --- producer
    /// Starts `count` chunks of `bytes` bytes each; every lane asks address_of(i) for its own chunks. Each lane starts its
    /// chunk as soon as the slot is free and the cap allows, so a run costs the warp a few turns, not one a chunk.
    template <class AddressOf, class Watch>
    MONOLAYER_DEVICE bool push_chunks(u32 count, u32 bytes, AddressOf address_of, Watch& watch) {
      for (u32 base = 0; base < count; base += 32) {
        const u32 first = started_, mine = first + lane();
        const u32 many = count - base < 32 ? count - base : 32;
        bool done = static_cast<u32>(lane()) >= many;
        const void* source = done ? nullptr : address_of(base + lane());
        const place at = place_of(mine);
        const bool capped = mine >= geometry_.cap;
        const place before = place_of(capped ? mine - geometry_.cap : 0);
        while (true) {
          // Chunks start in order: a later one could take a slot whose parity an earlier lane still asks for. Beyond the
          // cap a parity would belong to another round.
          const bool ready = done || (mine - started_ < geometry_.cap && test(empty_at(at.slot), at.round - 1) &&
                                      (!capped || test(full_at(before.slot), before.round)));
          const u32 waiting = __ballot_sync(all_lanes, !ready);
          const u32 able = waiting == 0 ? many : __ffs(waiting) - 1;
          if (!done && static_cast<u32>(lane()) < able) {
            start(source, bytes, at.slot);
            done = true;
          }
          __syncwarp();
          const u32 reached = first + able;
          if (reached != started_) {
            started_ = reached;
            if (lane() == 0) lds_flag_store(started_at(), started_);
            if (started_ == first + many) break;
          } else {
            if (__any_sync(all_lanes, watch.give_up())) return false;
          }
        }
      }
      return true;
    }
    template <class Watch>
    MONOLAYER_DEVICE bool push(const void* source, u32 bytes, Watch& watch) {
      return push_chunks(1, bytes, [source](u32) { return source; }, watch);
    }
    MONOLAYER_DEVICE void flush() {}
    MONOLAYER_DEVICE void drain() {
      // older chunks than the last `cap` have landed before those were started
      const u32 open = started_ < geometry_.cap ? started_ : geometry_.cap;
      for (u32 back = lane() + 1; back <= open; back += 32) {
        const place at = place_of(started_ - back);
        while (!try_wait(full_at(at.slot), at.round)) {
        }
      }
      __syncwarp();
    }

    // --- consumers. A wave asks for chunks in ascending order, so its place in the ring moves on by small steps.
    /// Whether the chunk has landed; one answer for all lanes. It may sleep a while for a chunk on its way.
    MONOLAYER_DEVICE bool landed(u32 chunk) {
      if (chunk >= known_started_) known_started_ = lds_flag_load(started_at());  // a lane's own answer
      slot_ += chunk - chunk_;
      chunk_ = chunk;
      const bool next_round = slot_ >= geometry_.count;
      slot_ -= next_round ? geometry_.count : 0;
      round_ += next_round ? 1 : 0;
      while (slot_ >= geometry_.count) {  // small rings only
        slot_ -= geometry_.count;
        ++round_;
      }
      const bool over = try_wait(full_at(slot_), round_);
      return __all_sync(all_lanes, over && chunk < known_started_) != 0;
    }
    template <class Watch>
    MONOLAYER_DEVICE bool wait_full(u32 chunk, Watch& watch) {
      while (!landed(chunk))
        if (__any_sync(all_lanes, watch.give_up())) return false;
      return true;
    }
    /// `chunk` is the one that landed() or wait_full() was last asked for.
    MONOLAYER_DEVICE lds_address slot(u32 /*chunk*/) const { return geometry_.slots + slot_ * geometry_.slot_bytes; }
    MONOLAYER_DEVICE void release(u32 /*chunk*/, u32 credits) const {
      __syncwarp();
      if (lane() == 0) {
        asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0], %1;" ::"r"(shared(empty_at(slot_))),
                     "r"(credits)
                     : "memory");
      }
    }

   private:
    struct place {
      u32 slot;
      u32 round;  // the chunk is its slot's round-th
    };
    /// Exact for chunk numbers below 2^26: the reciprocal is at most count / 2^32 too large, count at
    /// most 64.
    MONOLAYER_DEVICE place place_of(u32 chunk) const {
      const u32 round = __umulhi(chunk, reciprocal_);
      return {chunk - round * geometry_.count, round};
    }
    MONOLAYER_DEVICE lds_address full_at(u32 slot) const { return geometry_.control + 8 * slot; }
    MONOLAYER_DEVICE lds_address started_at() const { return geometry_.control + 16 * geometry_.count; }
    MONOLAYER_DEVICE lds_address empty_at(u32 slot) const {
      return geometry_.control + 8 * (geometry_.count + slot);
    }

    MONOLAYER_DEVICE void start(const void* source, u32 bytes, u32 slot) const {
      const u32 full = shared(full_at(slot));
      asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;" ::"r"(full), "r"(bytes)
                   : "memory");
      asm volatile(
          "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
              shared(geometry_.slots + slot * geometry_.slot_bytes)),
          "l"(source), "r"(bytes), "r"(full)
          : "memory");
    }

    MONOLAYER_DEVICE static void init_mbarrier(lds_address at, u32 arrivals) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared(at)), "r"(arrivals) : "memory");
    }
    /// Has the phase with this number's parity ended? May sleep a while first, woken by the phase's end.
    MONOLAYER_DEVICE static bool try_wait(lds_address at, u32 phase) {
      u32 ended;
      asm volatile(
          "{\n\t.reg .pred ended;\n\t"
          "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 ended, [%1], %2, %3;\n\t"
          "selp.u32 %0, 1, 0, ended;\n\t}"
          : "=r"(ended)
          : "r"(shared(at)), "r"(phase & 1u), "r"(longest_sleep_ns)
          : "memory");
      return ended != 0;
    }
    static constexpr u32 longest_sleep_ns = 20000;
    /// The same question without sleep.
    MONOLAYER_DEVICE static bool test(lds_address at, u32 phase) {
      u32 ended;
      asm volatile(
          "{\n\t.reg .pred ended;\n\t"
          "mbarrier.test_wait.parity.acquire.cta.shared::cta.b64 ended, [%1], %2;\n\t"
          "selp.u32 %0, 1, 0, ended;\n\t}"
          : "=r"(ended)
          : "r"(shared(at)), "r"(phase & 1u)
          : "memory");
      return ended != 0;
    }

    ring_geometry geometry_;
    u32 reciprocal_;
    u32 known_started_ = 0;                 // consumers
    u32 chunk_ = 0, slot_ = 0, round_ = 0;  // consumers: where the chunk asked for last lies
    u32 started_ = 0;        // producer, and all that follows
  };

 private:
  static constexpr u32 all_lanes = 0xFFFFFFFFu;

  MONOLAYER_DEVICE static unsigned char* lds_memory() {
    extern __shared__ __align__(1024) unsigned char monolayer_lds[];
    return monolayer_lds;
  }
  template <class Value>
  MONOLAYER_DEVICE static Value* lds(lds_address at) {
    return reinterpret_cast<Value*>(lds_memory() + at);
  }
  MONOLAYER_DEVICE static u32 shared(lds_address at) {
    return static_cast<u32>(__cvta_generic_to_shared(lds_memory())) + at;
  }
  MONOLAYER_DEVICE static u32x4 from(uint4 value) { return {{value.x, value.y, value.z, value.w}}; }
  MONOLAYER_DEVICE static uint4 to(u32x4 value) {
    return make_uint4(value.v[0], value.v[1], value.v[2], value.v[3]);
  }

  MONOLAYER_DEVICE static u32 rotate_left(u32 word, int by) { return __funnelshift_l(word, word, by); }
  MONOLAYER_DEVICE static void mma_step(fragment_d& d, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d.v[0]), "+f"(d.v[1]), "+f"(d.v[2]), "+f"(d.v[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  }
};

static_assert(target<sm90>);

}  // namespace monolayer
