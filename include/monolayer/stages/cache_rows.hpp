// The cache row and the index key of each live row's own token: normalised, rotated, encoded once.
#pragma once

#include "monolayer/device/inputs.hpp"
#include "monolayer/device/kv_cache.hpp"
#include "monolayer/device/rotation.hpp"

namespace monolayer::stages {

/// LayerNorm of the index key in GLM-5 and DeepSeek V3.2.
inline constexpr float index_key_eps = 1e-6f;

/// A tile is one row of the launch. From slot `Kv` (f32 [latent + rope]) it makes the row of the latent cache,
///   [RMSNorm(kv[0 : latent]) * weight | RoPE(kv[latent : ])],
/// and, where the layer's kind writes slot `Ik` (f32 [index_dim]), the index key,
///   LayerNorm(ik) * weight + bias, RoPE on its first `rope` dims.
/// Both are encoded from f32 in one rounding. They go to slot `Own`, from where this launch reads them, and to the
/// caller's caches at row_slots[row], which this launch never reads there: so the bits are the same whether the token is
/// read now or later.
///
/// Slot `Own` is [row of the latent cache | index key]: the row as it is cached, the key as index_cache_layout.hpp says. RoPE is interleaved: pair i is dims
/// 2i, 2i + 1. Formulas: transformers' GlmMoeDsa; byte order: engines' caches.
///
/// C: max_rows, kv_cache and index_cache (formats), rope, kv_a_eps. The data indices: KvNorm bf16 [latent]; KeyWeight,
/// KeyBias f32 [index_dim]; KvCache, IndexCache the caller's caches.
template <class C, int Kv, int Ik, int Own, int KvNorm, int KeyWeight, int KeyBias, int KvCache, int IndexCache>
struct cache_rows {
  using input = inputs::none;
  using weights = void;
  using format = typename C::kv_cache;
  using codec = index_key_codec<typename C::index_cache>;
  static constexpr int tiles = C::max_rows;
  static constexpr int latent = format::latent, rope = C::rope;
  static constexpr int own_columns = int(format::bytes + C::index_cache::own_bytes) / 2;
  static_assert(rope == format::rope && rope <= index_dim && rope / 2 <= 32);

  template <class Block>
  MONOLAYER_DEVICE static bool run_tile(Block& b, int row) {
    using T = typename Block::target;
    if (b.column_of(row) < 0) return true;
    // Three waves, each with a part of its own; nothing is exchanged between them.
    if (T::wave() == 0) {
      put_latent(b, row);
    } else if (T::wave() == 1) {
      put_rotated(b, row);
    } else if (T::wave() == 2) {
      if (b.writes(Ik)) put_key(b, row);
    }
    return true;
  }

 private:
  template <class Block>
  MONOLAYER_DEVICE static u8* own_row(const Block& b, int row) {
    return slot_view<typename Block::target, typename Block::program, Own>::current(b).at(row, 0);
  }
  template <class Block>
  MONOLAYER_DEVICE static u8* cache_row(const Block& b, int row) {
    return const_cast<u8*>(layer_data<typename Block::target>(b.entry(), KvCache)) +
           kv_strides(b).offset(own_token_slot(b, row));
  }

  template <class Block>
  MONOLAYER_DEVICE static void put_latent(const Block& b, int row) {
    using T = typename Block::target;
    constexpr int n = latent / T::wave_size;  // values a lane, consecutive
    const int first = T::lane() * n;
    const u8* kv = slot_view<T, typename Block::program, Kv>::current(b).at(row, first);
    const u8* weight = layer_data<T>(b.entry(), KvNorm) + first * 2;
    float x[n], squares = 0.0f;
    u32x4 w[n / 8];
    MONOLAYER_UNROLL
    for (int i = 0; i < n / 8; ++i) w[i] = T::load16(weight + 16 * i);
    MONOLAYER_UNROLL
    for (int i = 0; i < n / 4; ++i) {
      const u32x4 v = T::slot_load16(kv + 16 * i);
      for (int k = 0; k < 4; ++k) x[4 * i + k] = bits_to_float(v.v[k]);
    }
    MONOLAYER_UNROLL
    for (int i = 0; i < n; ++i) squares = fma(x[i], x[i], squares);
    const float scale = reciprocal_sqrt(add(mul(wave_sum<T>(squares), 1.0f / latent), C::kv_a_eps));
    MONOLAYER_UNROLL
    for (int i = 0; i < n; ++i) {
      const u32 pair = w[i / 8].v[i % 8 / 2];
      x[i] = mul(mul(x[i], scale), i % 2 == 0 ? low_bf16(pair) : high_bf16(pair));
    }
    store_kv_values<T, format>(x, first, own_row(b, row), cache_row(b, row));
  }

  /// A lane rotates one pair.
  template <class Block>
  MONOLAYER_DEVICE static void put_rotated(const Block& b, int row) {
    using T = typename Block::target;
    const int pair = T::lane(), at = latent + 2 * pair;
    if (pair >= rope / 2) return;
    const u8* kv = slot_view<T, typename Block::program, Kv>::current(b).at(row, at);
    float x0 = bits_to_float(T::slot_load4(kv)), x1 = bits_to_float(T::slot_load4(kv + 4));
    rotate(rotation_of<rope>(b, row, pair), x0, x1);
    u8* own = own_row(b, row) + at * format::element_bytes;
    u8* cache = cache_row(b, row) + at * format::element_bytes;
    if constexpr (format::element_bytes == 2) {
      const u32 word = pack_bf16(x0, x1);
      T::slot_store4(own, word);
      T::store4(cache, word);
    } else {
      const u16 word = u16(from_float<e4m3fn>(x0).bits | from_float<e4m3fn>(x1).bits << 8);
      T::slot_store2(own, word);
      T::store2(cache, word);
    }
  }

  template <class Block>
  MONOLAYER_DEVICE static void put_key(const Block& b, int row) {
    using T = typename Block::target;
    constexpr int n = index_dim / T::wave_size;  // values a lane, consecutive
    static_assert(index_dim % (2 * T::wave_size) == 0, "cache_rows: a lane holds whole pairs of the index key");
    const int first = T::lane() * n;
    const u8* ik = slot_view<T, typename Block::program, Ik>::current(b).at(row, first);
    float x[n], total = 0.0f;
    for (int i = 0; i < n; ++i) x[i] = bits_to_float(T::slot_load4(ik + 4 * i));
    for (int i = 0; i < n; ++i) total = add(total, x[i]);
    const float mean = mul(wave_sum<T>(total), 1.0f / index_dim);
    float squares = 0.0f;
    for (int i = 0; i < n; ++i) {
      x[i] = sub(x[i], mean);
      squares = fma(x[i], x[i], squares);
    }
    const float scale = reciprocal_sqrt(add(mul(wave_sum<T>(squares), 1.0f / index_dim), index_key_eps));
    const u8 *weight = layer_data<T>(b.entry(), KeyWeight) + first * 4, *bias = layer_data<T>(b.entry(), KeyBias) + first * 4;
    for (int i = 0; i < n; ++i)
      x[i] = add(mul(mul(x[i], scale), bits_to_float(T::load4(weight + 4 * i))), bits_to_float(T::load4(bias + 4 * i)));
    if (first < rope)
      for (int i = 0; i < n; i += 2) rotate(rotation_of<rope>(b, row, (first + i) / 2), x[i], x[i + 1]);
    const auto key = codec::template encode<T>(x);
    codec::template store_own<T>(key, own_row(b, row) + format::bytes);
    const batch_view& v = b.params->batch;
    const u32 slot = own_token_slot(b, row), page = slot / v.block_size;
    u8* cache = const_cast<u8*>(layer_data<T>(b.entry(), IndexCache));
    codec::template store_cache<T>(key, cache + u64(page) * v.index_block_stride, v.block_size, slot - page * v.block_size);
  }
};

}  // namespace monolayer::stages
