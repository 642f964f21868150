// What several codes or inputs of a program have in common: its instructions stand in the kernel once, because the
// instruction cache is small (64 KiB on CDNA).
#pragma once

#include <type_traits>

#include "monolayer/arch/target.hpp"
#include "monolayer/core/types.hpp"

namespace monolayer::detail {

/// A code that is one product with the whole staged rows (pipeline.hpp).
template <class Code>
concept projecting = requires { typename Code::projects; };
/// An input that is rows of memory under an RMSNorm (inputs.hpp).
template <class Input>
concept normed = requires { Input::normed_k; };

template <class A, class B>
inline constexpr bool alike = std::is_same_v<A, B>;
template <projecting A, projecting B>
inline constexpr bool alike<A, B> = std::is_same_v<typename A::projects, typename B::projects>;
template <normed A, normed B>
inline constexpr bool alike<A, B> = A::normed_k == B::normed_k && A::padded_k == B::padded_k;

/// Which of All are like One, as bits.
template <class One, class... All>
constexpr u64 all_alike() {
  const bool like[] = {alike<One, All>...};
  u64 bits = 0;
  for (unsigned i = 0; i < sizeof...(All); ++i) bits |= u64(like[i]) << i;
  return bits;
}
/// Whether bit `number` is the lowest of these.
constexpr bool lowest(u64 bits, int number) { return (bits & ((u64(1) << number) - 1)) == 0; }

}  // namespace monolayer::detail
