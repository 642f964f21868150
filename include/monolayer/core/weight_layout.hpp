// Packed weights: one formula for the packer, the kernels and the tests.
//
// A matrix [features][k] is cut into tiles of 16 features. A tile is a run of units of 16 features x 128 k; units are
// gathered into chunks, the piece that a block's ring moves. One wave multiplies one unit, in four steps of 32 k. In
// a unit, a lane holds for step s and each of its rows h the 8 weights k = 32 s + 8 * k_group(lane) + 0..7 as one
// "piece" of 4, 8 or 16 bytes (MXFP4, FP8, bf16), and pieces are laid out so that a wave reads 16 bytes a lane,
// contiguously:
//     m = s * lane_rows + h,  n = 16 / piece_bytes
//     offset = (m / n) * 16 * wave_size + lane * 16 + (m % n) * piece_bytes
// A chunk holds the codes of its units, then their scales.
#pragma once

#include "monolayer/arch/target.hpp"

namespace monolayer {

inline constexpr int tile_features = 16;
inline constexpr int unit_k = 128;
inline constexpr int step_k = 32;
inline constexpr int steps_per_unit = unit_k / step_k;

/// Weight formats. Chunks are about 4 KiB, so that a rank of TP8 fills them too and a ring slot wastes nothing; the
/// producer starts several at once. piece_bytes: 8 weights of one feature; scale_bytes: a unit's scales; unit_limit: most units in a chunk.
struct bf16_weights {
  static constexpr const char* name = "bf16";
  static constexpr int piece_bytes = 16, scale_bytes = 0, chunk_scale_bytes = 0, unit_limit = 1;
};
/// e4m3fn with an f32 factor for each block of 128 x 128 (`weight_scale_inv` of Hugging Face checkpoints).
template <int Features, int K>
struct fp8_block {
  static_assert(Features == 128 && K == 128, "fp8_block: only blocks of 128 x 128 exist in checkpoints");
  static constexpr const char* name = "fp8_block<128, 128>";
  static constexpr int piece_bytes = 8, scale_bytes = 4, chunk_scale_bytes = 0, unit_limit = 2;
};
/// e4m3fn with an f32 factor for each feature. The 16 factors of a tile are repeated in each chunk.
struct fp8_channel {
  static constexpr const char* name = "fp8_channel";
  static constexpr int piece_bytes = 8, scale_bytes = 0, chunk_scale_bytes = 64, unit_limit = 2;
};
/// e4m3fn with an f32 factor for each 16 features x 32 k (`scale` [step] within a unit): what fp8_block becomes when a
/// matrix is transposed and its rows begin inside a block, as the heads of kv_b do. No checkpoint holds it.
struct fp8_steps {
  static constexpr const char* name = "fp8_steps";
  static constexpr int piece_bytes = 8, scale_bytes = 4 * steps_per_unit, chunk_scale_bytes = 0, unit_limit = 2;
};
/// OCP MX FP4: two e2m1 a byte, one e8m0 scale for 32 consecutive k (scale byte [feature][step] within a unit).
struct mxfp4 {
  static constexpr const char* name = "mxfp4";
  static constexpr int piece_bytes = 4, scale_bytes = 64, chunk_scale_bytes = 0, unit_limit = 4;
};

template <class F>
inline constexpr bool is_mxfp4 = false;
template <>
inline constexpr bool is_mxfp4<mxfp4> = true;
template <class F>
inline constexpr bool has_step_scale = false;  // an f32 factor on the sums of each step of 32 k
template <>
inline constexpr bool has_step_scale<fp8_steps> = true;
template <class F>
inline constexpr bool has_sum_scale = false;  // an f32 factor on the sums of a unit
template <int N, int K>
inline constexpr bool has_sum_scale<fp8_block<N, K>> = true;
template <>
inline constexpr bool has_sum_scale<fp8_channel> = true;

/// The format in which W_UK, the transposed half of kv_b, is packed for a checkpoint's format F.
template <class F>
struct absorbed_format {
  static_assert(!is_mxfp4<F>, "absorbed_format: kv_b is bf16 or FP8");
  using type = fp8_steps;
};
template <>
struct absorbed_format<bf16_weights> {
  using type = bf16_weights;
};

/// Geometry of the packed form of one matrix [features][k] in format F, in tiles of `Subtiles` blocks of 16 features
/// (gate and up: 2). k is padded with zeros to a multiple of 128.
template <class F, int K, int Subtiles = 1>
struct weight_tile {
  using format = F;
  static constexpr int k = K;
  static constexpr int subtiles = Subtiles;
  static constexpr int units = (K + unit_k - 1) / unit_k;  // of one subtile
  static constexpr int padded_k = units * unit_k;
  static constexpr int units_per_chunk = [] {
    int n = 1;
    while (n * 2 <= F::unit_limit && units % (n * 2) == 0) n *= 2;
    return n;
  }();
  static constexpr int chunks = units / units_per_chunk;  // of one subtile
  static constexpr u32 unit_bytes = u32(tile_features) * unit_k / 8 * F::piece_bytes;
  static constexpr u32 scales_at = units_per_chunk * unit_bytes;
  static constexpr u32 chunk_bytes =
      (scales_at + units_per_chunk * F::scale_bytes + F::chunk_scale_bytes + 15) / 16 * 16;
  static constexpr u64 bytes = u64(chunk_bytes) * chunks * Subtiles;
};

/// Byte offset, inside a unit, of the piece that lane `lane` of target T holds for step s and row h.
template <class T, class F>
MONOLAYER_HOST_DEVICE constexpr u32 piece_offset(int lane, int s, int h) {
  constexpr int per_load = 16 / F::piece_bytes;
  const int m = s * T::lane_rows + h;
  return u32(m / per_load) * 16u * T::wave_size + u32(lane) * 16u + u32(m % per_load) * F::piece_bytes;
}

}  // namespace monolayer
