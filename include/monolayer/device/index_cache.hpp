// Keys of the indexer: how a wave encodes one, where it puts the bytes, and how stored fp8 bytes become bf16 again.
#pragma once

#include "monolayer/core/index_cache_layout.hpp"
#include "monolayer/device/rows.hpp"

namespace monolayer {

/// What one lane of a wave holds of an encoded key: its `lane_values` consecutive values, values lane * lane_values ..
/// One lane's part of a store is always 4 or 8 bytes: where that is more than its own values, neighbours' are here too,
/// and only each `lanes_per_store`-th lane stores.
template <class T, class Format>
struct encoded_key {
  static constexpr int lane_values = index_dim / T::wave_size;  // 2 (wave64) or 4 (wave32)
  static constexpr int value_bytes = Format::fp8 ? 1 : 2;
  static constexpr int words = lane_values * value_bytes > 4 ? 2 : 1;
  static constexpr int lanes_per_store = lane_values * value_bytes < 4 ? 2 : 1;
  u32 word[words];
  float scale;  // fp8 only; the same in all lanes

  MONOLAYER_DEVICE static bool stores() { return T::lane() % lanes_per_store == 0; }
  MONOLAYER_DEVICE static u32 first_value() { return u32(T::lane() * lane_values); }
};

/// The scale of a key whose largest magnitude is `amax`: 2^ceil(log2(max(amax, 1e-4) / 448)), the ceil taken on the
/// exponent's bits, so exact. A key with an infinity or a NaN gets a NaN: its scores are NaN and it is never picked.
MONOLAYER_HOST_DEVICE float index_key_scale(float amax) {
  const u32 bits = float_to_bits(amax) & 0x7fffffffu;
  if (bits >= 0x7f800000u) return bits_to_float(0x7fc00000u);
  const u32 quotient = float_to_bits(div(amax < 1e-4f ? 1e-4f : amax, 448.0f));
  return bits_to_float((quotient + 0x007fffffu) & 0x7f800000u);
}

/// How a key of `Format` is made and stored. All calls are made by all lanes of one wave.
///   const auto key = index_key_codec<Format>::template encode<T>(values);   // f32, values lane * lane_values + 0..
///   index_key_codec<Format>::template store_cache<T>(key, page, block_size, place);
///   index_key_codec<Format>::template store_own<T>(key, at);   // slot memory; store_lds: LDS, the same bytes
template <class Format>
struct index_key_codec {
  using format = Format;
  template <class T>
  static constexpr int lane_values = index_dim / T::wave_size;

  /// bf16: rounded to nearest even. fp8: e4m3fn(value / scale), nearest even, with index_key_scale() of the key.
  template <class T>
  MONOLAYER_DEVICE static encoded_key<T, Format> encode(const float (&values)[index_dim / T::wave_size]) {
    using key = encoded_key<T, Format>;
    key k;
    k.scale = 1.0f;
    if constexpr (!Format::fp8) {
      MONOLAYER_UNROLL
      for (int i = 0; i < key::words; ++i) k.word[i] = pack_bf16(values[2 * i], values[2 * i + 1]);
    } else {
      u32 largest = 0;  // of the magnitudes' bits, which are in the order of the magnitudes; NaN above all
      MONOLAYER_UNROLL
      for (int i = 0; i < key::lane_values; ++i) {
        const u32 magnitude = float_to_bits(values[i]) & 0x7fffffffu;
        largest = magnitude > largest ? magnitude : largest;
      }
      k.scale = index_key_scale(bits_to_float(T::wave_max(largest)));
      // 1 / scale is a power of two as well: scales lie in 2^-22 .. 2^120.
      const float inverse = bits_to_float((254u << 23) - (float_to_bits(k.scale) & 0x7f800000u));
      u32 codes = 0;
      MONOLAYER_UNROLL
      for (int i = 0; i < key::lane_values; ++i)
        codes |= u32(from_float<e4m3fn>(mul(values[i], inverse)).bits) << (8 * i);
      if constexpr (key::lanes_per_store == 2) codes |= T::shuffle_xor(codes, 1) << 16;  // meaningful in even lanes
      k.word[0] = codes;
    }
    return k;
  }

  /// To place `place` of the page that starts at `page` in the caller's cache.
  template <class T>
  MONOLAYER_DEVICE static void store_cache(const encoded_key<T, Format>& key, u8* page, u32 block_size, u32 place) {
    if (encoded_key<T, Format>::stores())
      for (int i = 0; i < encoded_key<T, Format>::words; ++i)
        T::store4(page + Format::value_offset(place, key.first_value()) + 4 * i, key.word[i]);
    if constexpr (Format::fp8)
      if (T::lane() == 0) T::store4(page + Format::scale_offset(block_size, place), float_to_bits(key.scale));
  }
  /// To `at` in slot `own`: Format::own_bytes bytes, of which the padding is not written.
  template <class T>
  MONOLAYER_DEVICE static void store_own(const encoded_key<T, Format>& key, u8* at) {
    put<T>(key, [at](u32 offset, u32 word) { T::slot_store4(at + offset, word); });
  }
  template <class T>
  MONOLAYER_DEVICE static void store_lds(const encoded_key<T, Format>& key, lds_address at) {
    put<T>(key, [at](u32 offset, u32 word) { T::lds_store4(at + offset, word); });
  }

 private:
  template <class T, class Put>
  MONOLAYER_DEVICE static void put(const encoded_key<T, Format>& key, Put store4) {
    using encoded = encoded_key<T, Format>;
    if (encoded::stores())
      for (int i = 0; i < encoded::words; ++i)
        store4(encoded::first_value() * encoded::value_bytes + 4 * u32(i), key.word[i]);
    if constexpr (Format::fp8)
      if (T::lane() == 0) store4(Format::own_scale, float_to_bits(key.scale));
  }
};

/// 8 e4m3fn codes in checkpoint order, as caches hold them, to bf16 as T::widen_e4m3x8 makes them of packed weights:
/// the codes' values times 2^-T::e4m3_shift - activation_shift (1 on CDNA). Weights are arranged for it by the packer,
/// keys cannot be.
template <class T>
MONOLAYER_DEVICE fragment_b widen_stored_e4m3x8(u32x2 codes) {
  if constexpr (T::activation_shift != 0) {
    static_assert(T::e4m3_shift + T::activation_shift == 120);
    // A code's bits at bf16's sign, exponent and mantissa: its value times 2^-120.
    fragment_b wide;
    MONOLAYER_UNROLL
    for (int i = 0; i < 4; ++i) {
      const u32 two = codes.v[i / 2] >> (16 * (i % 2));
      const u32 high = (two & 0xffu) << 8 | (two & 0xff00u) << 16;  // in the upper bytes of the two halves
      wide.v[i] = (high & 0x80008000u) | (high >> 4 & 0x07f007f0u);
    }
    return wide;
  } else {
    const u64 arranged = T::arrange_e4m3x8(u64(codes.v[1]) << 32 | codes.v[0]);
    return T::widen_e4m3x8({{u32(arranged), u32(arranged >> 32)}});
  }
}

}  // namespace monolayer
