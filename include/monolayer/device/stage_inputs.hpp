// Which inputs the stages of a program declare, and how a block prepares those that a stage wants: once for all that are
// alike, so that their instructions stand in the kernel once.
#pragma once

#include <type_traits>
#include <utility>

#include "monolayer/device/inputs.hpp"
#include "monolayer/device/shared_code.hpp"

namespace monolayer::detail {

/// The different inputs of a program's stages, and whether a stage's input is or contains one of them.
template <class... Inputs>
struct input_set {
  template <class Input>
  static constexpr bool has = (std::is_same_v<Input, Inputs> || ...);
  template <class Input>
  using with = input_set<Inputs..., Input>;
};
template <class Set, class Input>
struct add_input {
  using type = std::conditional_t<Set::template has<Input>, Set, typename Set::template with<Input>>;
};
template <class Set>
struct add_input<Set, inputs::none> {
  using type = Set;
};
template <class Set, class First, class Second>
struct add_input<Set, inputs::both<First, Second>>
    : add_input<typename add_input<Set, First>::type, Second> {};

template <class Set>
constexpr Set inputs_of(code_list<>) {
  return {};
}
template <class Set, class Code, class... Codes>
constexpr auto inputs_of(code_list<Code, Codes...>) {
  return inputs_of<typename add_input<Set, typename Code::input>::type>(code_list<Codes...>{});
}

template <class... Inputs>
constexpr int most_normed_columns() {
  int most = 0;
  const auto look = [&]<class Input>(const Input*) {
    if constexpr (normed<Input>) most = Input::normed_columns > most ? Input::normed_columns : most;
  };
  (look(static_cast<const Inputs*>(nullptr)), ...);
  return most;
}
/// Takes the source of a norm's rows from the input that is wanted.
template <class Input, class Block>
MONOLAYER_DEVICE void choose_source(const Block& b, bool wanted, inputs::norm_source& from) {
  if constexpr (normed<Input>)
    if (wanted) from = Input::source(b);
}
/// Prepares what is wanted of the inputs that are like Input, where Input, number Number of all, is the first of them.
template <class Input, int Number, class Block, int... Numbers, class... Inputs>
MONOLAYER_DEVICE bool prepare_alike(Block& b, u32 wanted, std::integer_sequence<int, Numbers...>, input_set<Inputs...>) {
  constexpr u32 all = u32(all_alike<Input, Inputs...>());
  if constexpr (!lowest(all, Number)) return true;
  wanted &= all;
  if (wanted == 0) return true;
  if constexpr (normed<Input>) {
    inputs::norm_source from{};
    (choose_source<Inputs>(b, (wanted >> Numbers & 1) != 0, from), ...);
    return inputs::prepare_normed<most_normed_columns<Inputs...>()>(b, from);
  } else {
    return Input::prepare(b);
  }
}
template <class Block, int... Numbers, class... Inputs>
MONOLAYER_DEVICE bool prepare_wanted([[maybe_unused]] Block& b, [[maybe_unused]] u32 wanted,
                                     [[maybe_unused]] std::integer_sequence<int, Numbers...> numbers,
                                     [[maybe_unused]] input_set<Inputs...> all) {
  return (prepare_alike<Inputs, Numbers>(b, wanted, numbers, all) && ...);
}

/// By code: which of a program's inputs it has.
template <int Count>
struct input_rows {
  u32 of[Count];
};
template <class... Codes, class... Inputs>
constexpr input_rows<sizeof...(Codes)> inputs_by_code(code_list<Codes...>, input_set<Inputs...>) {
  static_assert(sizeof...(Codes) <= 256 && sizeof...(Inputs) <= 16);  // as stage_head holds them
  const auto of = []<class Code>(const Code*) {
    using own_inputs = typename add_input<input_set<>, typename Code::input>::type;
    return u32(bits_of(own_inputs::template has<Inputs>...));
  };
  return {{of(static_cast<const Codes*>(nullptr))...}};
}
template <class P>
MONOLAYER_TABLE auto input_table = inputs_by_code(typename P::codes{}, inputs_of<input_set<>>(typename P::codes{}));

template <class Block, class... Inputs>
MONOLAYER_DEVICE bool prepare_inputs(Block& b, u32 wanted, input_set<Inputs...> all) {
  if (wanted == 0) return true;
  return prepare_wanted(b, wanted, std::make_integer_sequence<int, int(sizeof...(Inputs))>{}, all);
}

}  // namespace monolayer::detail
