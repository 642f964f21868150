// What of the model runs on the host around the layers: embedding, final norm, LM head, and the table of RoPE
// factors.
#pragma once

#include <limits>
#include <span>

#include "checkpoint/glm5_checkpoint.hpp"

namespace monolayer::examples {

namespace detail {

// Sixteen partial sums: more than one instruction in flight, and bits that depend on no compiler's choice.
template <class Term>
float sum_in_parts(long n, Term term) {
  float parts[16] = {};
  long i = 0;
  for (; i + 16 <= n; i += 16)
    for (int j = 0; j < 16; ++j) parts[j] += term(i + j);
  for (int j = 0; i < n; ++i, ++j) parts[j] += term(i);
  for (int width = 8; width >= 1; width /= 2)
    for (int j = 0; j < width; ++j) parts[j] += parts[j + width];
  return parts[0];
}

inline float bf16_at(const u16* values, long i) { return to_float(bf16{values[i]}); }

}  // namespace detail

/// Rows of the embedding table: bf16 [tokens][hidden] into `rows`. Errors: a token out of range (nothing is
/// written).
inline status embed(const glm5_checkpoint& checkpoint, std::span<const int> tokens, std::span<u16> rows) {
  const auto hidden = std::size_t(checkpoint.config().hidden);
  if (rows.size() < tokens.size() * hidden)
    return error(error_code::too_small, "rows", std::to_string(rows.size()) + " values",
                 std::to_string(tokens.size() * hidden));
  for (std::size_t i = 0; i < tokens.size(); ++i)
    if (tokens[i] < 0 || tokens[i] >= checkpoint.config().vocab)
      return error(error_code::bad_value, "tokens[" + std::to_string(i) + "]", std::to_string(tokens[i]),
                   "0.." + std::to_string(checkpoint.config().vocab - 1));
  for (std::size_t i = 0; i < tokens.size(); ++i)
    std::memcpy(rows.data() + i * hidden, checkpoint.embeddings() + std::size_t(tokens[i]) * hidden,
                hidden * 2);
  return {};
}

/// x * 1/sqrt(mean(x^2) + eps) * weight, all in f32 and the weight last, as transformers does in f32.
inline std::vector<float> rms_norm(std::span<const u16> row, const u16* weight, double eps) {
  const long n = long(row.size());
  const float squares = detail::sum_in_parts(n, [&](long i) {
    const float x = detail::bf16_at(row.data(), i);
    return x * x;
  });
  const float factor = 1.0f / std::sqrt(squares / float(n) + float(eps));
  std::vector<float> normed;
  for (long i = 0; i < n; ++i)
    normed.push_back(detail::bf16_at(weight, i) * (detail::bf16_at(row.data(), i) * factor));
  return normed;
}

/// Final norm and LM head of one row of the residual stream (bf16 [hidden]): f32 [vocab].
inline result<std::vector<float>> logits(const glm5_checkpoint& checkpoint, std::span<const u16> row) {
  const glm5_model_config& c = checkpoint.config();
  if (row.size() != std::size_t(c.hidden))
    return error(error_code::bad_shape, "row", std::to_string(row.size()) + " values",
                 std::to_string(c.hidden));
  const std::vector<float> x = rms_norm(row, checkpoint.final_norm(), c.layer_norm_eps);
  std::vector<float> values(std::size_t(c.vocab));
  for (long token = 0; token < c.vocab; ++token) {
    const u16* weights = checkpoint.lm_head() + token * c.hidden;
    values[std::size_t(token)] = detail::sum_in_parts(
        c.hidden, [&](long i) { return detail::bf16_at(weights, i) * x[std::size_t(i)]; });
  }
  return values;
}

struct greedy_choice {
  int token = 0;
  float logit = 0;
  float margin = 0;  // to the second largest; infinite where there is no second
};

/// The largest logit, of equal ones the smallest token. Errors: no logits, or one that is NaN or infinite,
/// which no healthy layer gives.
inline result<greedy_choice> choose(std::span<const float> values) {
  if (values.empty()) return error(error_code::too_small, "logits", "none", "at least one");
  greedy_choice best;
  float second = -std::numeric_limits<float>::infinity();
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i]))
      return error(error_code::bad_value, "logits[" + std::to_string(i) + "]", std::to_string(values[i]),
                   "a number");
    if (i == 0) {
      best.logit = values[0];
    } else if (values[i] > best.logit) {
      second = best.logit;
      best.token = int(i);
      best.logit = values[i];
    } else {
      second = std::max(second, values[i]);
    }
  }
  best.margin = best.logit - second;
  return best;
}

/// The token after a row of the residual stream.
inline result<greedy_choice> next_token(const glm5_checkpoint& checkpoint, std::span<const u16> row) {
  auto values = logits(checkpoint, row);
  if (!values) return values.why();
  return choose(values.value());
}

/// f32 [positions][64]: 32 cosines, then 32 sines. As transformers: the inverse frequencies 1 / theta^(2i/64)
/// and the angles position * frequency are rounded to f32. Powers, cosines and sines are taken in double and
/// rounded once, so that they are the nearest f32 but for cases of one in a million.
inline std::vector<float> rope_table(u64 positions, double theta) {
  float frequency[32];
  for (int i = 0; i < 32; ++i) frequency[i] = 1.0f / float(std::pow(theta, double(2 * i) / 64));
  std::vector<float> table(positions * 64);
  for (u64 p = 0; p < positions; ++p)
    for (std::size_t i = 0; i < 32; ++i) {
      const float angle = float(p) * frequency[i];
      table[p * 64 + i] = float(std::cos(double(angle)));
      table[p * 64 + 32 + i] = float(std::sin(double(angle)));
    }
  return table;
}

}  // namespace monolayer::examples
