// What of the model runs on the host around the layers: embedding, final norm, LM head, and the table of RoPE
// factors.
#pragma once

#include <span>
#include <vector>

#include "checkpoint/glm5_checkpoint.hpp"

namespace monolayer::examples {

/// Rows of the embedding table: bf16 [tokens][hidden] into `rows`. Errors: a token out of range (nothing is
/// written).
status embed(const glm5_checkpoint& checkpoint, std::span<const int> tokens, std::span<u16> rows);

/// x * 1/sqrt(mean(x^2) + eps) * weight, all in f32 and the weight last, as transformers does in f32.
std::vector<float> rms_norm(std::span<const u16> row, const u16* weight, double eps);

/// Final norm and LM head of one row of the residual stream (bf16 [hidden]): f32 [vocab].
result<std::vector<float>> logits(const glm5_checkpoint& checkpoint, std::span<const u16> row);

struct greedy_choice {
  int token = 0;
  float logit = 0;
  float margin = 0;  // to the second largest; infinite where there is no second
};

/// The largest logit, of equal ones the smallest token. Errors: no logits, or one that is NaN or infinite,
/// which no healthy layer gives.
result<greedy_choice> choose(std::span<const float> values);

/// The token after a row of the residual stream.
result<greedy_choice> next_token(const glm5_checkpoint& checkpoint, std::span<const u16> row);

/// f32 [positions][64]: 32 cosines, then 32 sines. As transformers: the inverse frequencies 1 / theta^(2i/64)
/// and the angles position * frequency are rounded to f32. Powers, cosines and sines are taken in double and
/// rounded once, so that they are the nearest f32 but for cases of one in a million.
std::vector<float> rope_table(u64 positions, double theta);

}  // namespace monolayer::examples
