// A whole GLM-5 decoder layer in double, with the library's rounding points: attention in its absorbed form
// over the indexer's picks, then the MLP. Plain loops on purpose.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "reference/batch.hpp"
#include "reference/glm5_cache.hpp"
#include "reference/glm5_checkpoint.hpp"
#include "reference/glm5_parts.hpp"
#include "reference/glm5_types.hpp"
#include "reference/slices.hpp"

namespace monolayer::reference {

namespace detail {

inline const batch& given_or(const batch* given, const batch& own) {
  if (given == nullptr) return own;
  require(given->rows == own.rows && given->cols == own.cols, "given values of another shape");
  return *given;
}

// Where each row finds the tokens of its request.
class token_source {
 public:
  token_source(const query_rows& in, const batch& own, const std::vector<const batch*>& cached)
      : in_(in), own_(own), cached_(cached) {
    for (int r = 0; r < own.rows; ++r) {
      const bool fresh = own_row_.emplace(std::pair(in.requests[r], in.positions[r]), r).second;
      require(fresh, "two rows are the same token");
    }
  }

  const double* find(int row, int token) const {
    const int request = in_.requests[row];
    const auto own = own_row_.find({request, token});
    if (own != own_row_.end()) return own_.row(own->second);
    const auto n = static_cast<std::size_t>(request);
    require(n < cached_.size() && token >= 0 && token < cached_[n]->rows, "a row needs a token not cached");
    return cached_[n]->row(token);
  }

 private:
  const query_rows& in_;
  const batch& own_;
  const std::vector<const batch*>& cached_;
  std::map<std::pair<int, int>, int> own_row_;
};

// Attention's cache rows and the rotated queries.
inline void project_attention(const glm5_geometry& g, const glm5_layer& layer,
                              const std::vector<std::vector<double>>& rope, const glm5_rounding& points,
                              layer_result& s) {
  s.q = project(s.c_q, layer.q_b, false);
  const batch kv = project(s.x, layer.kv_a, false);
  const batch latent = rms_norm(column_slice(kv, 0, g.kv_lora), layer.kv_a_norm, g.eps_kv_a, false);
  s.rows = batch(kv.rows, g.cache_width());
  for (int r = 0; r < kv.rows; ++r) {
    for (int h = 0; h < g.heads; ++h) rotate(s.q.row(r) + h * g.head_dim() + g.nope, rope[r]);
    std::copy_n(latent.row(r), g.kv_lora, s.rows.row(r));
    std::copy_n(kv.row(r) + g.kv_lora, g.rope, s.rows.row(r) + g.kv_lora);
    rotate(s.rows.row(r) + g.kv_lora, rope[r]);
    for (int c = 0; c < g.cache_width(); ++c) {
      const bool twice = points.bf16_before_fp8 && points.cache == cache_format::fp8;
      s.rows(r, c) = cached_value(round_if(twice, s.rows(r, c)), points.cache);
    }
  }
  if (points.q && points.q_with_factors) {
    for (int r = 0; r < kv.rows; ++r) {
      for (int h = 0; h < g.heads; ++h) {
        for (int d = 0; d < g.nope; ++d) {
          const double factor = static_cast<double>(layer.kv_b.scales.at(static_cast<std::size_t>(h * (g.nope + g.v_dim) + d)));
          double& x = s.q(r, h * g.head_dim() + d);
          x = bf16_round(x * factor) / factor;
        }
        for (int d = g.nope; d < g.head_dim(); ++d) s.q(r, h * g.head_dim() + d) = bf16_round(s.q(r, h * g.head_dim() + d));
      }
    }
  } else if (points.q) {
    s.q = rounded_to_bf16(s.q);
  }
}

// Index keys and queries, their scores, and the picks.
inline void choose_lists(const glm5_geometry& g, const glm5_indexer& indexer, const query_rows& in,
                         const std::vector<const batch*>& cached,
                         const std::vector<std::vector<double>>& rope, const step_options& o,
                         layer_result& s) {
  const glm5_rounding& points = o.points;
  require(g.rope <= g.index_dim, "the indexer's heads are smaller than RoPE");
  s.index_keys = project(s.x, indexer.wk, false);
  s.index_q = project(s.c_q, indexer.wq_b, false);
  s.index_weights = project(s.x, indexer.weights_proj, false);
  const double factor = 1 / std::sqrt(static_cast<double>(g.index_heads) * g.index_dim);
  for (auto& w : s.index_weights.values) w *= factor;
  for (int r = 0; r < s.x.rows; ++r) {
    double* key = s.index_keys.row(r);
    layer_norm(key, g.index_dim, indexer.k_norm, indexer.k_norm_bias, g.eps_index);
    rotate(key, rope[r]);
    if (points.bf16_before_fp8 && points.index_cache == cache_format::fp8) {
      round_index_key(key, g.index_dim, cache_format::bf16);
    }
    round_index_key(key, g.index_dim, points.index_cache);
    for (int h = 0; h < g.index_heads; ++h) rotate(s.index_q.row(r) + h * g.index_dim, rope[r]);
  }
  if (points.index_q) s.index_q = rounded_to_bf16(s.index_q);

  const batch& queries = given_or(o.given.index_q, s.index_q);
  const token_source keys(in, given_or(o.given.index_keys, s.index_keys), cached);
  for (int r = 0; r < s.x.rows; ++r) {
    std::vector<double> scores(static_cast<std::size_t>(in.positions[r]) + 1);
    for (int t = 0; t <= in.positions[r]; ++t) {
      const double* key = keys.find(r, t);
      for (int h = 0; h < g.index_heads; ++h) {
        const double product = dot(queries.row(r) + h * g.index_dim, key, g.index_dim);
        // Not std::max, which would make a NaN zero.
        scores[t] += s.index_weights(r, h) * (product < 0 ? 0 : product);
      }
    }
    token_choice choice = choose_tokens(scores, g.index_topk);
    s.scores.push_back(std::move(scores));
    s.lists.push_back(std::move(choice.picks));
    s.list_margin.push_back(choice.margin);
  }
}

// The softmax of a range of a list, as far as it has come.
struct softmax_range {
  double largest = -std::numeric_limits<double>::infinity(), sum = 0;

  // Takes in the scores of a step; returns what everything before must be multiplied by.
  double raise(const std::vector<double>& scores, std::size_t count) {
    const double old = largest;
    for (std::size_t i = 0; i < count; ++i) largest = std::max(largest, scores[i]);
    const double factor = old == largest ? 1 : std::exp(old - largest);
    sum *= factor;
    return factor;
  }
};

// From rotated queries to s.o.
inline void attend(const glm5_geometry& g, const glm5_layer& layer, const token_source& tokens,
                   const token_lists& lists, const step_options& o, layer_result& s) {
  const glm5_rounding& points = o.points;
  const batch& queries = given_or(o.given.q, s.q);
  const int rows = s.x.rows, of_head = g.nope + g.v_dim;
  std::vector<double> weight(static_cast<std::size_t>(g.kv_lora));
  s.ql = s.ol = batch(rows, g.heads * g.kv_lora);
  for (int h = 0; h < g.heads; ++h) {
    for (int d = 0; d < g.nope; ++d) {
      layer.kv_b.decode_row(h * of_head + d, weight.data());
      for (int r = 0; r < rows; ++r) {
        const double q = queries(r, h * g.head_dim() + d);
        double* ql = s.ql.row(r) + h * g.kv_lora;
        for (int c = 0; c < g.kv_lora; ++c) ql[c] += q * weight[c];
      }
    }
  }
  if (points.ql) s.ql = rounded_to_bf16(s.ql);
  const batch& absorbed = given_or(o.given.ql, s.ql);

  const double scale = 1 / std::sqrt(static_cast<double>(g.head_dim()));
  for (int r = 0; r < rows; ++r) {
    const auto& list = lists[r];
    const int range = points.range > 0 ? points.range : std::max<int>(1, static_cast<int>(list.size()));
    const int step = points.step > 0 ? points.step : range;
    std::vector<double> p(static_cast<std::size_t>(step)), sums(static_cast<std::size_t>(g.kv_lora));
    for (int h = 0; h < g.heads; ++h) {
      const double* ql = absorbed.row(r) + h * g.kv_lora;
      const double* q_pe = queries.row(r) + h * g.head_dim() + g.nope;
      double* ol = s.ol.row(r) + h * g.kv_lora;
      double largest = -std::numeric_limits<double>::infinity(), total = 0;  // of the ranges so far
      for (std::size_t first = 0; first < list.size(); first += static_cast<std::size_t>(range)) {
        const std::size_t end = std::min(list.size(), first + static_cast<std::size_t>(range));
        softmax_range of_range;
        std::fill(sums.begin(), sums.end(), 0.0);
        for (std::size_t at = first; at < end; at += static_cast<std::size_t>(step)) {
          std::vector<const double*> kv;
          for (std::size_t i = at; i < std::min(end, at + static_cast<std::size_t>(step)); ++i) {
            if (list[i] >= 0) kv.push_back(tokens.find(r, list[i]));
          }
          for (std::size_t i = 0; i < kv.size(); ++i) {
            p[i] = (dot(ql, kv[i], g.kv_lora) + dot(q_pe, kv[i] + g.kv_lora, g.rope)) * scale;
          }
          const double before = of_range.raise(p, kv.size());
          for (double& x : sums) x *= before;
          for (std::size_t i = 0; i < kv.size(); ++i) {
            p[i] = round_if(points.p, std::exp(p[i] - of_range.largest));
            of_range.sum += p[i];
            for (int c = 0; c < g.kv_lora; ++c) sums[c] += p[i] * kv[i][c];
          }
        }
        if (of_range.sum == 0) continue;
        const double now = std::max(largest, of_range.largest);
        const double old_weight = std::exp(largest - now), weight_now = std::exp(of_range.largest - now);
        total = total * old_weight + of_range.sum * weight_now;
        for (int c = 0; c < g.kv_lora; ++c) ol[c] = ol[c] * old_weight + sums[c] * weight_now;
        largest = now;
      }
      // A row without tokens keeps its zeros.
      for (int c = 0; c < g.kv_lora && total != 0; ++c) ol[c] = round_if(points.ol, ol[c] / total);
    }
  }

  s.o = batch(rows, g.heads * g.v_dim);
  for (int h = 0; h < g.heads; ++h) {
    for (int d = 0; d < g.v_dim; ++d) {
      layer.kv_b.decode_row(h * of_head + g.nope + d, weight.data());
      for (int r = 0; r < rows; ++r) {
        const double value = dot(s.ol.row(r) + h * g.kv_lora, weight.data(), g.kv_lora);
        s.o(r, h * g.v_dim + d) = round_if(points.o, value);
      }
    }
  }
}

// Sums of the ranks' partial sums, each rounded for the wire.
inline batch sum_of_ranks(const std::vector<batch>& partials, bool wire) {
  batch sum(partials.front().rows, partials.front().cols);
  for (const batch& partial : partials) {
    for (std::size_t i = 0; i < sum.values.size(); ++i) sum.values[i] += round_if(wire, partial.values[i]);
  }
  return sum;
}

inline batch project_output(const matrix& o, const batch& x, int tp, bool wire) {
  std::vector<batch> partials(static_cast<std::size_t>(tp), batch(x.rows, o.rows));
  std::vector<double> weight(static_cast<std::size_t>(o.cols));
  for (int n = 0; n < o.rows; ++n) {
    o.decode_row(n, weight.data());
    for (int rank = 0; rank < tp; ++rank) {
      const range part = range_of_rank(o.cols, rank, tp);
      for (int r = 0; r < x.rows; ++r) {
        partials[rank](r, n) = dot(x.row(r) + part.begin, weight.data() + part.begin, part.count);
      }
    }
  }
  return sum_of_ranks(partials, wire);
}

// From s.mid to s.out.
inline void feed_forward(const glm5_geometry& g, const glm5_layer& layer, const step_options& o,
                         layer_result& s) {
  const geometry slices = g.slices();
  const batch& mid = given_or(o.given.mid, s.mid);
  const int rows = mid.rows;
  s.y = rms_norm(mid, layer.post_norm, g.eps_post, o.points.norm);
  std::vector<batch> partials(static_cast<std::size_t>(o.tp), batch(rows, g.hidden));
  std::vector<served> all;
  for (int r = 0; r < rows; ++r) all.push_back({r, 1.0});
  if (layer.dense) {
    const int width = layer.dense->gate.rows / o.dense_slices;
    for (int i = 0; i < o.dense_slices; ++i) {
      const expert slice{row_slice(layer.dense->gate, i * width, width), row_slice(layer.dense->up, i * width, width),
                         column_slice(layer.dense->down, i * width, width)};
      add_expert(slice, s.y, all, o.points.act, partials);
    }
  } else {
    s.logits = project(s.y, layer.router, false);
    std::vector<std::vector<served>> of_expert(static_cast<std::size_t>(g.experts));
    for (int r = 0; r < rows; ++r) {
      route chosen = choose(slices, s.logits.row(r), layer.bias);
      if (o.experts != nullptr) {
        chosen.picks = (*o.experts)[r];
        chosen.weights = routing_weights(slices, s.logits.row(r), chosen.picks);
      }
      for (std::size_t k = 0; k < chosen.picks.size(); ++k) {
        if (chosen.picks[k] >= 0) of_expert[chosen.picks[k]].push_back({r, chosen.weights[k]});
      }
      s.experts.push_back(chosen.picks);
      s.weights.push_back(chosen.weights);
      s.expert_margin.push_back(chosen.margin);
    }
    for (int e = 0; e < g.experts; ++e) {
      if (!of_expert[e].empty()) add_expert(layer.experts.get(e), s.y, of_expert[e], o.points.act, partials);
    }
    if (layer.experts.has_shared()) add_expert(layer.experts.shared(), s.y, all, o.points.act, partials);
  }
  s.sum = sum_of_ranks(partials, o.points.wire);
  s.out = mid;
  for (std::size_t i = 0; i < s.out.values.size(); ++i) {
    s.out.values[i] = round_if(o.points.out, mid.values[i] + s.sum.values[i]);
  }
}

}  // namespace detail

// caches: one a request, the tokens before this launch; may be left out where the rows are all there is.
// Throws where a row needs a token that neither the rows nor the caches hold, and where a layer without an
// indexer is given no lists.
inline layer_result layer_step(const glm5_geometry& g, const glm5_layer& layer, const query_rows& in,
                               const std::vector<request_cache>& caches = {}, const step_options& o = {}) {
  const auto rows = static_cast<std::size_t>(in.h.rows);
  require(in.h.cols == g.hidden && in.positions.size() == rows && in.requests.size() == rows,
          "layer_step: wrong rows");
  require(o.tp > 0, "layer_step: no ranks");
  require(o.lists == nullptr || o.lists->size() == rows, "layer_step: wrong forced lists");
  require(o.lists != nullptr || layer.indexer.has_value(), "layer_step: no indexer and no lists");
  require(o.experts == nullptr || o.experts->size() == rows, "layer_step: wrong forced experts");
  std::vector<const batch*> cached_rows, cached_keys;
  for (const auto& cache : caches) {
    cached_rows.push_back(&cache.rows);
    cached_keys.push_back(&cache.keys);
  }
  std::vector<std::vector<double>> rope;
  for (const int position : in.positions) rope.push_back(rope_row(g, position));

  layer_result s;
  const batch h = detail::rounded_input(in.h, o.points.input);
  s.x = rms_norm(h, layer.input_norm, g.eps_input, o.points.norm);
  s.q_a = project(s.x, layer.q_a, o.points.q_a);
  s.c_q = rms_norm(detail::given_or(o.given.q_a, s.q_a), layer.q_a_norm, g.eps_q_a, o.points.q_a_norm);
  detail::project_attention(g, layer, rope, o.points, s);
  if (layer.indexer) {
    detail::choose_lists(g, *layer.indexer, in, cached_keys, rope, o, s);
  } else {
    s.lists = *o.lists;
  }
  const detail::token_source tokens(in, detail::given_or(o.given.rows, s.rows), cached_rows);
  detail::attend(g, layer, tokens, o.lists != nullptr ? *o.lists : s.lists, o, s);
  s.attn = detail::project_output(layer.o, detail::given_or(o.given.o, s.o), o.tp, o.points.wire);
  s.mid = h;
  for (std::size_t i = 0; i < h.values.size(); ++i) {
    s.mid.values[i] = detail::round_if(o.points.mid, h.values[i] + s.attn.values[i]);
  }
  detail::feed_forward(g, layer, o, s);
  return s;
}

// The tokens 0, 1, ... of request 0 at once: since a row sees its own request's earlier rows, the results are
// those of decoding one after the other, and rows and index_keys are the caches that decoding leaves behind.
inline layer_result prefill(const glm5_geometry& g, const glm5_layer& layer, const batch& h,
                            const step_options& o = {}) {
  query_rows in{h, {}, std::vector<int>(static_cast<std::size_t>(h.rows), 0)};
  for (int t = 0; t < h.rows; ++t) in.positions.push_back(t);
  return layer_step(g, layer, in, {}, o);
}

// The cache that a prefill left of its first tokens.
inline request_cache cache_of(const layer_result& s, int tokens) {
  const auto first = [&](const batch& b) {
    batch part(b.rows == 0 ? 0 : tokens, b.cols);
    std::copy_n(b.values.begin(), part.values.size(), part.values.begin());
    return part;
  };
  require(tokens <= s.rows.rows, "cache_of: more tokens than there are");
  return {first(s.rows), first(s.index_keys)};
}

}  // namespace monolayer::reference
