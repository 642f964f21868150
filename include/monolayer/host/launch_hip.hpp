// Launching on a GPU through the HIP runtime (its names mean CUDA's runtime under nvcc).
#pragma once

#if defined(__CUDACC__)
#include "monolayer/arch/hip_on_cuda.hpp"
#include "monolayer/arch/sm90.hpp"
#else
#include <hip/hip_runtime.h>

#include "monolayer/arch/gfx942.hpp"
#include "monolayer/arch/gfx950.hpp"
#endif

#include "monolayer/device/kernel.hpp"
#include "monolayer/host/bind.hpp"

namespace monolayer {

/// The persistent kernel of program P for target T: blocks of plan<T, P>::threads threads, one a compute unit.
template <class T, class P>
__global__ void __launch_bounds__((T::consumer_waves + 1) * T::wave_size, 1) persistent_kernel(
    [[maybe_unused]] const launch_params p) {
#if defined(__HIP_DEVICE_COMPILE__)
  // Where the arguments are, without a copy of them on the stack.
  run_block<T, P>(*(const launch_params*)__builtin_amdgcn_kernarg_segment_ptr());
#else
  run_block<T, P>(p);
#endif
}

/// Lets the kernel use the target's LDS and tells what the current device offers it. Once a process and device.
template <class T, class P>
result<device_facts> prepare_device() {
  auto failed = [](const char* call, hipError_t e) {
    return error(error_code::device_failure, call, hipGetErrorString(e), "success");
  };
  const void* kernel = reinterpret_cast<const void*>(&persistent_kernel<T, P>);
  int device = 0;
  if (hipError_t e = hipGetDevice(&device); e != hipSuccess) return failed("hipGetDevice", e);
  if (hipError_t e = hipFuncSetAttribute(kernel, hipFuncAttributeMaxDynamicSharedMemorySize, int(T::lds_bytes));
      e != hipSuccess)
    return failed("hipFuncSetAttribute", e);
  device_facts facts;
  int blocks = 0;
  if (hipError_t e = hipOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, plan<T, P>::threads, T::lds_bytes);
      e != hipSuccess)
    return failed("hipOccupancyMaxActiveBlocksPerMultiprocessor", e);
  if (hipError_t e = hipDeviceGetAttribute(&facts.compute_units, hipDeviceAttributeMultiprocessorCount, device);
      e != hipSuccess)
    return failed("hipDeviceGetAttribute", e);
  facts.lds_bytes = T::lds_bytes;
  facts.resident_blocks = blocks * facts.compute_units;
  return facts;
}

/// Launches `blocks` blocks on `stream`: asynchronous, capturable, allocates nothing.
template <class T, class P>
status launch(const launch_params& p, int blocks, hipStream_t stream) {
  persistent_kernel<T, P><<<blocks, plan<T, P>::threads, p.lds_bytes, stream>>>(p);
  if (hipError_t e = hipGetLastError(); e != hipSuccess)
    return error(error_code::device_failure, "launch", hipGetErrorString(e), "success");
  return {};
}

}  // namespace monolayer
