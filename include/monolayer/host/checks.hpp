// Checks that the host side makes of many arguments.
#pragma once

#include <cstdint>
#include <string>

#include "monolayer/arch/target.hpp"
#include "monolayer/host/status.hpp"

namespace monolayer {

namespace detail {

inline status check_buffer(const char* name, const void* at, u64 seen, u64 wanted, u64 alignment) {
  if (at == nullptr) return error(error_code::bad_pointer, name, "null", std::to_string(wanted) + " bytes");
  if (reinterpret_cast<std::uintptr_t>(at) % alignment != 0)
    return error(error_code::bad_pointer, name, "an address that is " +
                 std::to_string(reinterpret_cast<std::uintptr_t>(at) % alignment) + " modulo " + std::to_string(alignment),
                 std::to_string(alignment) + "-byte alignment");
  if (seen < wanted)
    return error(error_code::too_small, name, std::to_string(seen) + " bytes", std::to_string(wanted) + " bytes");
  return {};
}

inline status check_range(const char* name, long long seen, long long low, long long high) {
  if (seen >= low && seen <= high) return {};
  return error(error_code::bad_value, name, std::to_string(seen),
               std::to_string(low) + ".." + std::to_string(high));
}

}  // namespace detail

}  // namespace monolayer
