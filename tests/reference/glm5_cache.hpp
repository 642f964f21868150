// What the two caches of a layer hold: attention rows (latent, then rotated rope part) and index keys, as
// values, as stored bytes, and where the index cache keeps each byte.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "reference/batch.hpp"
#include "reference/formats.hpp"

namespace monolayer::reference {

// exact: doubles as they were computed, a format of no engine.
enum class cache_format { exact, bf16, fp8 };

// An attention row: fp8 has no scale and saturates at 448.
inline double cached_value(double x, cache_format fmt) {
  if (fmt == cache_format::bf16) return bf16_round(x);
  return fmt == cache_format::fp8 ? e4m3_decode(e4m3_encode(x)) : x;
}

// An fp8 index key has one scale, a power of two.
struct fp8_key {
  std::vector<std::uint8_t> codes;
  float scale = 1;
};

// max(amax, 1e-4) / 448, up to the next power of two. The division is a float's, as in the engines' kernels:
// in double a quotient just above a power of two would take the next one.
inline float index_key_scale(double amax) {
  const float quotient = std::max(static_cast<float>(amax), 1e-4f) / 448.0f;
  int exponent = 0;
  const float mantissa = std::frexp(quotient, &exponent);  // in [0.5, 1)
  return std::ldexp(1.0f, mantissa == 0.5f ? exponent - 1 : exponent);
}

inline fp8_key encode_index_key(const double* key, int n) {
  double amax = 0;
  for (int d = 0; d < n; ++d) amax = std::max(amax, std::fabs(key[d]));
  fp8_key coded;
  coded.scale = index_key_scale(amax);
  coded.codes.resize(static_cast<std::size_t>(n));
  for (int d = 0; d < n; ++d) coded.codes[d] = e4m3_encode(key[d] / static_cast<double>(coded.scale));
  return coded;
}

inline void round_index_key(double* key, int n, cache_format fmt) {
  if (fmt == cache_format::fp8) {
    const fp8_key coded = encode_index_key(key, n);
    for (int d = 0; d < n; ++d) key[d] = e4m3_decode(coded.codes[d]) * static_cast<double>(coded.scale);
  } else if (fmt == cache_format::bf16) {
    for (int d = 0; d < n; ++d) key[d] = bf16_round(key[d]);
  }
}

// Byte of dimension d of the token at a place of its block of fp8 keys; the block's scales (f32, one a token)
// follow its block_size * 128 codes. Shuffled: tiles of 16 tokens, in them runs of 16 dimensions.
inline std::size_t index_code_offset(int place, int d, bool shuffled) {
  const auto o = static_cast<std::size_t>(place), k = static_cast<std::size_t>(d);
  if (!shuffled) return o * 128 + k;
  return o / 16 * 2048 + k / 16 * 256 + o % 16 * 16 + k % 16;
}

inline std::size_t index_scale_offset(int place, int block_size) {
  return static_cast<std::size_t>(block_size) * 128 + 4 * static_cast<std::size_t>(place);
}

// The cached tokens of one request, decoded; token t is row t. A cache without a layer's index keys has none.
struct request_cache {
  batch rows;  // [tokens][kv_lora + rope]
  batch keys;  // [tokens][index_dim]
};

// Random caches of a size that real ones have: latents as a norm leaves them.
inline request_cache random_cache(int tokens, int row_width, int key_width, std::uint64_t seed,
                                  cache_format rows = cache_format::bf16,
                                  cache_format keys = cache_format::bf16) {
  request_cache cache{batch(tokens, row_width), batch(tokens, key_width)};
  generator random(seed);
  for (auto& v : cache.rows.values) v = cached_value(random.normal(), rows);
  for (auto& v : cache.keys.values) v = random.normal();
  for (int t = 0; t < tokens; ++t) round_index_key(cache.keys.row(t), key_width, keys);
  return cache;
}

}  // namespace monolayer::reference
