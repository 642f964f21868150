// top_k alone in the simulator, and what it must find.
#pragma once

#include <algorithm>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "monolayer/device/top_k.hpp"
#include "sim/run.hpp"

namespace indexer_test {

using namespace sim_test;

/// The k largest, ties to the smallest index, NaN never, -0 equal to +0; ascending.
inline std::vector<u32> reference_top_k(const std::vector<float>& scores, std::size_t k) {
  std::vector<u32> order;
  for (u32 i = 0; i < scores.size(); ++i)
    if (scores[i] == scores[i]) order.push_back(i);
  std::stable_sort(order.begin(), order.end(), [&](u32 a, u32 b) { return scores[a] > scores[b]; });
  if (order.size() > k) order.resize(k);
  std::sort(order.begin(), order.end());
  return order;
}

template <class T>
struct block_alone {
  using target = T;
  static constexpr int threads = sim_test::threads<T>;
  typename T::consumer_group group;
  int skip;  // this barrier is left out
  int syncs = 0;
  static int thread() { return sim_test::thread<T>(); }
  bool sync() {
    if (syncs++ != skip) group.sync();
    return true;
  }
};

struct top_k_outcome {
  sim::report report;
  std::vector<u32> picks;
  int syncs = 0;
};

template <class T, int K, int Capacity = monolayer::top_k_capacity(K)>
top_k_outcome run_top_k(const std::vector<float>& scores, u64 seed = 1, int skip = -1) {
  using select = monolayer::top_k<T, K, Capacity>;
  sim::options o;
  o.seed = seed;
  sim::machine m(o);
  const std::size_t n = scores.size();
  auto* source = static_cast<u8*>(m.allocate(0, (n + 4) * 4, "scores", sim::memory::plain, sim::fill::poison));
  auto* out = static_cast<u32*>(m.allocate(0, (K + 4) * 4, "picks", sim::memory::output, sim::fill::poison));
  if (n != 0) std::memcpy(source, scores.data(), n * 4);
  std::memset(source + 4 * n, 0xff, 16);  // NaN
  const u32 nothing = out[0];
  int syncs = 0;
  m.launch<T>(0, 1, 16 + select::bytes, [=, &syncs] {
    block_alone<T> b{begin_block<T>(), skip};
    if (sim_test::producer<T>()) return;
    int count = -1;
    select::run(b, 16, int(n), [=](int i) { return T::load16(source + 4 * i); }, count);
    for (int i = b.thread(); i < count; i += b.threads) T::store4(out + i, select::pick(16, i));
    if (b.thread() == 0) T::store4(out + K, u32(count)), syncs = b.syncs;
  });
  top_k_outcome result{m.run(), {}};
  result.syncs = syncs;
  if (!result.report.ok) return result;
  result.picks.assign(out, out + std::min<u32>(out[K], K));
  for (u32 i = out[K]; i < K; ++i)
    if (out[i] != nothing) result.picks.push_back(~0u);  // written beyond the count
  return result;
}

enum class scores_kind { normal, uniform, clustered, recent, one_exponent, all_equal, few_values, zeros, special };

inline std::vector<float> make_scores(scores_kind kind, std::size_t n, u64 seed) {
  std::mt19937_64 random(seed);
  std::vector<float> v(n);
  for (std::size_t i = 0; i < n; ++i) {
    const double u = double(random() >> 11) * 0x1p-53, w = double(random() >> 11) * 0x1p-53;
    const double normal = std::sqrt(-2 * std::log(u + 1e-300)) * std::cos(6.283185307179586 * w);
    switch (kind) {
      case scores_kind::normal:
        v[i] = float(normal);
        break;
      case scores_kind::uniform:
        v[i] = float(u);
        break;
      case scores_kind::clustered:
        v[i] = float(i / 3000 % 7 == 3 ? 8 + 0.001 * normal : normal);
        break;
      case scores_kind::recent:
        v[i] = float(double(i) / double(n) + 0.01 * normal);
        break;
      case scores_kind::one_exponent:
        v[i] = std::bit_cast<float>(0x3f800000u + u32(random() & 0xfff));
        break;
      case scores_kind::all_equal:
        v[i] = -3.5f;
        break;
      case scores_kind::few_values:
        v[i] = float(int(random() % 5) - 2);
        break;
      case scores_kind::zeros:
        v[i] = random() % 2 ? 0.0f : -0.0f;
        break;
      case scores_kind::special: {
        constexpr float odd[] = {std::numeric_limits<float>::quiet_NaN(),  -std::numeric_limits<float>::quiet_NaN(),
                                 std::numeric_limits<float>::infinity(),   -std::numeric_limits<float>::infinity(),
                                 std::numeric_limits<float>::denorm_min(), -0.0f};
        v[i] = random() % 3 == 0 ? odd[random() % 6] : float(normal);
        break;
      }
    }
  }
  return v;
}

}  // namespace indexer_test
