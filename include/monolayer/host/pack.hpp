// Packing: checkpoint tensors to the byte order in which a target's kernels stream them (core/weight_layout.hpp).
// Each packed matrix carries a header; binding refuses one that was packed for another kernel.
#pragma once

#include <algorithm>
#include <bit>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "monolayer/core/weight_layout.hpp"
#include "monolayer/host/status.hpp"

namespace monolayer {

/// A matrix as a checkpoint stores it, row-major [rows][columns], and the window of it that this rank packs.
///   bf16: data u16; fp8: data e4m3fn bytes, `scales` f32 factors: fp8_block [ceil(rows/128)][ceil(columns/128)],
///   fp8_channel [rows]; fp8_steps [rows/16][ceil(columns/32)], or null where all are 1; mxfp4: data [rows][columns/2], low nibble = even column, `block_scales` e8m0
///   [rows][columns/32].
struct checkpoint_matrix {
  const void* data = nullptr;
  const float* scales = nullptr;
  const std::uint8_t* block_scales = nullptr;
  long rows = 0, columns = 0;
  long first_row = 0, first_column = 0;  // of the window
};

/// What packed weights are for.
struct packed_header {
  u64 magic = 0x6b63617072796c6dull;
  u32 layout_version = 1;
  u32 wave_size = 0;
  u32 format = 0;  // index in the order bf16, fp8_block, fp8_channel, mxfp4, fp8_steps
  u32 subtiles = 0;
  u32 features = 0, k = 0;  // of the window
  u32 count = 1;            // matrices one after another (experts)
  u32 ranks = 1, rank = 0;
  u64 bytes = 0;
  u64 checksum = 0;  // of the bytes; 0 when not computed

  friend bool operator==(const packed_header&, const packed_header&) = default;
};

template <class F>
constexpr u32 format_number() {
  if constexpr (is_mxfp4<F>) return 3;
  else if constexpr (F::piece_bytes == 16) return 0;
  else if constexpr (has_step_scale<F>) return 4;
  else return F::chunk_scale_bytes != 0 ? 2 : 1;
}

/// FNV-1a over 8-byte words: enough to notice a wrong or damaged buffer.
inline u64 checksum(std::span<const u8> bytes) {
  u64 h = 0xcbf29ce484222325ull;
  std::size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {
    u64 word;
    std::memcpy(&word, bytes.data() + i, 8);
    h = (h ^ word) * 0x100000001b3ull;
  }
  for (; i < bytes.size(); ++i) h = (h ^ bytes[i]) * 0x100000001b3ull;
  return h;
}

namespace detail {

template <class F>
status check_matrix(const checkpoint_matrix& m, long features, long k, const std::string& name) {
  auto number = [](long n) { return std::to_string(n); };
  if (m.data == nullptr) return error(error_code::bad_pointer, name + ".data", "null", "the matrix");
  if (m.first_row < 0 || m.first_column < 0)
    return error(error_code::bad_shape, name + " window",
                 "first row " + number(m.first_row) + ", first column " + number(m.first_column), "0 or more");
  if (m.first_row + features > m.rows)
    return error(error_code::bad_shape, name + ".rows", number(m.rows),
                 "at least " + number(m.first_row + features));
  if (m.first_column + k > m.columns)
    return error(error_code::bad_shape, name + ".columns", number(m.columns),
                 "at least " + number(m.first_column + k));
  if (has_sum_scale<F> && m.scales == nullptr)
    return error(error_code::bad_pointer, name + ".scales", "null", "f32 scales for " + std::string(F::name));
  if constexpr (has_sum_scale<F>) {
    const bool in_one_block = m.first_column / unit_k == (m.first_column + k - 1) / unit_k;
    if (F::chunk_scale_bytes == 0 && (m.first_row % tile_features != 0 || (m.first_column % unit_k != 0 && !in_one_block)))
      return error(error_code::bad_shape, name + " window",
                   "first row " + number(m.first_row) + ", first column " + number(m.first_column),
                   "multiples of 16 and 128: a scale block must not straddle a unit");
  }
  if constexpr (has_step_scale<F>) {
    if (m.first_row % tile_features != 0 || m.first_column % step_k != 0)
      return error(error_code::bad_shape, name + " window",
                   "first row " + number(m.first_row) + ", first column " + number(m.first_column),
                   "multiples of 16 and 32: a scale block must not straddle a step");
  }
  if constexpr (is_mxfp4<F>) {
    if (m.block_scales == nullptr)
      return error(error_code::bad_pointer, name + ".block_scales", "null", "e8m0 scales");
    if (m.columns % 32 != 0 || m.first_column % 32 != 0 || k % 32 != 0)
      return error(error_code::bad_shape, name + " columns",
                   number(m.columns) + " from " + number(m.first_column) + " for " + number(k),
                   "multiples of 32, the MX block");
  }
  return {};
}

/// The 8 codes of (row, k .. k + 7) as the checkpoint orders them; zeros past the window.
template <class F>
u64 codes8(const checkpoint_matrix& m, long row, long k, long limit, u64* high) {
  const long columns = m.columns, r = m.first_row + row, c = m.first_column + k;
  const u8* data = static_cast<const u8*>(m.data);
  u64 word = 0;
  const long count = limit - k < 8 ? (limit - k < 0 ? 0 : limit - k) : 8;
  if constexpr (F::piece_bytes == 16) {
    u64 both[2] = {};
    std::memcpy(both, data + (r * columns + c) * 2, std::size_t(count) * 2);
    *high = both[1];
    return both[0];
  } else if constexpr (F::piece_bytes == 8) {
    std::memcpy(&word, data + r * columns + c, std::size_t(count));
  } else {
    std::memcpy(&word, data + (r * columns + c) / 2, std::size_t(count + 1) / 2);
  }
  return word;
}

/// Writes one chunk's scales. Units past the window's K have neutral scales: their codes are zero.
template <class F, class Tile>
void pack_scales(u8* chunk, const checkpoint_matrix& m, long row0, int first_unit) {
  u8* to = chunk + Tile::scales_at;
  const long grid = (m.columns + 127) / 128;
  for (int u = 0; u < Tile::units_per_chunk; ++u) {
    const long k = long(first_unit + u) * unit_k;
    if constexpr (is_mxfp4<F>) {
      for (int i = 0; i < tile_features; ++i)
        for (int s = 0; s < steps_per_unit; ++s) {
          const long column = k + s * step_k;
          to[u * 64 + i * 4 + s] =
              column < Tile::k
                  ? m.block_scales[(m.first_row + row0 + i) * (m.columns / 32) + (m.first_column + column) / 32]
                  : u8(127);
        }
    } else if constexpr (has_sum_scale<F> && F::chunk_scale_bytes == 0) {
      const float scale = m.scales[(m.first_row + row0) / 128 * grid + (m.first_column + k) / 128];
      std::memcpy(to + u * 4, &scale, 4);
    } else if constexpr (has_step_scale<F>) {
      for (int s = 0; s < steps_per_unit; ++s) {
        const long column = k + s * step_k;
        const long at = (m.first_row + row0) / tile_features * ((m.columns + step_k - 1) / step_k) +
                        (m.first_column + column) / step_k;
        const float scale = m.scales != nullptr && column < Tile::k ? m.scales[at] : 1.0f;
        std::memcpy(to + u * F::scale_bytes + s * 4, &scale, 4);
      }
    }
  }
  if constexpr (F::chunk_scale_bytes != 0)
    std::memcpy(to, m.scales + m.first_row + row0, tile_features * sizeof(float));
}

/// What pack refuses in one matrix: shapes, windows that cut scale blocks, NaN codes in FP8, factors that are no numbers,
/// scales that the target cannot apply exactly.
template <class T, class F>
status look(const checkpoint_matrix& m, long features, long k, const std::string& name) {
  if (status s = check_matrix<F>(m, features, k, name); !s) return s;
  if constexpr (F::piece_bytes == 8) {
    for (long r = 0; r < features; ++r)
      for (long c = 0; c < k; ++c) {
        const u8 code = static_cast<const u8*>(m.data)[(m.first_row + r) * m.columns + m.first_column + c];
        if ((code & 0x7f) == 0x7f)
          return error(error_code::bad_value,
                       name + " at row " + std::to_string(r) + ", column " + std::to_string(c), "NaN", "a number");
      }
  }
  if constexpr (has_sum_scale<F>) {
    const auto finite = [](float x) { return (std::bit_cast<u32>(x) & 0x7f800000u) != 0x7f800000u; };
    const auto refuse = [&](long row, long column, float seen) {
      return error(error_code::bad_value, name + " scale of row " + std::to_string(row) + ", column " + std::to_string(column),
                   std::to_string(seen), "a finite number");
    };
    if constexpr (F::chunk_scale_bytes != 0) {
      for (long r = 0; r < features; ++r)
        if (const float s = m.scales[m.first_row + r]; !finite(s)) return refuse(r, 0, s);
    } else {
      const long grid = (m.columns + 127) / 128;
      for (long r = m.first_row / 128; r <= (m.first_row + features - 1) / 128; ++r)
        for (long c = m.first_column / 128; c <= (m.first_column + k - 1) / 128; ++c)
          if (const float s = m.scales[r * grid + c]; !finite(s))
            return refuse(std::max(r * 128 - m.first_row, 0l), std::max(c * 128 - m.first_column, 0l), s);
    }
  }
  if constexpr (is_mxfp4<F>) {
    for (long r = 0; r < features; ++r)
      for (long c = 0; c < k / 32; ++c) {
        const int e = m.block_scales[(m.first_row + r) * (m.columns / 32) + m.first_column / 32 + c];
        if (e > T::mxfp4_largest_scale)
          return error(error_code::bad_value,
                       name + " scale at row " + std::to_string(r) + ", block " + std::to_string(c),
                       "e8m0 " + std::to_string(e), "at most " + std::to_string(int(T::mxfp4_largest_scale)));
      }
  }
  return {};
}

inline status check_room(std::span<u8> to, u64 need, const std::string& name) {
  if (to.size() >= need) return {};
  return error(error_code::too_small, name + " buffer", std::to_string(to.size()) + " bytes", std::to_string(need));
}

/// Writes the chunks of one subtile: 16 features of the window from `row0` on.
template <class T, class Tile>
void write_subtile(u8* to, const checkpoint_matrix& m, long row0) {
  using F = typename Tile::format;
  for (int chunk = 0; chunk < Tile::chunks; ++chunk) {
    u8* at = to + u64(chunk) * Tile::chunk_bytes;
    std::memset(at, 0, Tile::chunk_bytes);
    const int first_unit = chunk * Tile::units_per_chunk;
    for (int u = 0; u < Tile::units_per_chunk; ++u)
      for (int s = 0; s < steps_per_unit; ++s)
        for (int lane = 0; lane < T::wave_size; ++lane)
          for (int h = 0; h < T::lane_rows; ++h) {
            const long k = long(first_unit + u) * unit_k + s * step_k + 8 * T::k_group(lane);
            u8* piece = at + u32(u) * Tile::unit_bytes + piece_offset<T, F>(lane, s, h);
            u64 high = 0;
            const u64 word = codes8<F>(m, row0 + T::a_row(lane, h), k, Tile::k, &high);
            if constexpr (F::piece_bytes == 16) {
              std::memcpy(piece, &word, 8);
              std::memcpy(piece + 8, &high, 8);
            } else if constexpr (F::piece_bytes == 8) {
              const u64 arranged = T::arrange_e4m3x8(word);
              std::memcpy(piece, &arranged, 8);
            } else {
              const u32 arranged = T::arrange_e2m1x8(u32(word));
              std::memcpy(piece, &arranged, 4);
            }
          }
    pack_scales<F, Tile>(at, m, row0, first_unit);
  }
}

/// Writes features of one matrix that are looked at already, Tile::subtiles * 16 neighbours a tile.
template <class T, class Tile>
void write_features(u8* to, const checkpoint_matrix& m, long features) {
  for (long sub = 0; sub < features / tile_features; ++sub)
    write_subtile<T, Tile>(to + u64(sub) * Tile::chunks * Tile::chunk_bytes, m, sub * tile_features);
}

}  // namespace detail

/// Packs `features` features of matrices m[0..Subtiles-1] (gate and up) into `to`, Tile::bytes a tile of 16 features. A
/// stage's k that is cut into `splits` ranges of Tile::k columns is packed range after range.
/// Errors: see detail::look; nothing is written then.
template <class T, class Tile>
status pack(std::span<u8> to, std::span<const checkpoint_matrix> m, long features, const std::string& name,
            int splits = 1) {
  using F = typename Tile::format;
  if (m.size() != std::size_t(Tile::subtiles))
    return error(error_code::bad_shape, name, std::to_string(m.size()) + " matrices", std::to_string(Tile::subtiles));
  if (features % tile_features != 0)
    return error(error_code::bad_shape, name + " features", std::to_string(features), "a multiple of 16");
  const long tiles = features / tile_features;  // of a range
  if (status s = detail::check_room(to, u64(splits) * u64(tiles) * Tile::bytes, name); !s) return s;
  // Look before writing: an error must leave `to` as it was.
  for (const checkpoint_matrix& one : m)
    if (status s = detail::look<T, F>(one, features, long(splits) * Tile::k, name); !s) return s;
  for (long tile = 0; tile < splits * tiles; ++tile)
    for (int sub = 0; sub < Tile::subtiles; ++sub) {
      checkpoint_matrix part = m[std::size_t(sub)];
      part.first_column += tile / tiles * Tile::k;
      detail::write_subtile<T, Tile>(to.data() + u64(tile) * Tile::bytes + u64(sub) * Tile::chunks * Tile::chunk_bytes,
                                     part, tile % tiles * tile_features);
    }
  return {};
}

/// The header that weights for `Tile` on target T must carry.
template <class T, class Tile>
packed_header header_for(long features, u32 count, u32 ranks, u32 rank) {
  packed_header h;
  h.wave_size = T::wave_size;
  h.format = format_number<typename Tile::format>();
  h.subtiles = Tile::subtiles;
  h.features = u32(features);
  h.k = Tile::k;
  h.count = count;
  h.ranks = ranks;
  h.rank = rank;
  h.bytes = u64(count) * u64(features / tile_features) * Tile::bytes;
  return h;
}

}  // namespace monolayer
