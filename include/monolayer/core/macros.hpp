// Function decorations that let one source serve a HIP compiler, nvcc and a plain C++ compiler.
#pragma once

#if defined(__CUDACC__)
#define MONOLAYER_GPU_COMPILER 1
#define MONOLAYER_DEVICE __device__ __forceinline__
#define MONOLAYER_HOST_DEVICE __host__ __device__ __forceinline__
#define MONOLAYER_GLOBAL __global__
#define MONOLAYER_TABLE __constant__ const
#elif defined(__HIP__)
#define MONOLAYER_GPU_COMPILER 1
#define MONOLAYER_DEVICE __attribute__((device)) inline __attribute__((always_inline))
#define MONOLAYER_HOST_DEVICE __attribute__((host)) __attribute__((device)) inline __attribute__((always_inline))
#define MONOLAYER_GLOBAL __attribute__((global))
#define MONOLAYER_TABLE __attribute__((constant)) const
#else
#define MONOLAYER_GPU_COMPILER 0
#define MONOLAYER_DEVICE inline
#define MONOLAYER_HOST_DEVICE inline
#define MONOLAYER_GLOBAL
#define MONOLAYER_TABLE inline constexpr
#endif
#if defined(__clang__)
#define MONOLAYER_INLINED __attribute__((always_inline))
#else
#define MONOLAYER_INLINED
#endif
// MONOLAYER_INLINED: behind the parameters of a lambda that is long and must not become a call.
// MONOLAYER_TABLE: a table with a constant initialiser that device code indexes at run time, in constant memory.

// MONOLAYER_UNROLL: loops that must become straight code, because they index arrays that shall stay in registers.
// MONOLAYER_NO_UNROLL: loops whose bodies are large enough: unrolling them only costs instruction cache.
#if defined(__CUDACC__)
#define MONOLAYER_UNROLL _Pragma("unroll")
#define MONOLAYER_NO_UNROLL _Pragma("unroll 1")
#elif defined(__clang__)
#define MONOLAYER_UNROLL _Pragma("unroll")
#define MONOLAYER_NO_UNROLL _Pragma("clang loop unroll(disable)")
#else
#define MONOLAYER_UNROLL
#define MONOLAYER_NO_UNROLL
#endif
