// The bit order of quantised weights in a packed sm_90a word: the packer's half of sm90's `widen_*`. Plain
// C++, so packers and the simulator's wave32 model need no CUDA.
//
// A bf16 pair lies in one word, the even k in the low half. A code's sign goes to bit 15 of its half; its
// exponent and mantissa go, as they are, to the lowest exponent bits and the highest mantissa bits: a
// (perhaps subnormal) bf16 that is the code's value times 2^-126 (e2m1) or 2^-120 (e4m3). Nothing
// is multiplied in registers: the results are (wave32_layout's shifts). The orders below let the device reach
// these places with few shifts and masks: 9 operations for 8 e2m1 codes, 10 for 8 e4m3 codes. Left shifts are
// preferred, since they can be multiplications: masks and rotations share a pipe of half the width.
#pragma once

#include <cstdint>

#include "monolayer/core/macros.hpp"

namespace monolayer {

struct sm90_weight_bits {
  /// The bits of a pair's halves that an e2m1 code takes (15; 8, 7, 6), and those of an e4m3 code (15; 10 ..
  /// 4).
  static constexpr std::uint32_t e2m1_mask = 0x81C081C0u;
  static constexpr std::uint32_t e4m3_mask = 0x87F087F0u;

  /// Pairs 0, 1, 2 are the word as it is, shifted left by 4 and rotated left by 10, under e2m1_mask; pair 3 is what these
  /// leave over: bits 6, 7 and 15 of its halves come from the word shifted left by 6, bit 8 from it shifted right by 2.
  static constexpr std::uint32_t e2m1_last_low = 0x80C080C0u;
  static constexpr std::uint32_t e2m1_last_high = 0x01000100u;
  /// Of each e4m3 word (4 codes) pair 0 lies in place; pair 1 is the word rotated right by 4 in bits 15, 10
  /// .. 7 of its halves and shifted left by 4 in bits 6 .. 4.
  static constexpr std::uint32_t e4m3_last_high = 0x87808780u;
  static constexpr std::uint32_t e4m3_last_low = 0x00700070u;

  /// 8 e2m1 codes, code i in bits 4 i .. 4 i + 3, to the packed word.
  MONOLAYER_HOST_DEVICE static constexpr std::uint32_t arrange_e2m1x8(std::uint32_t codes) {
    std::uint32_t packed = 0;
    for (int i = 0; i < 8; ++i) {
      const int pair = i / 2;
      for (int bit = 0; bit < 4; ++bit) {
        const int target = 16 * (i % 2) + (bit == 3 ? 15 : 6 + bit);
        const int turn = pair == 0 ? 0 : pair == 1 ? 28 : pair == 2 ? 22 : bit == 2 ? 2 : 26;
        packed |= (codes >> (4 * i + bit) & 1u) << ((target + turn) % 32);
      }
    }
    return packed;
  }

  /// 8 e4m3 codes, code i in bits 8 i .. 8 i + 7, to the packed double word.
  MONOLAYER_HOST_DEVICE static constexpr std::uint64_t arrange_e4m3x8(std::uint64_t codes) {
    std::uint64_t packed = 0;
    for (int i = 0; i < 8; ++i) {
      const bool last = i % 4 >= 2;
      for (int bit = 0; bit < 8; ++bit) {
        const int target = 16 * (i % 2) + (bit == 7 ? 15 : 4 + bit);
        const int turn = !last ? 0 : bit < 3 ? 28 : 4;
        packed |= (codes >> (8 * i + bit) & 1u) << (32 * (i / 4) + (target + turn) % 32);
      }
    }
    return packed;
  }
};

}  // namespace monolayer
