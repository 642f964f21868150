// What the real machines and their simulated models share: wave geometry and the matrix step's register layouts.
// Packers, kernels and tests use these same constexpr functions.
#pragma once

#include "monolayer/arch/target.hpp"
#include "monolayer/core/macros.hpp"

namespace monolayer {

/// CDNA (gfx942, gfx950): v_mfma_f32_16x16x32_bf16, or two 16x16x16 steps that together hold the same operands.
struct wave64_layout {
  static constexpr int wave_size = 64;
  static constexpr int consumer_waves = 8;
  static constexpr int columns = 16;
  static constexpr int lane_rows = 1;
  static constexpr arrival_kind arrivals = arrival_kind::words;

  // Powers of two by which operands are held and results multiplied: see target.hpp. Here the conversion instructions
  // give the weights' own values, scale included.
  static constexpr int activation_shift = 0;
  static constexpr int bf16_shift = 0, e4m3_shift = 0, mxfp4_shift = 0;
  static constexpr bool mxfp4_scales_sums = false;

  MONOLAYER_HOST_DEVICE static constexpr int a_row(int lane, int /*h*/) { return lane % 16; }
  MONOLAYER_HOST_DEVICE static constexpr int k_group(int lane) { return lane / 16; }
  MONOLAYER_HOST_DEVICE static constexpr int b_column(int lane) { return lane % 16; }
  MONOLAYER_HOST_DEVICE static constexpr int d_row(int lane, int r) { return 4 * (lane / 16) + r; }
  MONOLAYER_HOST_DEVICE static constexpr int d_column(int lane, int /*r*/) { return lane % 16; }
};

/// sm_90a: two mma.sync.m16n8k16. A lane's words 0 and 1 are the operands of the first, words 2 and 3 of the second;
/// so the first multiplies k = 8q..8q+3 and the second k = 8q+4..8q+7 of every k group q.
struct wave32_layout {
  static constexpr int wave_size = 32;
  static constexpr int consumer_waves = 12;
  static constexpr int columns = 8;
  static constexpr int lane_rows = 2;
  static constexpr arrival_kind arrivals = arrival_kind::counter;

  // A code's bits, put where bf16 has its exponent and mantissa, are a (perhaps subnormal) bf16: the value times 2^-120
  // (e4m3) or 2^-126 (e2m1). That is all the conversion there is; activations are held times 2^64 so that no product
  // or sum becomes subnormal, and the results are multiplied back. MX scales multiply the sums of their 32 k.
  static constexpr int activation_shift = 64;
  static constexpr int bf16_shift = -64, e4m3_shift = 120 - 64, mxfp4_shift = 126 - 64;
  static constexpr bool mxfp4_scales_sums = true;

  MONOLAYER_HOST_DEVICE static constexpr int a_row(int lane, int h) { return lane / 4 + 8 * h; }
  MONOLAYER_HOST_DEVICE static constexpr int k_group(int lane) { return lane % 4; }
  MONOLAYER_HOST_DEVICE static constexpr int b_column(int lane) { return lane / 4; }
  MONOLAYER_HOST_DEVICE static constexpr int d_row(int lane, int r) { return lane / 4 + 8 * (r / 2); }
  MONOLAYER_HOST_DEVICE static constexpr int d_column(int lane, int r) { return 2 * (lane % 4) + r % 2; }
};

}  // namespace monolayer
