// Packing kv_b for the absorbed form of latent attention: its two halves, head by head, as the stages absorb (W_UK) and
// v_up (W_UV) stream them.
#pragma once

#include "monolayer/host/pack.hpp"

namespace monolayer {

/// kv_b as a checkpoint stores it, [heads of the model * (nope + v_dim)][latent], and the heads that a rank packs. Head
/// h's rows are h * (nope + v_dim) ..: first nope rows of W_UK, then v_dim rows of W_UV. The window of `matrix` is ignored.
/// In FP8 blocks a head may begin inside a block: factors are found by the row of the whole matrix.
struct kv_b_heads {
  checkpoint_matrix matrix;
  long nope = 0, v_dim = 0, latent = 0;
  long first_head = 0, heads = 0;

  long head_rows() const { return nope + v_dim; }
  checkpoint_matrix window(long head, long row) const {
    checkpoint_matrix m = matrix;
    m.first_row = (first_head + head) * head_rows() + row;
    m.first_column = 0;
    return m;
  }
};

namespace detail {

template <class T, class F>
status look_at_heads(const kv_b_heads& h, const std::string& name) {
  if (h.nope <= 0 || h.v_dim <= 0 || h.latent <= 0 || h.heads <= 0 || h.first_head < 0)
    return error(error_code::bad_shape, name + " heads",
                 std::to_string(h.heads) + " from " + std::to_string(h.first_head) + " of " + std::to_string(h.nope) + " + " +
                     std::to_string(h.v_dim) + " x " + std::to_string(h.latent),
                 "positive numbers");
  // 32 rows of W_UK and 16 of W_UV must lie in one block of 128.
  if (h.head_rows() % step_k != 0 || h.nope % tile_features != 0)
    return error(error_code::bad_shape, name + " rows of a head", std::to_string(h.nope) + " + " + std::to_string(h.v_dim),
                 "a sum that is a multiple of 32, the first a multiple of 16");
  return look<T, F>(h.window(0, 0), h.heads * h.head_rows(), h.latent, name);
}

}  // namespace detail

/// W_UK of the heads: per head a matrix with `latent` features and k = nope, transposed from the checkpoint's, in tiles
/// of Tile::subtiles * 16 features. F is the checkpoint's format, Tile's is absorbed_format<F>. The factors of
/// fp8_channel belong to k and are not packed: q must be multiplied by them. Errors leave `to` as it was.
template <class T, class F, class Tile>
status pack_w_uk(std::span<u8> to, const kv_b_heads& h, const std::string& name) {
  using P = typename Tile::format;
  static_assert(std::is_same_v<P, typename absorbed_format<F>::type>);
  constexpr long features = long(Tile::subtiles) * tile_features, element = P::piece_bytes / 8;
  if (h.nope != Tile::k || h.latent % features != 0)
    return error(error_code::bad_shape, name + " nope, latent", std::to_string(h.nope) + ", " + std::to_string(h.latent),
                 std::to_string(Tile::k) + ", a multiple of " + std::to_string(features));
  const u64 head_bytes = u64(h.latent / features) * Tile::bytes;
  if (status s = detail::check_room(to, u64(h.heads) * head_bytes, name); !s) return s;
  if (status s = detail::look_at_heads<T, F>(h, name); !s) return s;

  const long steps = (h.nope + step_k - 1) / step_k, grid = (h.matrix.columns + 127) / 128;
  std::vector<u8> turned(std::size_t(h.latent * h.nope * element));
  std::vector<float> scales(std::size_t(h.latent / tile_features * steps));
  for (long head = 0; head < h.heads; ++head) {
    const checkpoint_matrix m = h.window(head, 0);
    const u8* data = static_cast<const u8*>(m.data);
    for (long n = 0; n < h.nope; ++n)
      for (long c = 0; c < h.latent; ++c)
        std::memcpy(&turned[std::size_t((c * h.nope + n) * element)], data + ((m.first_row + n) * m.columns + c) * element,
                    std::size_t(element));
    checkpoint_matrix t{turned.data(), nullptr, nullptr, h.latent, h.nope, 0, 0};
    if constexpr (has_sum_scale<F> && F::chunk_scale_bytes == 0) {
      for (long c = 0; c < h.latent / tile_features; ++c)
        for (long s = 0; s < steps; ++s)
          scales[std::size_t(c * steps + s)] = m.scales[(m.first_row + s * step_k) / 128 * grid + c * tile_features / 128];
      t.scales = scales.data();
    }
    detail::write_features<T, Tile>(to.data() + u64(head) * head_bytes, t, h.latent);
  }
  return {};
}

/// W_UV of the heads: per head a matrix with v_dim features and k = latent, in tiles of Tile::subtiles * 16 features.
/// Errors leave `to` as it was.
template <class T, class Tile>
status pack_w_uv(std::span<u8> to, const kv_b_heads& h, const std::string& name) {
  constexpr long features = long(Tile::subtiles) * tile_features;
  if (h.latent != Tile::k || h.v_dim % features != 0)
    return error(error_code::bad_shape, name + " latent, v_dim", std::to_string(h.latent) + ", " + std::to_string(h.v_dim),
                 std::to_string(Tile::k) + ", a multiple of " + std::to_string(features));
  const u64 head_bytes = u64(h.v_dim / features) * Tile::bytes;
  if (status s = detail::check_room(to, u64(h.heads) * head_bytes, name); !s) return s;
  if (status s = detail::look_at_heads<T, typename Tile::format>(h, name); !s) return s;
  for (long head = 0; head < h.heads; ++head)
    detail::write_features<T, Tile>(to.data() + u64(head) * head_bytes, h.window(head, h.nope), h.v_dim);
  return {};
}

/// The header that the packed halves must carry: `heads` matrices of `features` features each, one after another.
template <class T, class Tile>
packed_header header_for_heads(long features, u32 heads, u32 ranks, u32 rank) {
  packed_header h = header_for<T, Tile>(features / Tile::subtiles, heads, ranks, rank);
  h.features = u32(features);
  return h;
}

}  // namespace monolayer
