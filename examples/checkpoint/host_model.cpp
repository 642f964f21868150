// The host's part of the model, in f32.
#include "checkpoint/host_model.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "monolayer/core/types.hpp"

namespace monolayer::examples {
namespace {

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

float bf16_at(const u16* values, long i) { return to_float(bf16{values[i]}); }

}  // namespace

status embed(const glm5_checkpoint& checkpoint, std::span<const int> tokens, std::span<u16> rows) {
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

std::vector<float> rms_norm(std::span<const u16> row, const u16* weight, double eps) {
  const long n = long(row.size());
  const float squares = sum_in_parts(n, [&](long i) {
    const float x = bf16_at(row.data(), i);
    return x * x;
  });
  const float factor = 1.0f / std::sqrt(squares / float(n) + float(eps));
  std::vector<float> normed;
  for (long i = 0; i < n; ++i) normed.push_back(bf16_at(weight, i) * (bf16_at(row.data(), i) * factor));
  return normed;
}

result<std::vector<float>> logits(const glm5_checkpoint& checkpoint, std::span<const u16> row) {
  const glm5_model_config& c = checkpoint.config();
  if (row.size() != std::size_t(c.hidden))
    return error(error_code::bad_shape, "row", std::to_string(row.size()) + " values",
                 std::to_string(c.hidden));
  const std::vector<float> x = rms_norm(row, checkpoint.final_norm(), c.layer_norm_eps);
  std::vector<float> values(std::size_t(c.vocab));
  for (long token = 0; token < c.vocab; ++token) {
    const u16* weights = checkpoint.lm_head() + token * c.hidden;
    values[std::size_t(token)] =
        sum_in_parts(c.hidden, [&](long i) { return bf16_at(weights, i) * x[std::size_t(i)]; });
  }
  return values;
}

result<greedy_choice> choose(std::span<const float> values) {
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

result<greedy_choice> next_token(const glm5_checkpoint& checkpoint, std::span<const u16> row) {
  auto values = logits(checkpoint, row);
  if (!values) return values.why();
  return choose(values.value());
}

std::vector<float> rope_table(u64 positions, double theta) {
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
