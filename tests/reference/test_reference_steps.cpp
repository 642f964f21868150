// Self-tests of the whole-layer reference: what a step sees of caches and of its own rows, ranks, rounding
// points, and sizes of the synthetic layers.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "reference/glm5.hpp"

namespace ref = monolayer::reference;

namespace {

constexpr double order_of_sums = 1e-12;

ref::glm5_geometry uneven_sizes() { return {96, 64, 160, 24, 8, 40, 2, 3, 32, 5, 8, 2, 32, 64}; }

ref::step_options without_rounding() {
  ref::step_options o;
  o.points = ref::glm5_rounding::exact();
  return o;
}

double root_mean_square(const ref::batch& b) {
  double sum = 0;
  for (const double v : b.values) sum += v * v;
  return std::sqrt(sum / static_cast<double>(b.values.size()));
}

ref::batch some_rows(const ref::batch& b, const std::vector<int>& rows) {
  ref::batch part(static_cast<int>(rows.size()), b.cols);
  for (int i = 0; i < part.rows; ++i) std::copy_n(b.row(rows[i]), b.cols, part.row(i));
  return part;
}

}  // namespace

TEST_CASE("decoding from caches gives what the whole sequence gives", "[reference]") {
  const ref::glm5_geometry g = uneven_sizes();
  const ref::glm5_layer layer = ref::make_glm5_layer(g, 121);
  const ref::batch h = ref::random_activations(12, g.hidden, 122);
  for (const auto fmt : {ref::cache_format::exact, ref::cache_format::bf16, ref::cache_format::fp8}) {
    ref::step_options o;
    o.points.cache = o.points.index_cache = fmt;
    const auto whole = ref::prefill(g, layer, h, o);
    for (const int t : {0, 4, 11}) {
      const ref::query_rows one{some_rows(h, {t}), {t}, {0}};
      const auto s = ref::layer_step(g, layer, one, {ref::cache_of(whole, t)}, o);
      REQUIRE(s.out.values == some_rows(whole.out, {t}).values);
      REQUIRE(s.rows.values == some_rows(whole.rows, {t}).values);
      REQUIRE(s.index_keys.values == some_rows(whole.index_keys, {t}).values);
      REQUIRE(s.lists[0] == whole.lists[t]);
    }
    // Two requests in one launch, one of them with two new tokens, rows in no order; the caches hold
    // something else where the rows' own tokens go, which no row may see.
    const auto other = ref::prefill(g, layer, some_rows(h, {11, 3, 5, 2, 0}), o);
    auto cache0 = ref::cache_of(whole, 12), cache1 = ref::cache_of(other, 4);
    for (const int t : {10, 11}) {
      std::fill_n(cache0.rows.row(t), g.cache_width(), 7.0);
      std::fill_n(cache0.keys.row(t), g.index_dim, 7.0);
    }
    const ref::query_rows mixed{some_rows(h, {11, 0, 10}), {11, 4, 10}, {0, 1, 0}};
    const auto s = ref::layer_step(g, layer, mixed, {cache0, cache1}, o);
    REQUIRE(some_rows(s.out, {0}).values == some_rows(whole.out, {11}).values);
    REQUIRE(some_rows(s.out, {1}).values == some_rows(other.out, {4}).values);
    REQUIRE(some_rows(s.out, {2}).values == some_rows(whole.out, {10}).values);
  }
}

TEST_CASE("lists decide what is attended to", "[reference]") {
  const ref::glm5_geometry g = uneven_sizes();
  ref::glm5_layer layer = ref::make_glm5_layer(g, 131, {.dense = true});
  const ref::batch h = ref::random_activations(8, g.hidden, 132);
  const auto own = ref::prefill(g, layer, h, without_rounding());
  for (int t = 0; t < 8; ++t) {
    REQUIRE(own.lists[t].size() == static_cast<std::size_t>(std::min(t + 1, g.index_topk)));
    REQUIRE(std::is_sorted(own.lists[t].begin(), own.lists[t].end()));
    REQUIRE(own.lists[t].back() <= t);
    REQUIRE(ref::pick_error(own.scores[t], own.lists[t]) == 0);
  }

  // A layer without an indexer, with the lists handed in: in any order, with -1 between.
  layer.indexer.reset();
  REQUIRE_THROWS_AS(ref::prefill(g, layer, h, without_rounding()), std::invalid_argument);
  ref::token_lists lists = own.lists;
  for (auto& list : lists) {
    std::reverse(list.begin(), list.end());
    list.insert(list.begin() + 1, -1);
  }
  ref::step_options o = without_rounding();
  o.lists = &lists;
  const auto handed = ref::prefill(g, layer, h, o);
  REQUIRE(ref::relative_l2(handed.out, own.out) < order_of_sums);
  REQUIRE(handed.scores.empty());

  // A row that may see nothing gets nothing, not a NaN.
  lists[3] = {-1};
  lists[4].clear();
  const auto empty = ref::prefill(g, layer, h, o);
  for (int c = 0; c < g.hidden; ++c) REQUIRE((empty.attn(3, c) == 0 && empty.attn(4, c) == 0));
  REQUIRE(some_rows(empty.out, {5}).values == some_rows(handed.out, {5}).values);

  lists[4] = {8};
  REQUIRE_THROWS_AS(ref::prefill(g, layer, h, o), std::invalid_argument);
  REQUIRE_THROWS_AS(ref::layer_step(g, layer, {some_rows(h, {0, 1}), {3, 3}, {0, 0}}, {}, o),
                    std::invalid_argument);
}

TEST_CASE("earlier tokens don't depend on later ones", "[reference]") {
  const ref::glm5_geometry g = uneven_sizes();
  const ref::glm5_layer layer = ref::make_glm5_layer(g, 141);
  ref::batch h = ref::random_activations(9, g.hidden, 142);
  const auto before = ref::prefill(g, layer, h);
  for (int c = 0; c < g.hidden; ++c) h(6, c) = -h(6, c) + 1;
  const auto after = ref::prefill(g, layer, h);
  for (int t = 0; t < 9; ++t) {
    const bool same = some_rows(before.out, {t}).values == some_rows(after.out, {t}).values;
    if (t <= 6) REQUIRE(same == (t < 6));
  }
}

TEST_CASE("the ranks' parts of a layer sum to the whole", "[reference]") {
  const ref::glm5_geometry g = ref::micro();
  const ref::batch h = ref::random_activations(5, g.hidden, 151);
  for (const auto fmt : ref::all_formats) {
    INFO(ref::name_of(fmt));
    for (const bool dense : {false, true}) {
      const ref::glm5_layer layer = ref::make_glm5_layer(g, 152,
                                                         {.attention = fmt,
                                                          .index = fmt,
                                                          .routed = fmt,
                                                          .shared = fmt,
                                                          .dense_mlp = fmt,
                                                          .how = {false, true, true},
                                                          .dense = dense});
      ref::step_options o = without_rounding();
      const auto whole = ref::prefill(g, layer, h, o);
      o.tp = 4;
      REQUIRE(ref::relative_l2(ref::prefill(g, layer, h, o).out, whole.out) < order_of_sums);
      o.points.wire = true;
      const double wire = ref::relative_l2(ref::prefill(g, layer, h, o).out, whole.out);
      REQUIRE((wire > 1e-5 && wire < 5e-3));

      ref::batch attn(h.rows, g.hidden);
      ref::glm5_geometry part = g;
      part.heads /= 4;
      for (int rank = 0; rank < 4; ++rank) {
        const ref::glm5_layer mine = ref::layer_of_rank(g, layer, rank, 4);
        const auto s = ref::prefill(part, mine, h, without_rounding());
        REQUIRE(s.scores == whole.scores);
        for (std::size_t i = 0; i < attn.values.size(); ++i) attn.values[i] += s.attn.values[i];
        const ref::expert& e = dense ? *mine.dense : mine.experts.get(3);
        REQUIRE(e.gate.rows == (dense ? g.dense_width : g.expert_width) / 4);
      }
      REQUIRE(ref::relative_l2(attn, whole.attn) < order_of_sums);
    }
  }
}

TEST_CASE("each rounding point of the layer rounds, and exact rounds nothing", "[reference]") {
  const ref::glm5_geometry g = uneven_sizes();
  const ref::glm5_layer layer = ref::make_glm5_layer(g, 161);
  ref::batch h = ref::random_activations(4, g.hidden, 162);
  for (auto& v : h.values) v *= 1.0001;  // no longer bf16
  const auto none = ref::prefill(g, layer, h, without_rounding());
  using points = ref::glm5_rounding;
  for (const auto point :
       {&points::input, &points::norm, &points::q_a, &points::q_a_norm, &points::q, &points::ql, &points::p,
        &points::ol, &points::o, &points::wire, &points::mid, &points::act, &points::out}) {
    ref::step_options o = without_rounding();
    o.points.*point = true;
    const double error = ref::relative_l2(ref::prefill(g, layer, h, o).out, none.out);
    REQUIRE((error > 1e-5 && error < 1e-2));
  }
  ref::step_options o = without_rounding();
  o.points.index_q = true;
  REQUIRE(ref::prefill(g, layer, h, o).index_q.values == ref::rounded_to_bf16(none.index_q).values);
  for (const auto fmt : {ref::cache_format::bf16, ref::cache_format::fp8}) {
    o = without_rounding();
    o.points.cache = o.points.index_cache = fmt;
    const auto s = ref::prefill(g, layer, h, o);
    const double step = fmt == ref::cache_format::bf16 ? 0x1p-9 : 0x1p-5;
    for (const auto& [rounded, plain] :
         {std::pair(&s.rows, &none.rows), std::pair(&s.index_keys, &none.index_keys)}) {
      const double error = ref::relative_l2(*rounded, *plain);
      REQUIRE((error > step / 2 && error < step * 1.2));
    }
    for (const double v : s.rows.values) REQUIRE(ref::cached_value(v, fmt) == v);
  }
  REQUIRE(ref::cached_value(1000, ref::cache_format::fp8) == 448);

  const auto all = ref::prefill(g, layer, h, {.points = points::with_out()});
  for (const auto* rounded :
       {&all.x, &all.q_a, &all.c_q, &all.q, &all.rows, &all.ql, &all.ol, &all.o, &all.index_keys,
        &all.index_q, &all.attn, &all.mid, &all.y, &all.sum, &all.out}) {
    REQUIRE(ref::rounded_to_bf16(*rounded).values == rounded->values);
  }
}

TEST_CASE("given values replace the reference's own from there on", "[reference]") {
  const ref::glm5_geometry g = uneven_sizes();
  const ref::glm5_layer layer = ref::make_glm5_layer(g, 191);
  const ref::batch h = ref::random_activations(8, g.hidden, 192);
  const auto plain = ref::prefill(g, layer, h),
             other = ref::prefill(g, layer, ref::random_activations(8, g.hidden, 193));
  // With its own values given nothing changes.
  ref::step_options o;
  o.given = {&plain.q_a,     &plain.q,  &plain.rows, &plain.index_keys,
             &plain.index_q, &plain.ql, &plain.o,    &plain.mid};
  REQUIRE(ref::prefill(g, layer, h, o).out.values == plain.out.values);

  const auto with = [&](const ref::batch* ref::given_values::*value, const ref::batch& from) {
    ref::step_options one;
    one.given.*value = &from;
    return ref::prefill(g, layer, h, one);
  };
  using given = ref::given_values;
  auto s = with(&given::q_a, other.q_a);
  REQUIRE((s.q_a.values == plain.q_a.values && s.q.values == other.q.values &&
           s.rows.values == plain.rows.values));
  s = with(&given::q, other.q);
  REQUIRE((s.q.values == plain.q.values && s.ql.values == other.ql.values));
  s = with(&given::rows, other.rows);
  REQUIRE((s.rows.values == plain.rows.values && s.ql.values == plain.ql.values &&
           s.ol.values != plain.ol.values));
  s = with(&given::index_keys, other.index_keys);
  REQUIRE((s.index_keys.values == plain.index_keys.values && s.scores != plain.scores));
  s = with(&given::index_q, other.index_q);
  REQUIRE((s.index_q.values == plain.index_q.values && s.scores != plain.scores));
  s = with(&given::ql, other.ql);
  REQUIRE((s.ql.values == plain.ql.values && s.ol.values != plain.ol.values));
  s = with(&given::o, other.o);
  REQUIRE((s.o.values == plain.o.values && s.attn.values == other.attn.values));
  s = with(&given::mid, other.mid);
  REQUIRE(
      (s.mid.values == plain.mid.values && s.y.values == other.y.values && s.out.values == other.out.values));
  REQUIRE_THROWS_AS(with(&given::mid, other.q), std::invalid_argument);
}

TEST_CASE("small inputs make the eps of each of the layer's norms visible", "[reference]") {
  const ref::glm5_geometry g = uneven_sizes();
  const ref::glm5_layer layer = ref::make_glm5_layer(
      g, 171, {.q_a_gain = 1e-3, .kv_a_gain = 1e-3, .index_k_gain = 1e-3, .o_gain = 1e-3});
  const ref::batch h = ref::random_activations(4, g.hidden, 172, 1e-3);
  const auto plain = ref::prefill(g, layer, h);
  const auto changed = [&](auto change) {
    ref::glm5_geometry other = g;
    change(other);
    return ref::prefill(other, layer, h);
  };
  const auto input = changed([](auto& o) { o.eps_input = 1e-6f; });
  REQUIRE(ref::relative_l2(input.x, plain.x) > 0.5);
  const auto q_a = changed([](auto& o) { o.eps_q_a = 1e-5f; });
  REQUIRE(ref::relative_l2(q_a.q, plain.q) > 0.3);
  const auto kv_a = changed([](auto& o) { o.eps_kv_a = 1e-5f; });
  REQUIRE(ref::relative_l2(kv_a.rows, plain.rows) > 0.3);
  const auto index = changed([](auto& o) { o.eps_index = 1e-5f; });
  REQUIRE(ref::relative_l2(index.index_keys, plain.index_keys) > 0.3);
  const auto post = changed([](auto& o) { o.eps_post = 1e-6f; });
  REQUIRE(ref::relative_l2(post.y, plain.y) > 0.5);
}

TEST_CASE("synthetic layers keep activations of order one", "[reference]") {
  const ref::glm5_geometry g = ref::mini();
  for (const auto fmt : {ref::format::fp8_block128, ref::format::mxfp4}) {
    const auto attention = fmt == ref::format::mxfp4 ? ref::format::fp8_channel : fmt;
    for (const bool dense : {false, true}) {
      const ref::glm5_layer layer = ref::make_glm5_layer(
          g, 181, {.attention = attention, .routed = fmt, .shared = fmt, .dense_mlp = fmt, .dense = dense});
      const int cached = 300;
      const auto cache = ref::random_cache(cached, g.cache_width(), g.index_dim, 182);
      const ref::query_rows in{ref::random_activations(2, g.hidden, 183), {cached, cached + 1}, {0, 0}};
      const auto s = ref::layer_step(g, layer, in, {cache});
      REQUIRE(s.lists[0].size() == static_cast<std::size_t>(g.index_topk));
      for (const auto* part :
           {&s.x, &s.q_a, &s.q, &s.rows, &s.index_keys, &s.index_q, &s.attn, &s.mid, &s.sum, &s.out}) {
        const double size = root_mean_square(*part);
        REQUIRE((size > 0.25 && size < 4));
      }
      REQUIRE(layer.experts.made() <= (dense ? 0u : 17u));
    }
  }
}
