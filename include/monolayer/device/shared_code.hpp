// The codes of a program, and what several codes or inputs have in common: its instructions stand in the kernel once,
// because instruction caches are small (64 KiB on CDNA; 32 KiB an SM and 128 KiB a few SMs on an H200).
#pragma once

#include <type_traits>
#include <utility>

#include "monolayer/arch/target.hpp"
#include "monolayer/core/types.hpp"

namespace monolayer {

/// The different codes of a program's stages, which its table of stages numbers.
template <class... Codes>
struct code_list {
  static constexpr int count = sizeof...(Codes);
  /// The largest chunk that one of them streams: a program's `largest_chunk`.
  static constexpr u32 largest_chunk = [] {
    u32 most = 0;
    const auto look = [&]<class Code>(const Code*) {
      if constexpr (!std::is_void_v<typename Code::weights>)
        if (Code::weights::chunk_bytes > most) most = Code::weights::chunk_bytes;
    };
    (look(static_cast<const Codes*>(nullptr)), ...);
    return most;
  }();
};

namespace detail {

/// Calls f.template operator()<code number `code` of the program>().
template <class F, int... Numbers, class... Codes>
MONOLAYER_DEVICE void with_code(int code, F f, std::integer_sequence<int, Numbers...>, code_list<Codes...>) {
  static_cast<void>(((code == Numbers && (f.template operator()<Codes>(), true)) || ...));
}
template <class P, class F>
MONOLAYER_DEVICE void with_code(int code, F f) {
  with_code(code, f, std::make_integer_sequence<int, P::codes::count>{}, typename P::codes{});
}

/// A code that is one product with the whole staged rows (pipeline.hpp).
template <class Code>
concept projecting = requires { typename Code::projects; };
/// An input that is rows of memory under an RMSNorm (inputs.hpp).
template <class Input>
concept normed = requires { Input::normed_columns; };

/// Bit i says what flag i says.
template <class... Flags>
constexpr u64 bits_of(Flags... flags) {
  u64 bits = 0, bit = 1;
  ((bits |= flags ? bit : 0, bit <<= 1), ...);
  return bits;
}

template <class A, class B>
inline constexpr bool alike = std::is_same_v<A, B>;
template <projecting A, projecting B>
inline constexpr bool alike<A, B> = true;
template <normed A, normed B>
inline constexpr bool alike<A, B> = true;

/// Which of All are like One, as bits.
template <class One, class... All>
constexpr u64 all_alike() {
  return bits_of(alike<One, All>...);
}
/// Whether bit `number` is the lowest of these.
constexpr bool lowest(u64 bits, int number) { return (bits & ((u64(1) << number) - 1)) == 0; }

}  // namespace detail
}  // namespace monolayer
