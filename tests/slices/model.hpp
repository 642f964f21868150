// A stack of slices: synthetic checkpoint, its packed form for every rank, and what the float64 reference says.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "monolayer/host/slices.hpp"
#include "reference/slices.hpp"

namespace monolayer::test {

/// Throws where a test's own set-up goes wrong; tests of errors look at the status instead.
template <class V>
V must(result<V> r) {
  if (!r) throw std::runtime_error(r.why().text());
  return std::move(r.value());
}
inline void must(const status& s) {
  if (!s) throw std::runtime_error(s.text());
}

inline checkpoint_matrix view(const reference::matrix& m) {
  return {m.data.data(), m.scales.data(), m.scales_e8m0.data(), m.rows, m.cols, 0, 0};
}
inline expert_tensors view(const reference::expert& e) { return {view(e.gate), view(e.up), view(e.down)}; }

template <class F>
constexpr reference::format format_of() {
  if constexpr (is_mxfp4<F>) return reference::format::mxfp4;
  else if constexpr (F::piece_bytes == 16) return reference::format::bf16;
  else return F::chunk_scale_bytes != 0 ? reference::format::fp8_channel : reference::format::fp8_block128;
}

/// The whole model's geometry behind a rank's config.
template <class C>
reference::geometry geometry_of() {
  reference::geometry g;
  g.hidden = C::hidden;
  g.q_lora = C::q_lora;
  g.heads = C::heads * C::ranks;
  g.head_dim = C::head_dim;
  g.experts = C::experts;
  g.top_k = C::top_k;
  g.expert_width = C::expert_width * C::ranks;
  g.routed_scaling = C::routed_scaling;
  g.eps_input = C::input_eps;
  g.eps_q_a = C::q_a_eps;
  g.eps_post = C::post_eps;
  return g;
}

struct packed_a {
  std::vector<u16> input_norm, q_a_norm;
  std::vector<packed_matrix> q_a, q_b;  // by rank
};
struct packed_b {
  std::vector<u16> post_norm;
  std::vector<float> bias;
  std::vector<int> experts;  // those whose bytes routed_* hold, one after another; the headers count all
  std::vector<packed_matrix> router, shared_gate_up, shared_down, routed_gate_up, routed_down;  // by rank
};

/// Layers of the kinds given (slices<C>::slice_a or slice_b), packed for target T.
template <class T, class C>
struct model {
  using program = slices<C>;
  using packer = slice_packer<T, C>;

  struct layer {
    u64 kind;
    std::unique_ptr<reference::layer_a> a;
    std::unique_ptr<reference::layer_b> b;
    packed_a packed_for_a;
    packed_b packed_for_b;
  };
  reference::geometry g = geometry_of<C>();
  std::vector<layer> layers;

  /// With `experts` (ascending) rows choose among these alone, by their bias, and only these are made and packed: whole
  /// GLM-5 layers have gigabytes of others. `plant` may change the values of a slice B before they are packed.
  explicit model(const std::vector<u64>& kinds, u64 seed = 1, reference::layer_b_options how_b = {},
                 reference::layer_a_options how_a = {}, const std::vector<int>& experts = {},
                 const std::function<void(reference::layer_b&)>& plant = {}) {
    how_a.q_a = how_a.q_b = format_of<typename C::attention_weights>();
    how_b.routed = how_b.shared = format_of<typename C::expert_weights>();
    for (std::size_t i = 0; i < kinds.size(); ++i) {
      layer l{kinds[i], {}, {}, {}, {}};
      if (kinds[i] == program::slice_a) {
        l.a = std::make_unique<reference::layer_a>(reference::make_layer_a(g, seed * 1000 + i, how_a));
        pack_a(l);
      } else {
        l.b = std::make_unique<reference::layer_b>(reference::make_layer_b(g, seed * 1000 + i, how_b));
        if (plant) plant(*l.b);
        for (int e = 0; e < C::experts; ++e) {
          const bool among = experts.empty() || std::binary_search(experts.begin(), experts.end(), e);
          if (among) l.packed_for_b.experts.push_back(e);
          else l.b->bias[std::size_t(e)] -= 8;
        }
        pack_b(l);
      }
      layers.push_back(std::move(l));
    }
  }

 private:
  static void pack_a(layer& l) {
    l.packed_for_a.input_norm = reference::bf16_bits(l.a->input_norm);
    l.packed_for_a.q_a_norm = reference::bf16_bits(l.a->q_a_norm);
    const slice_a_tensors t{l.packed_for_a.input_norm.data(), view(l.a->q_a), l.packed_for_a.q_a_norm.data(),
                            view(l.a->q_b)};
    for (int r = 0; r < C::ranks; ++r) {
      l.packed_for_a.q_a.push_back(must(packer::q_a(t, r)));
      l.packed_for_a.q_b.push_back(must(packer::q_b(t, r)));
    }
  }
  static void pack_b(layer& l) {
    packed_b& p = l.packed_for_b;
    p.post_norm = reference::bf16_bits(l.b->post_norm);
    p.bias = l.b->bias;
    std::vector<std::pair<std::span<u8>, const reference::expert*>> gate_up, down;  // what is to be packed, where
    auto add = [&](std::vector<packed_matrix>& to, auto header, u64 bytes, bool shared, auto& jobs) {
      for (int r = 0; r < C::ranks; ++r) {
        const std::size_t count = shared ? 1 : p.experts.size();
        to.push_back({header(shared ? 1 : u32(C::experts), r), std::vector<u8>(bytes * count)});
        for (std::size_t i = 0; i < count; ++i)
          jobs.push_back({std::span<u8>(to.back().bytes).subspan(bytes * i, bytes),
                          shared ? &l.b->shared() : &l.b->get(p.experts[i])});
      }
    };
    for (int r = 0; r < C::ranks; ++r) p.router.push_back(must(packer::router(view(l.b->router), r)));
    add(p.shared_gate_up, packer::gate_up_header, packer::gate_up_bytes, true, gate_up);
    add(p.routed_gate_up, packer::gate_up_header, packer::gate_up_bytes, false, gate_up);
    add(p.shared_down, packer::down_header, packer::down_bytes, true, down);
    add(p.routed_down, packer::down_header, packer::down_bytes, false, down);
    const int shared_jobs = C::ranks, per_rank = int(p.experts.size());
    auto rank_of = [&](std::size_t job) {
      return int(job) < shared_jobs ? int(job) : (int(job) - shared_jobs) / per_rank;
    };
    std::vector<std::string> errors(gate_up.size());
    auto share = [&](std::size_t first, std::size_t step) {
      for (std::size_t i = first; i < errors.size(); i += step)
        for (const status& s : {packer::expert_gate_up(gate_up[i].first, view(*gate_up[i].second), rank_of(i), "gate_up"),
                                packer::expert_down(down[i].first, view(*down[i].second), rank_of(i), "down")})
          if (!s) errors[i] = s.text();
    };
    std::vector<std::thread> threads;
    const std::size_t n = std::clamp<std::size_t>(std::thread::hardware_concurrency(), 1, 16);
    for (std::size_t i = 0; i < n; ++i) threads.emplace_back(share, i, n);
    for (std::thread& t : threads) t.join();
    for (const std::string& e : errors)
      if (!e.empty()) throw std::runtime_error(e);
  }
};

}  // namespace monolayer::test
