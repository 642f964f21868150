// Which packed weights a stage of a GLM-5 layer streams.
#pragma once

#include <vector>

#include "monolayer/host/glm5.hpp"

namespace monolayer::examples {

/// Bytes of packed weights that a stage streams from on one rank. `distinct`: how many routed experts to
/// count, of the C::experts that the rank holds.
template <class T, class C>
double stage_weight_bytes(u64 kind, const stage_info& stage, int distinct = C::experts) {
  using P = glm5<C>;
  using host = glm5_host<T, C>;
  const auto bytes = [&](int id) {
    const auto header = host::header_of(kind, id, 0);
    return header ? double(header->bytes) : 0.0;
  };
  const double share = host::is_dense(kind) ? 1.0 : double(distinct) / C::experts;
  switch (stage.code) {
    case P::q_a_code:
      return bytes(P::q_a_weights);
    case P::kv_a_code:
      return bytes(P::kv_a_weights);
    case P::index_k_code:
      return bytes(P::index_k_weights);
    case P::index_w_code:
      return bytes(P::index_head_weights);
    case P::q_b_code:
      return bytes(P::q_b_weights);
    case P::index_q_code:
      return bytes(P::index_q_weights);
    case P::absorb_code:
      return bytes(P::uk_weights);
    case P::v_up_code:
      return bytes(P::uv_weights);
    case P::o_code:
      return bytes(P::o_weights);
    case P::router_code:
      return bytes(P::router_weights);
    case P::shared_code:
      return bytes(P::shared_gate_up);
    case P::routed_code:
      return bytes(P::routed_gate_up) * share;
    case P::down_code:
      return bytes(P::shared_down) + bytes(P::routed_down) * share;
    default:
      return 0;
  }
}

/// The same for all stages of all kinds, as describe_options::weight_bytes takes them.
template <class T, class C>
std::vector<double> weight_bytes(int distinct = C::experts) {
  std::vector<double> all;
  for (int k = 0; k < glm5<C>::kind_count; ++k)
    for (int i = 0; i < glm5<C>::info.kinds[k].stage_count; ++i)
      all.push_back(stage_weight_bytes<T, C>(u64(k), glm5<C>::info.kinds[k].stages[i], distinct));
  return all;
}

}  // namespace monolayer::examples
