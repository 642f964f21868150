// A random generator whose bits depend on nothing but the seed: integer arithmetic only, no distribution of
// the standard library and no function of the C library's libm.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

namespace monolayer::reference {

inline std::uint64_t splitmix(std::uint64_t& state) {
  std::uint64_t z = (state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// The seed of a part (a tensor, an expert), so that a part's bits don't depend on which other parts were
// made.
inline std::uint64_t derive_seed(std::uint64_t seed, std::uint64_t part) {
  std::uint64_t state = seed ^ (part * 0xd1342543de82ef95u + 0x632be59bd9b4e019u);
  splitmix(state);
  return splitmix(state);
}

// xoshiro256**
class generator {
 public:
  explicit generator(std::uint64_t seed) {
    for (auto& word : state_) word = splitmix(seed);
  }

  std::uint64_t next() {
    const std::uint64_t result = std::rotl(state_[1] * 5, 7) * 9;
    const std::uint64_t shifted = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= shifted;
    state_[3] = std::rotl(state_[3], 45);
    return result;
  }

  // In [0, 1), a multiple of 2^-24: exact in float.
  double uniform() { return static_cast<double>(next() >> 40) * 0x1p-24; }

  // Mean 0, variance 1, within +-6: the sum of twelve 16-bit uniforms. Box-Muller would need log and cos,
  // whose last bits differ between C libraries; this sum is exact everywhere.
  double normal() {
    std::int64_t sum = 0;
    for (int draw = 0; draw < 3; ++draw) {
      const std::uint64_t bits = next();
      for (int shift = 0; shift < 64; shift += 16) sum += static_cast<std::int64_t>((bits >> shift) & 0xffff);
    }
    return static_cast<double>(2 * sum - 12 * 0xffff) * 0x1p-17;
  }

 private:
  std::array<std::uint64_t, 4> state_{};
};

}  // namespace monolayer::reference
