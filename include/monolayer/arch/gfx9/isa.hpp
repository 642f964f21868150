// The instructions of CDNA 3 and 4 that this library uses by name: scoped global accesses, LDS by byte
// offset, load-to-LDS, wave operations. Nothing above this file contains assembly or an amdgcn builtin, but
// for the matrix and conversion instructions of one chip.
//
// How memory is accessed, and why (read off clang 22's code; tools/audit.py and tests/gpu/audit_cases hold
// it):
// - Pointers are cast to the global address space. Else clang emits flat_*, which count on lgkmcnt too.
// - sc1 (device scope) without fences. Relaxed agent atomics give it for 2, 4 and 8 bytes. 16 bytes have no
//   atomic: stores are assembly; loads are raw buffer loads, for which the compiler waits itself, so many can
//   be in flight.
// - A relaxed access is no barrier for the compiler. Those that order something carry a "memory" clobber.
// - Constant inputs are read in the constant address space: scalar loads where they are uniform.
// - LDS words that other waves poll are accessed in assembly, waits included: clang puts vmcnt(0) before C++
//   accesses of LDS in a wave with load-to-LDS outstanding.
// - tools/audit.py finds two places by markers: `s_nop 0xa100` directly before the store of an arrival,
//   `s_nop 0xd100` directly before a vmcnt(0) that the producer means. s_nop looks at its low 4 bits only.
//
// Outside of a device pass for an AMD chip the functions do nothing: host code may name a target and use its
// layouts.
#pragma once

#if defined(__HIPCC__)
#include <hip/hip_runtime.h>
#endif

#include "monolayer/arch/target.hpp"

#if defined(__HIP_DEVICE_COMPILE__) && defined(__AMDGCN__)
#define MONOLAYER_AMD_DEVICE 1
#else
#define MONOLAYER_AMD_DEVICE 0
#endif

namespace monolayer::gfx9::isa {

#if MONOLAYER_AMD_DEVICE

using vector2 = u32 __attribute__((ext_vector_type(2)));
using vector4 = u32 __attribute__((ext_vector_type(4)));
template <class T>
using global_pointer = __attribute__((address_space(1))) T*;
template <class T>
using lds_pointer = __attribute__((address_space(3))) T*;

template <class T>
MONOLAYER_DEVICE global_pointer<T> global(void* p) {
  return (global_pointer<T>)p;
}
template <class T>
MONOLAYER_DEVICE global_pointer<const T> global(const void* p) {
  return (global_pointer<const T>)p;
}
MONOLAYER_DEVICE u32 uniform(u32 x) { return __builtin_amdgcn_readfirstlane(x); }
MONOLAYER_DEVICE u64 uniform(u64 x) { return uniform(u32(x)) | u64(uniform(u32(x >> 32))) << 32; }

/// The same pointer to constant memory, the same in all lanes, through a register that the compiler cannot
/// see behind.
MONOLAYER_DEVICE int opaque(int x) {
  x = int(uniform(u32(x)));
  asm volatile("" : "+s"(x));
  return x;
}
/// The number in a vector register: a wave has 512 of those and only 102 scalar ones.
MONOLAYER_DEVICE int park(int x) {
  asm volatile("" : "+v"(x));
  return x;
}
MONOLAYER_DEVICE const void* opaque(const void* p) {
  auto hidden = (__attribute__((address_space(4))) const void*)uniform(reinterpret_cast<u64>(p));
  asm volatile("" : "+s"(hidden));
  return (const void*)hidden;
}

// --- identities
/// Opaque at each use: what follows from the thread's number (masks of lanes, addresses) is cheap to find
/// again, and the compiler would otherwise compute it all before the loop over layers and hold it in scalar
/// registers.
MONOLAYER_DEVICE u32 thread() {
  u32 x = __builtin_amdgcn_workitem_id_x();
  asm volatile("" : "+v"(x));
  return x;
}
MONOLAYER_DEVICE u32 block() { return __builtin_amdgcn_workgroup_id_x(); }
MONOLAYER_DEVICE u32 blocks() {
  auto arguments = (__attribute__((address_space(4))) const u32*)__builtin_amdgcn_implicitarg_ptr();
  asm volatile("" : "+s"(arguments));  // as thread()
  return arguments[0];
}

// --- LDS
/// A kernel of this library has no LDS variables, so its dynamic LDS starts at 0 and offsets are addresses
/// (the audit checks group_segment_fixed_size). Offsets from a variable would be sums that the compiler
/// makes early and holds in scalar registers.
template <class T>
MONOLAYER_DEVICE lds_pointer<T> lds(lds_address at) {
  return (lds_pointer<T>)at;
}
MONOLAYER_DEVICE u32 flag_read(lds_address at) {
  u32 value;
  asm volatile("ds_read_b32 %0, %1\n\ts_waitcnt lgkmcnt(0)" : "=v"(value) : "v"(lds<u8>(at)) : "memory");
  return value;
}
/// After this wave's earlier LDS accesses.
MONOLAYER_DEVICE void flag_write(lds_address at, u32 value) {
  asm volatile("s_waitcnt lgkmcnt(0)\n\tds_write_b32 %0, %1" : : "v"(lds<u8>(at)), "v"(value) : "memory");
}
/// After this wave's earlier LDS accesses: what it has read may be overwritten, what it wrote may be read.
MONOLAYER_DEVICE void flag_add(lds_address at, u32 value) {
  asm volatile("s_waitcnt lgkmcnt(0)\n\tds_add_u32 %0, %1" : : "v"(lds<u8>(at)), "v"(value) : "memory");
}

// --- loads that other blocks' sc1 stores feed
/// 16 bytes through a descriptor based 2 GiB below the first active lane's address: the active lanes'
/// addresses must lie within 2 GiB of each other. Aux is 16 for sc1, 17 for sc0 sc1.
template <int Aux>
MONOLAYER_DEVICE u32x4 buffer_load16(const void* p) {
  const u64 address = reinterpret_cast<u64>(p);
  u64 base = uniform(address);
  asm volatile("" : "+s"(base));  // descriptors are made one after the other: each takes four scalar registers
  base -= 0x80000000u;
  const auto descriptor =
      __builtin_amdgcn_make_buffer_rsrc(reinterpret_cast<void*>(base), 0, 0xffffffffu, 0x27000);
  return __builtin_bit_cast(
      u32x4, __builtin_amdgcn_raw_buffer_load_b128(descriptor, u32(address) - u32(base), 0, Aux));
}
/// 16 bytes at base + offset; base is the same in all lanes.
template <int Aux>
MONOLAYER_DEVICE u32x4 buffer_load16(const void* base, u32 offset) {
  u64 from = uniform(reinterpret_cast<u64>(base));
  asm volatile("" : "+s"(from));
  const auto descriptor = __builtin_amdgcn_make_buffer_rsrc(reinterpret_cast<void*>(from), 0, 0xffffffffu, 0x27000);
  return __builtin_bit_cast(u32x4, __builtin_amdgcn_raw_buffer_load_b128(descriptor, offset, 0, Aux));
}
template <class T>
MONOLAYER_DEVICE T load_agent(const void* p) {
  return __hip_atomic_load(global<T>(p), __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
MONOLAYER_DEVICE void compiler_barrier() { asm volatile("" : : : "memory"); }

// --- stores for other blocks and GPUs
template <class T>
MONOLAYER_DEVICE void store_agent(void* p, T value) {
  __hip_atomic_store(global<T>(p), value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
template <class T>
MONOLAYER_DEVICE void store_system(void* p, T value) {
  __hip_atomic_store(global<T>(p), value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
}
/// s_nop: the data registers of a store wider than 8 bytes may be written one wait state later.
MONOLAYER_DEVICE void store16_agent(void* p, u32x4 value) {
  asm volatile("global_store_dwordx4 %0, %1, off sc1\n\ts_nop 0"
               :
               : "v"(global<u8>(p)), "v"(__builtin_bit_cast(vector4, value))
               : "memory");
}
MONOLAYER_DEVICE void arrival_store_agent(void* p, u32 value) {
  asm volatile("s_nop 0xa100\n\tglobal_store_dword %0, %1, off sc1"
               :
               : "v"(global<u8>(p)), "v"(value)
               : "memory");
}
MONOLAYER_DEVICE void arrival_store_system(void* p, u32 value) {
  asm volatile("s_nop 0xa100\n\tglobal_store_dword %0, %1, off sc0 sc1"
               :
               : "v"(global<u8>(p)), "v"(value)
               : "memory");
}
MONOLAYER_DEVICE void wait_stores() { asm volatile("s_waitcnt vmcnt(0)" : : : "memory"); }

MONOLAYER_DEVICE u32 fetch_add_agent(void* p, u32 value) {
  return __hip_atomic_fetch_add(global<u32>(p), value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
MONOLAYER_DEVICE u32 compare_exchange_system(void* p, u32 expected, u32 desired) {
  __hip_atomic_compare_exchange_strong(global<u32>(p), &expected, desired, __ATOMIC_RELAXED, __ATOMIC_RELAXED,
                                       __HIP_MEMORY_SCOPE_SYSTEM);
  return expected;
}

// --- plain accesses
/// Memory that does not change in the launch. In the constant address space the compiler may use scalar loads
/// where the address is the same in all lanes, which matters in the producer: vector loads would queue behind
/// its copies.
template <class T>
MONOLAYER_DEVICE T constant_load(const void* p) {
  return *(__attribute__((address_space(4))) const T*)p;
}
MONOLAYER_DEVICE u32 plain_load4(const void* p) { return constant_load<u32>(p); }
MONOLAYER_DEVICE u32x2 plain_load8(const void* p) {
  return __builtin_bit_cast(u32x2, constant_load<vector2>(p));
}
MONOLAYER_DEVICE u32x4 plain_load16(const void* p) {
  return __builtin_bit_cast(u32x4, constant_load<vector4>(p));
}
template <class T>
MONOLAYER_DEVICE void plain_store(void* p, T value) {
  *global<T>(p) = value;
}
MONOLAYER_DEVICE void plain_store16(void* p, u32x4 value) {
  *global<vector4>(p) = __builtin_bit_cast(vector4, value);
}
template <class T>
MONOLAYER_DEVICE T lds_load(lds_address at) {
  if constexpr (sizeof(T) == 4) {
    return *lds<const u32>(at);
  } else if constexpr (sizeof(T) == 8) {
    return __builtin_bit_cast(T, *lds<const vector2>(at));
  } else {
    return __builtin_bit_cast(T, *lds<const vector4>(at));
  }
}
template <class T>
MONOLAYER_DEVICE void lds_store(lds_address at, T value) {
  if constexpr (sizeof(T) <= 4) {
    *lds<T>(at) = value;
  } else {
    *lds<vector4>(at) = __builtin_bit_cast(vector4, value);
  }
}

MONOLAYER_DEVICE u32 lds_fetch_add(lds_address at, u32 value) {
  return __hip_atomic_fetch_add(lds<u32>(at), value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP);
}

// --- load-to-LDS: lane l copies LaneBytes from source + Offset + l * LaneBytes to at + Offset + l *
// LaneBytes. The source and `at` are the same in all lanes; lanes that are off copy nothing.
template <u32 LaneBytes, u32 Offset>
MONOLAYER_DEVICE void load_to_lds(const void* source, u32 lane, lds_address at) {
  const auto from = (global_pointer<u8>)reinterpret_cast<u64>(source) + lane * LaneBytes;
#if defined(__gfx950__)
  static_assert(LaneBytes == 16, "this ring belongs to gfx942");
  __builtin_amdgcn_global_load_lds(from, lds<u8>(at), 16, Offset, 0);
#else
  static_assert(LaneBytes == 4, "this ring belongs to gfx950");
  __builtin_amdgcn_global_load_lds(from, lds<u8>(at), 4, Offset, 0);
#endif
}
/// Waits until at most Count of this wave's vector memory operations are outstanding.
template <u32 Count>
MONOLAYER_DEVICE void wait_loads() {
  if constexpr (Count == 0) {
    asm volatile("s_nop 0xd100\n\ts_waitcnt vmcnt(0)" : : : "memory");
  } else {
    asm volatile("s_waitcnt vmcnt(%0)" : : "n"(Count) : "memory");
  }
}

// --- waves
MONOLAYER_DEVICE u32 bpermute(u32 lane, u32 value) {
  return u32(__builtin_amdgcn_ds_bpermute(int(lane * 4), int(value)));
}
template <int Control>
MONOLAYER_DEVICE u32 dpp(u32 value) {
  return u32(__builtin_amdgcn_update_dpp(0, int(value), Control, 0xf, 0xf, true));
}
MONOLAYER_DEVICE u32 read_lane(u32 value, u32 lane) {
  return u32(__builtin_amdgcn_readlane(int(value), int(lane)));
}
MONOLAYER_DEVICE u64 ballot(bool predicate) { return __builtin_amdgcn_ballot_w64(predicate); }
MONOLAYER_DEVICE void wave_barrier() {
  compiler_barrier();
  __builtin_amdgcn_wave_barrier();
}
MONOLAYER_DEVICE u32 multiply_high(u32 a, u32 b) { return u32(u64(a) * b >> 32); }
MONOLAYER_DEVICE u32 permute_bytes(u32 high, u32 low, u32 selector) {
  return __builtin_amdgcn_perm(high, low, selector);
}

// --- the block, the clock
MONOLAYER_DEVICE void block_barrier() {
  asm volatile("s_waitcnt vmcnt(0) lgkmcnt(0)" : : : "memory");
  __builtin_amdgcn_s_barrier();
  compiler_barrier();
}
MONOLAYER_DEVICE void sleep() { __builtin_amdgcn_s_sleep(1); }  // 64 clocks or less
MONOLAYER_DEVICE void yield() { __builtin_amdgcn_s_sleep(0); }
MONOLAYER_DEVICE u64 real_time() { return __builtin_amdgcn_s_memrealtime(); }  // 100 MHz

#else  // names only

MONOLAYER_DEVICE u32 uniform(u32 x) { return x; }
MONOLAYER_DEVICE u64 uniform(u64 x) { return x; }
MONOLAYER_DEVICE int park(int x) { return x; }
MONOLAYER_DEVICE const void* opaque(const void* p) { return p; }
MONOLAYER_DEVICE int opaque(int x) { return x; }
MONOLAYER_DEVICE u32 thread() { return 0; }
MONOLAYER_DEVICE u32 block() { return 0; }
MONOLAYER_DEVICE u32 blocks() { return 1; }
MONOLAYER_DEVICE u32 flag_read(lds_address) { return 0; }
MONOLAYER_DEVICE void flag_write(lds_address, u32) {}
MONOLAYER_DEVICE void flag_add(lds_address, u32) {}
template <int Aux>
MONOLAYER_DEVICE u32x4 buffer_load16(const void*) {
  return {};
}
template <int Aux>
MONOLAYER_DEVICE u32x4 buffer_load16(const void*, u32) {
  return {};
}
template <class T>
MONOLAYER_DEVICE T load_agent(const void*) {
  return {};
}
MONOLAYER_DEVICE void compiler_barrier() {}
template <class T>
MONOLAYER_DEVICE void store_agent(void*, T) {}
template <class T>
MONOLAYER_DEVICE void store_system(void*, T) {}
MONOLAYER_DEVICE void store16_agent(void*, u32x4) {}
MONOLAYER_DEVICE void arrival_store_agent(void*, u32) {}
MONOLAYER_DEVICE void arrival_store_system(void*, u32) {}
MONOLAYER_DEVICE void wait_stores() {}
MONOLAYER_DEVICE u32 fetch_add_agent(void*, u32) { return 0; }
MONOLAYER_DEVICE u32 compare_exchange_system(void*, u32, u32) { return 0; }
MONOLAYER_DEVICE u32 plain_load4(const void*) { return 0; }
MONOLAYER_DEVICE u32x2 plain_load8(const void*) { return {}; }
MONOLAYER_DEVICE u32x4 plain_load16(const void*) { return {}; }
template <class T>
MONOLAYER_DEVICE void plain_store(void*, T) {}
MONOLAYER_DEVICE void plain_store16(void*, u32x4) {}
template <class T>
MONOLAYER_DEVICE T lds_load(lds_address) {
  return {};
}
template <class T>
MONOLAYER_DEVICE void lds_store(lds_address, T) {}
MONOLAYER_DEVICE u32 lds_fetch_add(lds_address, u32) { return 0; }
template <u32 LaneBytes, u32 Offset>
MONOLAYER_DEVICE void load_to_lds(const void*, u32, lds_address) {}
template <u32 Count>
MONOLAYER_DEVICE void wait_loads() {}
MONOLAYER_DEVICE u32 bpermute(u32, u32 value) { return value; }
template <int Control>
MONOLAYER_DEVICE u32 dpp(u32 value) {
  return value;
}
MONOLAYER_DEVICE u32 read_lane(u32 value, u32) { return value; }
MONOLAYER_DEVICE u64 ballot(bool) { return 0; }
MONOLAYER_DEVICE void wave_barrier() {}
MONOLAYER_DEVICE u32 multiply_high(u32 a, u32 b) { return u32(u64(a) * b >> 32); }
MONOLAYER_DEVICE u32 permute_bytes(u32, u32, u32) { return 0; }
MONOLAYER_DEVICE void block_barrier() {}
MONOLAYER_DEVICE void sleep() {}
MONOLAYER_DEVICE void yield() {}
MONOLAYER_DEVICE u64 real_time() { return 0; }

#endif

}  // namespace monolayer::gfx9::isa
