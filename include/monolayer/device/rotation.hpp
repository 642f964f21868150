// Rotary position embedding: cosine and sine of one pair of columns.
#pragma once

#include "monolayer/device/block.hpp"

namespace monolayer {

struct rotation {
  float cosine, sine;
};

/// Of pair `pair` (0 .. Rope / 2 - 1) at the position of a row of the launch: y[2i] = x[2i] cos - x[2i+1] sin,
/// y[2i+1] = x[2i+1] cos + x[2i] sin, each as one product and one fused multiply-add.
template <int Rope, class Block>
MONOLAYER_DEVICE rotation rotation_of(const Block& b, int row, int pair) {
  using T = typename Block::target;
  const batch_view& batch = b.params->batch;
  const u64 position = T::load4(batch.positions + row);  // below rope_positions, so its low half says all
  const float* at = batch.rope + position * Rope + u64(pair);
  return {bits_to_float(T::load4(at)), bits_to_float(T::load4(at + Rope / 2))};
}

/// Rotates the pair (x0, x1) in place.
MONOLAYER_HOST_DEVICE void rotate(const rotation& r, float& x0, float& x1) {
  const float y0 = fma(x0, r.cosine, -mul(x1, r.sine));
  x1 = fma(x1, r.cosine, mul(x0, r.sine));
  x0 = y0;
}

}  // namespace monolayer
