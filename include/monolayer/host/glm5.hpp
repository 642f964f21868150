// Host side of layers/glm5.hpp: what each kind of layer needs, packing a checkpoint's tensors for one rank, and the layer
// entries that a launch walks.
#pragma once

#include <array>
#include <optional>

#include "monolayer/host/bind.hpp"
#include "monolayer/host/pack_heads.hpp"
#include "monolayer/host/tensors.hpp"
#include "monolayer/layers/glm5.hpp"

namespace monolayer {

/// A layer of program glm5<C>, packed for one rank: what layer_entry::data shall point to, by data_id; unused ones are
/// empty. The bytes go to device memory as they are.
template <class C>
using packed_glm5 = std::array<packed_matrix, glm5<C>::data_count>;

/// packed_header::format of vectors, which are packed as they are.
inline constexpr u32 format_bf16_vector = 100, format_f32_vector = 101;

/// Packing and binding for target T and config C.
template <class T, class C>
struct glm5_host {
  using P = glm5<C>;
  static constexpr int dense_experts = C::dense_slices - 1;  // the first slice stands in for the shared expert
  static constexpr int heads = C::heads * C::ranks;          // of the model

  static bool is_dense(u64 kind) { return kind == P::dense || kind == P::dense_listed; }
  static bool has_indexer(u64 kind) { return kind == P::dense || kind == P::moe; }
  static const char* name_of(int id) {
    constexpr const char* names[] = {
        "input_norm", "q_a", "kv_a", "q_a_norm", "kv_a_norm", "q_b", "nope_factors", "w_uk", "w_uv", "o", "post_norm",
        "router", "router_bias", "shared_gate_up", "shared_down", "routed_gate_up", "routed_down", "index_q", "index_k",
        "index_weights", "index_k_norm_weight", "index_k_norm_bias", "kv_cache", "index_cache", "picks_out"};
    static_assert(std::size(names) == P::data_count);
    return names[id];
  }

  /// The header that data `id` of a layer of that kind must carry on a rank; nothing where the kind has no such data.
  static std::optional<packed_header> header_of(u64 kind, int id, int rank) {
    const auto bf16s = [&](int n) { return vector_header(format_bf16_vector, n, rank); };
    const auto floats = [&](int n) { return vector_header(format_f32_vector, n, rank); };
    const u32 experts = is_dense(kind) ? u32(dense_experts) : u32(C::experts);
    const auto only = [](bool has, packed_header h) { return has ? std::optional(h) : std::nullopt; };
    const auto matrix = [&]<class Stage>(long features, u32 count = 1) {
      if constexpr (requires { Stage::splits; }) features *= Stage::splits;
      return header_for<T, typename Stage::weights>(features, count, C::ranks, u32(rank));
    };
    const bool index = has_indexer(kind), routed = !is_dense(kind);
    switch (id) {
      case P::input_norm: case P::post_norm: return bf16s(C::hidden);
      case P::q_a_norm: return bf16s(C::q_lora);
      case P::kv_a_norm: return bf16s(C::kv_lora);
      case P::q_a_weights: return matrix.template operator()<typename P::q_a_stage>(C::q_lora);
      case P::kv_a_weights: return matrix.template operator()<typename P::kv_a_stage>(C::kv_lora + C::rope);
      case P::q_b_weights: return matrix.template operator()<typename P::q_b_stage>(C::heads * P::head_dim);
      case P::nope_factors: return only(P::factors_in_q, floats(C::heads * C::nope));
      case P::uk_weights:
        return header_for_heads<T, typename P::absorb_stage::weights>(C::kv_lora, C::heads, C::ranks, u32(rank));
      case P::uv_weights:
        return header_for_heads<T, typename P::v_up_stage::weights>(C::v_dim, C::heads, C::ranks, u32(rank));
      case P::o_weights: return matrix.template operator()<typename P::o_stage>(C::hidden);
      case P::router_weights:
        return only(routed, matrix.template operator()<typename P::router_stage>(P::padded_experts));
      case P::router_bias: return only(routed, floats(C::experts));
      case P::shared_gate_up: return matrix.template operator()<typename P::shared_stage>(C::expert_width);
      case P::shared_down: return matrix.template operator()<typename P::down_stage>(C::hidden);
      case P::routed_gate_up: return matrix.template operator()<typename P::routed_stage>(C::expert_width, experts);
      case P::routed_down: return matrix.template operator()<typename P::down_stage>(C::hidden, experts);
      case P::index_q_weights:
        return only(index, matrix.template operator()<typename P::index_q_stage>(C::index_heads * C::index_dim));
      case P::index_k_weights: return only(index, matrix.template operator()<typename P::index_k_stage>(C::index_dim));
      case P::index_head_weights:
        return only(index, matrix.template operator()<typename P::index_w_stage>(P::padded_index_heads));
      case P::index_norm_weight: case P::index_norm_bias: return only(index, floats(C::index_dim));
      default: return std::nullopt;  // the caller's memory
    }
  }

  /// Packs a layer's tensors for a rank. With `experts` only these routed experts are packed and the others' bytes stay
  /// zero: for trying a layer that is too large to make whole. Errors name the tensor.
  static result<packed_glm5<C>> pack_layer(u64 kind, const glm5_tensors& t, int rank, std::span<const int> experts = {}) {
    if (kind >= P::kind_count)
      return error(error_code::bad_value, "kind", std::to_string(kind), "below " + std::to_string(P::kind_count));
    if (rank < 0 || rank >= C::ranks)
      return error(error_code::bad_value, "rank", std::to_string(rank), "0.." + std::to_string(C::ranks - 1));
    for (int e : experts)
      if (e < 0 || e >= C::experts)
        return error(error_code::bad_value, "experts", std::to_string(e), "0.." + std::to_string(C::experts - 1));
    if (status s = check_shapes(kind, t); !s) return s;
    packed_glm5<C> all;
    for (int id = 0; id < P::data_count; ++id) {
      const auto header = header_of(kind, id, rank);
      if (!header) continue;
      all[id].header = *header;
      all[id].bytes.resize(header->bytes);
      if (status s = pack_into(all[id].bytes, kind, id, t, rank, experts); !s) return s;
      all[id].header.checksum = checksum(all[id].bytes);
    }
    return all;
  }

 private:
  static packed_header vector_header(u32 format, int n, int rank) {
    packed_header h;
    h.wave_size = T::wave_size;
    h.format = format;
    h.features = u32(n);
    h.ranks = C::ranks;
    h.rank = u32(rank);
    h.bytes = align_up(u64(n) * (format == format_f32_vector ? 4 : 2), 16);
    return h;
  }

  static status shape(const std::string& name, const checkpoint_matrix& m, long rows, long columns) {
    if (m.data == nullptr) return error(error_code::bad_pointer, name, "null", "the matrix");
    if (m.rows != rows || m.columns != columns)
      return error(error_code::bad_shape, name, std::to_string(m.rows) + " x " + std::to_string(m.columns),
                   std::to_string(rows) + " x " + std::to_string(columns));
    if (m.first_row != 0 || m.first_column != 0)
      return error(error_code::bad_shape, name, "a window from " + std::to_string(m.first_row) + ", " +
                   std::to_string(m.first_column), "the whole matrix");
    return {};
  }
  static status expert_shapes(const std::string& name, const expert_tensors& e, long width) {
    for (const status& s : {shape(name + ".gate", e.gate, width, C::hidden), shape(name + ".up", e.up, width, C::hidden),
                            shape(name + ".down", e.down, C::hidden, width)})
      if (!s) return s;
    return {};
  }
  static constexpr long model_width = long(C::expert_width) * C::ranks;

  static status check_shapes(u64 kind, const glm5_tensors& t) {
    const auto vector = [](const char* name, const void* at) {
      return at != nullptr ? status{} : error(error_code::bad_pointer, name, "null", "the vector");
    };
    for (const status& s :
         {vector("input_norm", t.input_norm), vector("post_norm", t.post_norm), vector("q_a_norm", t.q_a_norm),
          vector("kv_a_norm", t.kv_a_norm), shape("q_a", t.q_a, C::q_lora, C::hidden),
          shape("kv_a", t.kv_a, C::kv_lora + C::rope, C::hidden), shape("q_b", t.q_b, heads * P::head_dim, C::q_lora),
          shape("kv_b", t.kv_b, heads * (C::nope + C::v_dim), C::kv_lora),
          shape("o", t.o, C::hidden, heads * C::v_dim)})
      if (!s) return s;
    if (has_indexer(kind))
      for (const status& s : {shape("index_q", t.index_q, C::index_heads * C::index_dim, C::q_lora),
                              shape("index_k", t.index_k, C::index_dim, C::hidden),
                              shape("index_weights", t.index_weights, C::index_heads, C::hidden),
                              vector("index_k_norm_weight", t.index_k_norm_weight),
                              vector("index_k_norm_bias", t.index_k_norm_bias)})
        if (!s) return s;
    if (is_dense(kind)) return expert_shapes("dense", t.dense, model_width * C::dense_slices);
    for (const status& s : {shape("router", t.router, C::experts, C::hidden), vector("router_bias", t.router_bias),
                            expert_shapes("shared", t.shared, model_width)})
      if (!s) return s;
    return t.expert ? status{} : error(error_code::bad_pointer, "expert", "no function", "one that returns an expert");
  }

  static status pack_into(std::span<u8> to, u64 kind, int id, const glm5_tensors& t, int rank,
                          std::span<const int> experts) {
    const auto matrix = [&]<class Stage>(checkpoint_matrix m, long features, long first_row = 0, long first_column = 0) {
      m.first_row += first_row;
      m.first_column += first_column;
      return pack<T, typename Stage::weights>(to, {&m, 1}, features, name_of(id), Stage::splits);
    };
    const auto padded_matrix = [&]<class Stage>(const checkpoint_matrix& m, int features) {
      const std::vector<u16> rows = padded_rows(m, features);
      return matrix.template operator()<Stage>(
          checkpoint_matrix{.data = rows.data(), .rows = features, .columns = m.columns}, features);
    };
    const auto vector = [&](const void* from, u64 bytes) {
      std::memcpy(to.data(), from, bytes);
      return status{};
    };
    const long width = C::expert_width;
    switch (id) {
      case P::input_norm: return vector(t.input_norm, C::hidden * 2);
      case P::post_norm: return vector(t.post_norm, C::hidden * 2);
      case P::q_a_norm: return vector(t.q_a_norm, C::q_lora * 2);
      case P::kv_a_norm: return vector(t.kv_a_norm, C::kv_lora * 2);
      case P::router_bias: return vector(t.router_bias, C::experts * 4);
      case P::index_norm_weight: return vector(t.index_k_norm_weight, C::index_dim * 4);
      case P::index_norm_bias: return vector(t.index_k_norm_bias, C::index_dim * 4);
      case P::q_a_weights: return matrix.template operator()<typename P::q_a_stage>(t.q_a, C::q_lora);
      case P::kv_a_weights: return matrix.template operator()<typename P::kv_a_stage>(t.kv_a, C::kv_lora + C::rope);
      case P::q_b_weights: {
        const long rows = C::heads * P::head_dim;
        return matrix.template operator()<typename P::q_b_stage>(t.q_b, rows, rank * rows);
      }
      case P::nope_factors: {
        if (t.kv_b.scales == nullptr) return error(error_code::bad_pointer, "kv_b.scales", "null", "f32 scales by row");
        for (long h = 0; h < C::heads; ++h)
          std::memcpy(to.data() + h * C::nope * 4, t.kv_b.scales + (rank * C::heads + h) * (C::nope + C::v_dim),
                      C::nope * 4);
        return {};
      }
      case P::uk_weights:
        return pack_w_uk<T, typename C::attention_weights, typename P::absorb_stage::weights>(to, kv_b(t, rank), "w_uk");
      case P::uv_weights: return pack_w_uv<T, typename P::v_up_stage::weights>(to, kv_b(t, rank), "w_uv");
      case P::o_weights: return matrix.template operator()<typename P::o_stage>(t.o, C::hidden, 0, long(rank) * C::heads * C::v_dim);
      case P::index_q_weights:
        return matrix.template operator()<typename P::index_q_stage>(t.index_q, C::index_heads * C::index_dim);
      case P::index_k_weights: return matrix.template operator()<typename P::index_k_stage>(t.index_k, C::index_dim);
      case P::index_head_weights:
        return padded_matrix.template operator()<typename P::index_w_stage>(t.index_weights, P::padded_index_heads);
      case P::router_weights: return padded_matrix.template operator()<typename P::router_stage>(t.router, P::padded_experts);
      case P::shared_gate_up: case P::shared_down: {
        const bool dense = is_dense(kind);
        return pack_expert(to, id == P::shared_down, dense ? t.dense : t.shared, 0, rank, dense ? "dense" : "shared");
      }
      case P::routed_gate_up: case P::routed_down: {
        const int count = is_dense(kind) ? dense_experts : C::experts;
        const u64 bytes = to.size() / u64(count);
        for (int e = 0; e < count; ++e) {
          const bool dense = is_dense(kind);
          if (!dense && !experts.empty() && std::find(experts.begin(), experts.end(), e) == experts.end()) continue;
          const std::string name = dense ? "dense" : "expert " + std::to_string(e);
          const expert_tensors one = dense ? t.dense : t.expert(e);
          if (status s = dense ? status{} : expert_shapes(name, one, model_width); !s) return s;
          const long slice = dense ? (e + 1) * width * C::ranks : 0;
          if (status s = pack_expert(to.subspan(u64(e) * bytes, bytes), id == P::routed_down, one, slice, rank, name); !s)
            return s;
        }
        return {};
      }
      default: return {};
    }
  }

  static kv_b_heads kv_b(const glm5_tensors& t, int rank) {
    return {t.kv_b, C::nope, C::v_dim, C::kv_lora, long(rank) * C::heads, C::heads};
  }

  /// One expert's gate and up, or its down: `width` rows (columns of down) from `slice` on, of which this rank has a part.
  static status pack_expert(std::span<u8> to, bool down, const expert_tensors& e, long slice, int rank,
                            const std::string& name) {
    const long first = slice + long(rank) * C::expert_width;
    if (down) {
      checkpoint_matrix m = e.down;
      m.first_column += first;
      return pack<T, typename P::down_stage::weights>(to, {&m, 1}, C::hidden, name + ".down");
    }
    checkpoint_matrix m[2] = {e.gate, e.up};
    for (checkpoint_matrix& one : m) one.first_row += first;
    return pack<T, typename P::shared_stage::weights>(to, m, C::expert_width, name + ".gate_up");
  }

  /// bf16 rows, then rows of zeros.
  static std::vector<u16> padded_rows(const checkpoint_matrix& m, int rows) {
    std::vector<u16> all(std::size_t(rows) * std::size_t(m.columns));
    std::memcpy(all.data(), m.data, std::size_t(m.rows) * std::size_t(m.columns) * 2);
    return all;
  }
};

/// Device addresses of a layer's packed data with their headers, and the caller's memory.
template <class C>
struct bound_glm5 {
  std::array<bound_weights, glm5<C>::data_count> data;
  void* kv_cache = nullptr;     // rows of C::kv_cache, batch_view's strides
  void* index_cache = nullptr;  // pages of C::index_cache; of layers with an indexer
  int* picks_out = nullptr;     // may be null: a copy of the picks, global slots at batch_view::list_starts
};

/// The entry that a launch walks. Errors: data packed for another target, format, geometry, kind or rank; null or
/// misaligned caches.
template <class T, class C>
result<layer_entry> bind_glm5(u64 kind, const bound_glm5<C>& w, int rank) {
  using P = glm5<C>;
  using host = glm5_host<T, C>;
  if (kind >= P::kind_count)
    return error(error_code::bad_value, "kind", std::to_string(kind), "below " + std::to_string(P::kind_count));
  if (rank < 0 || rank >= C::ranks)
    return error(error_code::bad_value, "rank", std::to_string(rank), "0.." + std::to_string(C::ranks - 1));
  layer_entry e{};
  e.kind = kind;
  for (int id = 0; id < P::data_count; ++id) {
    const auto wanted = host::header_of(kind, id, rank);
    if (!wanted) continue;
    if (status s = check_weights(host::name_of(id), w.data[id], *wanted); !s) return s;
    e.data[id] = w.data[id].data;
  }
  if (status s = detail::check_buffer("kv_cache", w.kv_cache, 16, 16, 16); !s) return s;
  e.data[P::kv_cache] = w.kv_cache;
  if (host::has_indexer(kind)) {
    if (status s = detail::check_buffer("index_cache", w.index_cache, 16, 16, C::index_cache::alignment); !s) return s;
    if (w.picks_out != nullptr)
      if (status s = detail::check_buffer("picks_out", w.picks_out, 4, 4, 4); !s) return s;
    e.data[P::index_cache] = w.index_cache;
    e.data[P::picks_out] = w.picks_out;
  } else if (w.picks_out != nullptr) {
    return error(error_code::bad_pointer, "picks_out", "memory for picks", "null: this kind of layer picks nothing");
  }
  return e;
}

}  // namespace monolayer
