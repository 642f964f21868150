// The products of a program's projecting codes. All of them share their instructions: the matrix loop stands in the kernel
// once for each class of tiles, what follows it once. Their shapes come from a table, but for numbers on which those that
// meet in one place agree.
#pragma once

#include "monolayer/device/multiply.hpp"
#include "monolayer/device/shared_code.hpp"

namespace monolayer::detail {

/// Whether both multiply tiles of one class.
template <class A, class B>
inline constexpr bool multiply_alike = false;
template <projecting A, projecting B>
inline constexpr bool multiply_alike<A, B> =
    std::is_same_v<class_of_tile<typename A::projects>, class_of_tile<typename B::projects>>;

template <class T, class Code>
constexpr tile_shape shape_of_code() {
  if constexpr (!projecting<Code>)
    return {};
  else if constexpr (requires { Code::split_tiles; })
    return tile_shape::of<T, typename Code::projects>(u32(Code::staged_k), u32(Code::split_tiles));
  else
    return tile_shape::of<T, typename Code::projects>();
}
template <int Count>
struct shape_rows {
  tile_shape of[Count];
};
template <class T, class... Codes>
constexpr shape_rows<sizeof...(Codes)> shapes_of(code_list<Codes...>) {
  return {{shape_of_code<T, Codes>()...}};
}
/// By code.
template <class P, class T>
MONOLAYER_TABLE auto tile_shapes = shapes_of<T>(typename P::codes{});

/// One number of the shape of code number `code`, one of `Which`: a constant where these agree on it.
template <class P, class T, u64 Which, auto Member>
MONOLAYER_DEVICE auto shape_number(int code) {
  constexpr auto rows = shapes_of<T>(typename P::codes{});
  constexpr int first = [] {
    int i = 0;
    while ((Which >> i & 1) == 0) ++i;
    return i;
  }();
  constexpr auto value = rows.of[first].*Member;
  constexpr bool agree = [](const auto& all) {
    for (int i = first; i < P::codes::count; ++i)
      if ((Which >> i & 1) != 0 && all.of[i].*Member != value) return false;
    return true;
  }(rows);
  if constexpr (agree)
    return value;
  else
    return tile_shapes<P, T>.of[code].*Member;
}
template <class P, class T, u64 Which>
MONOLAYER_DEVICE tile_shape shape_among(int code) {
  using s = tile_shape;
  return {shape_number<P, T, Which, &s::subtiles>(code),    shape_number<P, T, Which, &s::chunks>(code),
          shape_number<P, T, Which, &s::shares>(code),      shape_number<P, T, Which, &s::whole_chunks>(code),
          shape_number<P, T, Which, &s::turn>(code),        shape_number<P, T, Which, &s::row_bytes>(code),
          shape_number<P, T, Which, &s::split_tiles>(code), shape_number<P, T, Which, &s::split_bytes>(code)};
}

template <class P, class Code, int Number, class Block, class... Codes>
MONOLAYER_DEVICE bool multiply_class(Block& b, int code, fragment_d& sum, u32& subtiles, u32& part,
                                     code_list<Codes...>) {
  if constexpr (projecting<Code>) {
    constexpr u64 all = bits_of(multiply_alike<Code, Codes>...);
    if constexpr (lowest(all, Number)) {
      if ((all >> code & 1) == 0) return false;
      const tile_shape shape = shape_among<P, typename Block::target, all>(code);
      staged_column rows = own_column(b, shape.row_bytes);
      if (shape.split_bytes != 0 && rows.stride != 0) rows.at += u32(b.tile) / shape.split_tiles * shape.split_bytes;
      subtiles = shape.subtiles, part = part_of_wave(b, shape.turn);
      multiply_tile<class_of_tile<typename Code::projects>>(b, shape, rows, part, sum);
      return true;
    }
  }
  return false;
}
/// Tile b.tile of projecting code number `code`.
template <class P, class Block, int... Numbers, class... Codes>
MONOLAYER_DEVICE void project_code(Block& b, int code, std::integer_sequence<int, Numbers...>, code_list<Codes...> codes) {
  fragment_d sum = {};
  u32 subtiles = 1, part = 0;
  static_cast<void>((multiply_class<P, Codes, Numbers>(b, code, sum, subtiles, part, codes) || ...));
  combine<projected_subtiles>(b, subtiles, part, sum,
          [&](int feature, int column, bool valid, float (&y)[projected_subtiles]) MONOLAYER_INLINED {
            const int tile = int(u32(b.tile));
            with_code<P>(code, [&]<class Code>() MONOLAYER_INLINED {
              if constexpr (projecting<Code>) Code::put(b, tile, feature, column, valid, y);
            });
          });
}

}  // namespace monolayer::detail
