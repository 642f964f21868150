// Self-tests of the whole-layer reference that need no trace: parts against values worked out by hand, the
// layer against its textbook form, and properties that a step must have.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <limits>
#include <set>
#include <stdexcept>
#include <vector>

#include "reference/glm5.hpp"
#include "reference/json_lite.hpp"

namespace ref = monolayer::reference;

namespace {

// Sizes that all differ, so that a mix-up of two can't pass; picks of 5 tokens.
ref::glm5_geometry odd_sizes() { return {96, 64, 160, 24, 8, 40, 2, 3, 32, 5, 8, 2, 32, 64}; }

ref::glm5_layer bf16_layer(const ref::glm5_geometry& g, std::uint64_t seed, bool dense = false) {
  const auto fmt = ref::format::bf16;
  return ref::make_glm5_layer(
      g, seed,
      {.attention = fmt, .index = fmt, .routed = fmt, .shared = fmt, .dense_mlp = fmt, .dense = dense});
}

ref::step_options exact() {
  ref::step_options o;
  o.points = ref::glm5_rounding::exact();
  return o;
}

std::vector<double> normed(const double* x, int n, const ref::matrix& weight, double eps) {
  double square = 0;
  for (int c = 0; c < n; ++c) square += x[c] * x[c];
  std::vector<double> y(n);
  for (int c = 0; c < n; ++c) y[c] = x[c] / std::sqrt(square / n + eps) * weight.at(0, c);
  return y;
}

std::vector<double> times(const ref::matrix& w, const std::vector<double>& x) {
  std::vector<double> y(w.rows, 0.0);
  for (int n = 0; n < w.rows; ++n) {
    for (int c = 0; c < w.cols; ++c) y[n] += x[c] * w.at(n, c);
  }
  return y;
}

// Pair i turns by position / theta^(2 i / rope).
void turn(double* x, const ref::glm5_geometry& g, int position) {
  for (int i = 0; i < g.rope / 2; ++i) {
    const double angle = position / std::pow(g.rope_theta, 2.0 * i / g.rope);
    const double a = x[2 * i], b = x[2 * i + 1];
    x[2 * i] = a * std::cos(angle) - b * std::sin(angle);
    x[2 * i + 1] = a * std::sin(angle) + b * std::cos(angle);
  }
}

}  // namespace

TEST_CASE("RoPE turns neighbouring pairs by the position", "[reference]") {
  const ref::glm5_geometry g = ref::glm5_full();
  std::vector<double> x(64);
  for (int i = 0; i < 64; ++i) x[i] = i + 1;
  auto y = x;
  ref::rotate(y.data(), ref::rope_row(g, 0));
  REQUIRE(y == x);
  ref::rotate(y.data(), ref::rope_row(g, 1));
  // The first pair turns by one radian; the last by 1e6^(-62/64).
  REQUIRE(std::fabs(y[0] - (0.5403023058681398 - 2 * 0.8414709848078965)) < 1e-6);
  REQUIRE(std::fabs(y[1] - (2 * 0.5403023058681398 + 0.8414709848078965)) < 1e-6);
  const double slow = 1.5399265260594921e-6;
  REQUIRE(std::fabs(y[62] - (63 - 64 * slow)) < 1e-5);
  REQUIRE(std::fabs(y[63] - (64 + 63 * slow)) < 1e-5);
  const auto row = ref::rope_row(g, 100);
  REQUIRE(row[0] == static_cast<double>(static_cast<float>(std::cos(100.0))));
  REQUIRE(row[32] == static_cast<double>(static_cast<float>(std::sin(100.0))));

  // Only the distance counts.
  const auto product = [&](int a, int b) {
    auto q = x, k = x;
    ref::rotate(q.data(), ref::rope_row(g, a));
    ref::rotate(k.data(), ref::rope_row(g, b));
    return ref::detail::dot(q.data(), k.data(), 64);
  };
  REQUIRE(std::fabs(product(907, 900) / product(7, 0) - 1) < 1e-4);
  REQUIRE(std::fabs(product(5, 0) / product(7, 0) - 1) > 1e-3);
}

TEST_CASE("LayerNorm has mean, variance, weight, bias and eps", "[reference]") {
  const ref::matrix weight = ref::quantise({1, 2, 4, 8}, 1, 4, ref::format::bf16);
  const ref::matrix bias = ref::quantise({0, 0.5, 0, -1}, 1, 4, ref::format::bf16);
  double x[] = {1, 2, 3, 4};
  ref::layer_norm(x, 4, weight, bias, 0.0);
  const double unit = 1 / std::sqrt(1.25);
  REQUIRE(std::fabs(x[0] + 1.5 * unit) < 1e-15);
  REQUIRE(std::fabs(x[1] - (0.5 - unit)) < 1e-15);
  REQUIRE(std::fabs(x[2] - 2 * unit) < 1e-15);
  REQUIRE(std::fabs(x[3] - (12 * unit - 1)) < 1e-15);
  double small[] = {1e-3, 2e-3, 3e-3, 4e-3};
  ref::layer_norm(small, 4, weight, bias, 1e-6);
  REQUIRE(std::fabs(small[2] - 2e-3 / std::sqrt(2.25e-6)) < 1e-12);
}

TEST_CASE("the largest scores are picked, ties to the earliest, NaN never", "[reference]") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  auto chosen = ref::choose_tokens({1, 5, 3, 5, 3, 3, 0}, 4);
  REQUIRE(chosen.picks == std::vector<int>{1, 2, 3, 4});
  REQUIRE(chosen.margin == 0);
  chosen = ref::choose_tokens({1, 5, nan, 5, 3.5, 3, -2}, 3);
  REQUIRE(chosen.picks == std::vector<int>{1, 3, 4});
  REQUIRE(chosen.margin == 0.5);
  chosen = ref::choose_tokens({-1, nan, -3}, 3);
  REQUIRE(chosen.picks == std::vector<int>{0, 2});
  REQUIRE(std::isinf(chosen.margin));
  REQUIRE(ref::choose_tokens({}, 3).picks.empty());

  const std::vector<double> scores{1, 5, nan, 5, 3.5, 3, -2};
  REQUIRE(ref::pick_error(scores, {4, 1, 3}) == 0);
  REQUIRE(ref::pick_error(scores, {1, 3, 5}) == 0.5);
  for (const std::vector<int>& wrong : {std::vector<int>{1, 1, 3}, {1, 2, 3}, {1, 3, 7}, {1, 3, -1}}) {
    REQUIRE(std::isinf(ref::pick_error(scores, wrong)));
  }
}

TEST_CASE("fp8 index keys have a power of two as scale", "[reference]") {
  REQUIRE(ref::index_key_scale(448) == 1.0f);
  REQUIRE(ref::index_key_scale(449) == 2.0f);
  REQUIRE(ref::index_key_scale(224) == 0.5f);
  REQUIRE(ref::index_key_scale(3) == 0x1p-7f);   // 3 / 448 = 0.0067
  REQUIRE(ref::index_key_scale(0) == 0x1p-22f);  // of 1e-4
  double key[] = {3, -0.3, 1e-6, 0};
  const ref::fp8_key coded = ref::encode_index_key(key, 4);
  REQUIRE(coded.codes == std::vector<std::uint8_t>{0x7c, 0xe2, 0x00, 0x00});  // 384, -38.4, 1.28e-4, 0
  ref::round_index_key(key, 4, ref::cache_format::fp8);
  REQUIRE((key[0] == 3 && key[1] == -40.0 / 128 && key[2] == 0 && key[3] == 0));

  const auto at = [](int o, int d) { return ref::index_code_offset(o, d, true); };
  REQUIRE((at(1, 0) == 16 && at(0, 16) == 256 && at(5, 77) == 1117));
  REQUIRE((at(15, 127) == 2047 && at(16, 0) == 2048 && at(63, 127) == 8191));
  REQUIRE(ref::index_code_offset(5, 77, false) == 717);
  REQUIRE(ref::index_scale_offset(3, 64) == 8204);
}

TEST_CASE("the layer is its textbook form: keys and values of each head, by element", "[reference]") {
  const ref::glm5_geometry g = odd_sizes();
  const int tokens = 9;
  const ref::batch h = ref::random_activations(tokens, g.hidden, 102);
  for (const bool dense : {false, true}) {
    const ref::glm5_layer layer = bf16_layer(g, 101, dense);
    const auto s = ref::prefill(g, layer, h, exact());
    std::vector<std::vector<double>> latent, k_pe, index_key;
    for (int t = 0; t < tokens; ++t) {
      const auto x = normed(h.row(t), g.hidden, layer.input_norm, static_cast<double>(1e-5f));
      auto qa = times(layer.q_a, x);
      const auto c_q = normed(qa.data(), g.q_lora, layer.q_a_norm, static_cast<double>(1e-6f));
      const auto q = times(layer.q_b, c_q);
      const auto kv = times(layer.kv_a, x);
      latent.push_back(normed(kv.data(), g.kv_lora, layer.kv_a_norm, static_cast<double>(1e-6f)));
      k_pe.emplace_back(kv.begin() + g.kv_lora, kv.end());
      turn(k_pe.back().data(), g, t);

      // The indexer.
      auto key = times(layer.indexer->wk, x);
      double mean = 0, variance = 0;
      for (const double v : key) mean += v / g.index_dim;
      for (const double v : key) variance += (v - mean) * (v - mean) / g.index_dim;
      for (int d = 0; d < g.index_dim; ++d) {
        key[d] = (key[d] - mean) / std::sqrt(variance + static_cast<double>(1e-6f)) *
                     layer.indexer->k_norm.at(0, d) +
                 layer.indexer->k_norm_bias.at(0, d);
      }
      turn(key.data(), g, t);
      index_key.push_back(key);
      auto index_q = times(layer.indexer->wq_b, c_q);
      const auto head_weight = times(layer.indexer->weights_proj, x);
      std::vector<double> scores(t + 1, 0.0);
      for (int hd = 0; hd < g.index_heads; ++hd) {
        turn(index_q.data() + hd * g.index_dim, g, t);
        for (int u = 0; u <= t; ++u) {
          double product = 0;
          for (int d = 0; d < g.index_dim; ++d) product += index_q[hd * g.index_dim + d] * index_key[u][d];
          scores[u] += head_weight[hd] * std::max(product, 0.0) / std::sqrt(g.index_heads * g.index_dim);
        }
      }
      for (int u = 0; u <= t; ++u) REQUIRE(std::fabs(scores[u] - s.scores[t][u]) < 1e-5);
      // By counting: a token is picked where fewer than five are better.
      for (int u = 0; u <= t; ++u) {
        int better = 0;
        for (int v = 0; v <= t; ++v) better += scores[v] > scores[u] ? 1 : 0;
        const auto& list = s.lists[t];
        REQUIRE((better < g.index_topk) == (std::find(list.begin(), list.end(), u) != list.end()));
      }

      std::vector<double> heads;
      for (int hd = 0; hd < g.heads; ++hd) {
        const double* q_head = q.data() + hd * g.head_dim();
        std::vector<double> q_pe(q_head + g.nope, q_head + g.head_dim());
        turn(q_pe.data(), g, t);
        double sum = 0;
        std::vector<double> o(g.v_dim, 0.0);
        for (const int u : s.lists[t]) {
          const auto up = times(layer.kv_b, latent[u]);  // of all heads
          const double* of_head = up.data() + hd * (g.nope + g.v_dim);
          double score = 0;
          for (int d = 0; d < g.nope; ++d) score += q_head[d] * of_head[d];
          for (int d = 0; d < g.rope; ++d) score += q_pe[d] * k_pe[u][d];
          const double p = std::exp(score / std::sqrt(g.nope + g.rope));
          sum += p;
          for (int d = 0; d < g.v_dim; ++d) o[d] += p * of_head[g.nope + d];
        }
        for (const double v : o) heads.push_back(v / sum);
      }
      const auto attn = times(layer.o, heads);
      std::vector<double> mid(g.hidden);
      for (int c = 0; c < g.hidden; ++c) {
        REQUIRE(std::fabs(attn[c] - s.attn(t, c)) < 1e-5);  // RoPE's table is float
        mid[c] = h(t, c) + s.attn(t, c);
        REQUIRE(mid[c] == s.mid(t, c));
      }
      if (!dense) continue;  // slice B's own tests cover experts
      const auto y = normed(mid.data(), g.hidden, layer.post_norm, static_cast<double>(1e-5f));
      auto act = times(layer.dense->gate, y);
      const auto up = times(layer.dense->up, y);
      for (std::size_t i = 0; i < act.size(); ++i) act[i] *= up[i] / (1 + std::exp(-act[i]));
      const auto down = times(layer.dense->down, act);
      for (int c = 0; c < g.hidden; ++c) REQUIRE(std::fabs(mid[c] + down[c] - s.out(t, c)) < 1e-11);
    }
  }
}

TEST_CASE("the MLP half of a layer is slice B", "[reference]") {
  const ref::glm5_geometry g = odd_sizes();
  const ref::batch h = ref::random_activations(3, g.hidden, 112);
  const ref::layer_b slice(g.slices(), 111);
  ref::glm5_layer layer = bf16_layer(g, 113);
  layer.post_norm = slice.post_norm;
  layer.router = slice.router;
  layer.bias = slice.bias;
  layer.experts = ref::expert_store(g.experts, true, [&](int e) { return slice.get(e); });
  for (const bool rounded : {false, true}) {
    ref::step_options o = rounded ? ref::step_options{} : exact();
    o.tp = 2;
    const auto s = ref::prefill(g, layer, h, o);
    const auto b = ref::slice_b(g.slices(), slice, s.mid, 2, nullptr,
                                rounded ? ref::rounding{} : ref::rounding::exact());
    REQUIRE(s.experts == b.picks);
    REQUIRE(s.weights == b.weights);
    REQUIRE(s.expert_margin == b.margin);
    for (int r = 0; r < h.rows; ++r) {
      const auto scores = ref::router_scores(s.logits.row(r), layer.bias);
      REQUIRE(ref::pick_error(scores, s.experts[r]) == 0);
      REQUIRE(ref::pick_error(scores, {0, 1}) < 1);
    }
    REQUIRE(s.out.values == b.out.values);
  }
}

TEST_CASE("the small JSON reader takes what it must and throws on the rest", "[reference]") {
  const ref::json j =
      ref::parse_json(R"( {"a": [1, -2.5e-3, []], "b": {"c": "x\"y", "d": null}, "e": true} )");
  REQUIRE(j.at("a").items.at(0).integer() == 1);
  REQUIRE(j.at("a").items.at(1).number == -2.5e-3);
  REQUIRE(j.at("a").items.at(2).items.empty());
  REQUIRE(j.at("b").at("c").text == "x\"y");
  REQUIRE(j.at("b").at("d").what == ref::json::kind::null);
  REQUIRE(j.at("e").truth);
  REQUIRE(j.find("c") == nullptr);
  for (const char* wrong : {"", "{", "[1,]", "{\"a\" 1}", "\"a", "\"\\n\"", "1 2", "nul", "[1 2]"}) {
    INFO(wrong);
    REQUIRE_THROWS_AS(ref::parse_json(wrong), std::invalid_argument);
  }
}
