// What a caller can get wrong about the tensors and the packed weights of whole layers, each with the words
// that it is told. An error returns nothing but itself, and what was handed over is as it was.
#include <catch2/catch_test_macros.hpp>

#include "glm5/model.hpp"
#include "monolayer/arch/sim/targets.hpp"

using namespace monolayer;
using namespace monolayer::test;

namespace {

using T = sim::gfx950;
using C = micro_layer<2>;
using P = glm5<C>;
constexpr auto bad_value = error_code::bad_value, bad_pointer = error_code::bad_pointer,
               shape = error_code::bad_shape, mismatch = error_code::mismatch;

template <class Config>
const reference::glm5_layer& layer(bool dense) {
  const auto make = [](bool is_dense) {
    reference::glm5_layer_options o = glm5_formats_of<Config>();
    o.dense = is_dense;
    return reference::make_glm5_layer(glm5_geometry_of<Config>(), 3, o);
  };
  static const reference::glm5_layer with_experts = make(false), with_mlp = make(true);
  return dense ? with_mlp : with_experts;
}

/// What pack_layer says of a layer's tensors after `change`.
template <class Config = C, class F>
std::string told(error_code code, u64 kind, F change, int rank = 1,
                 const std::vector<int>& experts = {0, 3}) {
  glm5_tensor_store store(layer<Config>(glm5_host<T, Config>::is_dense(kind)));
  change(store.tensors);
  const auto r = glm5_host<T, Config>::pack_layer(kind, store.tensors, rank, experts);
  if (r.ok()) return "ok";
  CHECK(r.why().code == code);
  CHECK(r.why().text() == r.why().argument + ": seen " + r.why().seen + ", wanted " + r.why().wanted);
  return r.why().text();
}
void nothing(glm5_tensors&) {}

/// A copy of a matrix's codes or factors with one changed.
struct changed {
  std::vector<u8> codes, block_scales;
  std::vector<float> scales;

  void code(checkpoint_matrix& m, long row, long column, u8 to) {
    const auto* from = static_cast<const u8*>(m.data);
    codes.assign(from, from + m.rows * m.columns);
    codes[std::size_t(row * m.columns + column)] = to;
    m.data = codes.data();
  }
  void scale(checkpoint_matrix& m, std::size_t count, std::size_t at, float to) {
    scales.assign(m.scales, m.scales + count);
    scales[at] = to;
    m.scales = scales.data();
  }
  void block_scale(checkpoint_matrix& m, std::size_t at, u8 to) {
    block_scales.assign(m.block_scales, m.block_scales + m.rows * (m.columns / 32));
    block_scales[at] = to;
    m.block_scales = block_scales.data();
  }
};

}  // namespace

TEST_CASE("a layer's tensors are packed where they are right", "[pack]") {
  for (u64 kind : {P::dense, P::dense_listed, P::moe, P::moe_listed})
    CHECK(told(bad_value, kind, nothing) == "ok");
  // A layer without an indexer needs none of its tensors, a dense one no experts.
  CHECK(told(bad_value, P::moe_listed, [](glm5_tensors& t) { t.index_q = t.index_k = t.index_weights = {}; }) ==
        "ok");
  CHECK(told(bad_value, P::dense, [](glm5_tensors& t) { t.router = {}, t.expert = {}; }) == "ok");
}

TEST_CASE("a choice of experts leaves a dense layer whole", "[pack]") {
  glm5_tensor_store store(layer<C>(true));
  const auto all = glm5_host<T, C>::pack_layer(P::dense, store.tensors, 0),
             some = glm5_host<T, C>::pack_layer(P::dense, store.tensors, 0, std::vector{7});
  CHECK(all.value()[P::routed_gate_up].bytes == some.value()[P::routed_gate_up].bytes);
  CHECK(all.value()[P::routed_down].bytes == some.value()[P::routed_down].bytes);
}

TEST_CASE("pack_layer refuses kinds, ranks and experts that do not exist", "[pack]") {
  glm5_tensor_store store(layer<C>(false));
  CHECK(glm5_host<T, C>::pack_layer(4, store.tensors, 0).why().text() == "kind: seen 4, wanted below 4");
  CHECK(told(bad_value, P::moe, nothing, 2) == "rank: seen 2, wanted 0..1");
  CHECK(told(bad_value, P::moe, nothing, -1) == "rank: seen -1, wanted 0..1");
  CHECK(told(bad_value, P::moe, nothing, 0, {0, 8}) == "experts: seen 8, wanted 0..7");
  CHECK(told(bad_value, P::moe, nothing, 0, {-1}) == "experts: seen -1, wanted 0..7");
}

TEST_CASE("pack_layer refuses missing tensors", "[pack]") {
  CHECK(told(bad_pointer, P::moe, [](auto& t) { t.input_norm = nullptr; }) ==
        "input_norm: seen null, wanted the vector");
  CHECK(told(bad_pointer, P::moe, [](auto& t) { t.post_norm = nullptr; }) ==
        "post_norm: seen null, wanted the vector");
  CHECK(told(bad_pointer, P::moe, [](auto& t) { t.q_a_norm = nullptr; }) ==
        "q_a_norm: seen null, wanted the vector");
  CHECK(told(bad_pointer, P::moe, [](auto& t) { t.kv_a_norm = nullptr; }) ==
        "kv_a_norm: seen null, wanted the vector");
  CHECK(told(bad_pointer, P::moe, [](auto& t) { t.kv_b.data = nullptr; }) ==
        "kv_b: seen null, wanted the matrix");
  CHECK(told(bad_pointer, P::moe, [](auto& t) { t.index_k_norm_bias = nullptr; }) ==
        "index_k_norm_bias: seen null, wanted the vector");
  CHECK(told(bad_pointer, P::moe, [](auto& t) { t.index_q = {}; }) == "index_q: seen null, wanted the matrix");
  CHECK(told(bad_pointer, P::moe, [](auto& t) { t.router_bias = nullptr; }) ==
        "router_bias: seen null, wanted the vector");
  CHECK(told(bad_pointer, P::moe, [](auto& t) { t.expert = {}; }) ==
        "expert: seen no function, wanted one that returns an expert");
  CHECK(told(bad_pointer, P::moe, [](auto& t) { t.shared.up.data = nullptr; }) ==
        "shared.up: seen null, wanted the matrix");
  // The tensors of the other kind of MLP.
  CHECK(told(bad_pointer, P::moe, [](auto& t) { t.router = {}; }) == "router: seen null, wanted the matrix");
  CHECK(told(bad_pointer, P::dense, [](auto& t) { t.dense = {}; }) == "dense.gate: seen null, wanted the matrix");
  CHECK(told(bad_pointer, P::moe, [](auto& t) { t.q_a.scales = nullptr; }) ==
        "q_a.scales: seen null, wanted f32 scales for fp8_block<128, 128>");
  CHECK(told(bad_pointer, P::moe, [](auto& t) { t.shared.down.block_scales = nullptr; }) ==
        "shared.down.block_scales: seen null, wanted e8m0 scales");
}

TEST_CASE("pack_layer refuses tensors of another shape", "[pack]") {
  CHECK(told(shape, P::moe, [](auto& t) { t.q_a.rows = 64; }) == "q_a: seen 64 x 256, wanted 128 x 256");
  CHECK(told(shape, P::moe, [](auto& t) { std::swap(t.kv_a.rows, t.kv_a.columns); }) ==
        "kv_a: seen 256 x 576, wanted 576 x 256");
  // One rank's heads instead of the model's.
  CHECK(told(shape, P::moe, [](auto& t) { t.q_b.rows /= 2; }) == "q_b: seen 512 x 128, wanted 1024 x 128");
  CHECK(told(shape, P::moe, [](auto& t) { t.kv_b.rows -= 1; }) == "kv_b: seen 1023 x 512, wanted 1024 x 512");
  CHECK(told(shape, P::moe, [](auto& t) { t.o.columns = 256; }) == "o: seen 256 x 256, wanted 256 x 512");
  CHECK(told(shape, P::moe, [](auto& t) { t.index_weights.rows = 16; }) ==
        "index_weights: seen 16 x 256, wanted 8 x 256");
  CHECK(told(shape, P::moe, [](auto& t) { t.router.rows = 7; }) == "router: seen 7 x 256, wanted 8 x 256");
  CHECK(told(shape, P::moe, [](auto& t) { t.shared.gate.rows = 128; }) ==
        "shared.gate: seen 128 x 256, wanted 256 x 256");
  CHECK(told(shape, P::dense, [](auto& t) { t.dense.down.columns = 256; }) ==
        "dense.down: seen 256 x 256, wanted 256 x 512");
  CHECK(told(shape, P::moe, [](auto& t) { t.q_a.first_row = 16; }) ==
        "q_a: seen a window from 16, 0, wanted the whole matrix");
  CHECK(told(shape, P::moe, [](auto& t) { t.router.first_column = 128; }) ==
        "router: seen a window from 0, 128, wanted the whole matrix");
}

TEST_CASE("pack_layer looks at every routed expert that it packs", "[pack]") {
  const auto with = [](int bad, auto change) {
    return [=](glm5_tensors& t) {
      t.expert = [=, all = t.expert](int e) {
        expert_tensors one = all(e);
        if (e == bad) change(one);
        return one;
      };
    };
  };
  const auto wide = [](expert_tensors& e) { e.gate.rows = 512; };
  CHECK(told(shape, P::moe, with(3, wide)) == "expert 3.gate: seen 512 x 256, wanted 256 x 256");
  CHECK(told(bad_pointer, P::moe, with(3, [](expert_tensors& e) { e.down = {}; })) ==
        "expert 3.down: seen null, wanted the matrix");
  CHECK(told(shape, P::moe, with(4, wide)) == "ok");  // not one of the chosen
}

TEST_CASE("pack_layer refuses codes and factors that are no numbers", "[pack]") {
  changed c;
  CHECK(told(bad_value, P::moe, [&](auto& t) { c.code(t.q_a, 5, 77, 0x7f); }) ==
        "q_a at row 5, column 77: seen NaN, wanted a number");
  CHECK(told(bad_value, P::moe, [&](auto& t) { c.code(t.index_k, 1, 2, 0xff); }) ==
        "index_k at row 1, column 2: seen NaN, wanted a number");
  // Row 600 of q_b is row 88 of rank 1's.
  CHECK(told(bad_value, P::moe, [&](auto& t) { c.code(t.q_b, 600, 0, 0x7f); }) ==
        "q_b at row 88, column 0: seen NaN, wanted a number");
  CHECK(told(
            bad_value, P::moe, [&](auto& t) { c.code(t.q_b, 600, 0, 0x7f); }, 0) == "ok");  // nor rank 0's
  CHECK(told(bad_value, P::moe, [&](auto& t) { c.code(t.kv_b, 513, 3, 0x7f); }) ==
        "w_uk at row 1, column 3: seen NaN, wanted a number");
  const float infinite = bits_to_float(0x7f800000u), nan = bits_to_float(0x7fc00000u);
  CHECK(told(bad_value, P::moe, [&](auto& t) { c.scale(t.q_a, 2, 1, infinite); }) ==
        "q_a scale of row 0, column 128: seen inf, wanted a finite number");
  CHECK(told(
            bad_value, P::moe, [&](auto& t) { c.scale(t.o, 8, 5, nan); }, 0) ==
        "o scale of row 128, column 128: seen nan, wanted a finite number");
  CHECK(told(bad_value, P::moe, [&](auto& t) { c.block_scale(t.shared.down, 13, 255); }) ==
        "shared.down scale at row 1, block 1: seen e8m0 255, wanted at most " +
            std::to_string(int(T::mxfp4_largest_scale)));
  CHECK(told(
            bad_value, P::moe, [&](auto& t) { c.block_scale(t.shared.down, 9, 255); }, 0) ==
        "shared.down scale at row 1, block 1: seen e8m0 255, wanted at most " +
            std::to_string(int(T::mxfp4_largest_scale)));
}

TEST_CASE("pack_layer refuses factors by channel that are missing or no numbers", "[pack]") {
  using channel = with_mxfp4_layer<C>;
  changed c;
  CHECK(told<channel>(bad_value, P::moe, nothing) == "ok");
  CHECK(told<channel>(bad_pointer, P::moe, [](auto& t) { t.kv_b.scales = nullptr; }) ==
        "kv_b.scales: seen null, wanted f32 scales by row");
  CHECK(told<channel>(bad_value, P::moe, [&](auto& t) {
          c.scale(t.q_b, 1024, 512 + 7, bits_to_float(0xff800000u));
        }) == "q_b scale of row 7, column 0: seen -inf, wanted a finite number");
  CHECK(told<channel>(bad_pointer, P::moe, [](auto& t) { t.o.scales = nullptr; }) ==
        "o.scales: seen null, wanted f32 scales for fp8_channel");
}

namespace {

const void* placed(std::uintptr_t at) { return reinterpret_cast<const void*>(at); }

template <class V>
V* placed_at(std::uintptr_t at) {
  return reinterpret_cast<V*>(at);
}

bound_glm5<C> bound(u64 kind, int rank) {
  bound_glm5<C> b;
  for (int id = 0; id < P::data_count; ++id)
    if (const auto h = glm5_host<T, C>::header_of(kind, id, rank))
      b.data[std::size_t(id)] = {*h, placed(0x10000 + std::uintptr_t(id) * 0x100)};
  b.kv_cache = const_cast<void*>(placed(0x90000));
  b.index_cache = const_cast<void*>(placed(0xa0000));
  return b;
}
/// What bind_glm5 says of a layer of that kind after `change`.
template <class F>
std::string told_bound(error_code code, u64 kind, F change, int rank = 1) {
  bound_glm5<C> b = bound(kind, 1);
  change(b);
  const auto r = bind_glm5<T, C>(kind, b, rank);
  if (r.ok()) return "ok";
  CHECK(r.why().code == code);
  return r.why().text();
}

}  // namespace

TEST_CASE("a layer's entry holds its data in the order of the program", "[bind]") {
  for (u64 kind : {P::dense, P::dense_listed, P::moe, P::moe_listed}) {
    const bound_glm5<C> b = bound(kind, 1);
    const auto e = bind_glm5<T, C>(kind, b, 1);
    REQUIRE(e.why().text() == "ok");
    CHECK(e.value().kind == kind);
    for (int id = 0; id < P::kv_cache; ++id) CHECK(e.value().data[id] == b.data[std::size_t(id)].data);
    CHECK(e.value().data[P::kv_cache] == b.kv_cache);
    CHECK(e.value().data[P::index_cache] == (glm5_host<T, C>::has_indexer(kind) ? b.index_cache : nullptr));
  }
}

TEST_CASE("bind_glm5 refuses kinds, ranks and memory that cannot be", "[bind]") {
  CHECK(bind_glm5<T, C>(4, bound(P::moe, 1), 1).why().text() == "kind: seen 4, wanted below 4");
  CHECK(told_bound(
            bad_value, P::moe, [](auto&) {}, 2) == "rank: seen 2, wanted 0..1");
  CHECK(told_bound(
            bad_value, P::moe, [](auto&) {}, -1) == "rank: seen -1, wanted 0..1");
  CHECK(told_bound(bad_pointer, P::moe, [](auto& b) { b.kv_cache = nullptr; }) ==
        "kv_cache: seen null, wanted 16 bytes");
  CHECK(told_bound(bad_pointer, P::moe, [](auto& b) { b.kv_cache = const_cast<void*>(placed(0x90008)); }) ==
        "kv_cache: seen an address that is 8 modulo 16, wanted 16-byte alignment");
  CHECK(told_bound(bad_pointer, P::moe, [](auto& b) { b.index_cache = nullptr; }) ==
        "index_cache: seen null, wanted 16 bytes");
  CHECK(told_bound(bad_pointer, P::dense, [](auto& b) { b.index_cache = const_cast<void*>(placed(0xa0004)); }) ==
        "index_cache: seen an address that is 4 modulo 16, wanted 16-byte alignment");
  CHECK(told_bound(bad_pointer, P::moe_listed, [](auto& b) { b.index_cache = nullptr; }) == "ok");
  CHECK(told_bound(bad_pointer, P::moe, [](auto& b) { b.picks_out = placed_at<int>(0xb0002); }) ==
        "picks_out: seen an address that is 2 modulo 4, wanted 4-byte alignment");
  CHECK(told_bound(bad_pointer, P::moe_listed, [](auto& b) { b.picks_out = placed_at<int>(0xb0000); }) ==
        "picks_out: seen memory for picks, wanted null: this kind of layer picks nothing");
}

TEST_CASE("bind_glm5 refuses weights of another rank, kind, place or target", "[bind]") {
  CHECK(told_bound(
            mismatch, P::moe, [](auto&) {}, 0) == "input_norm.rank: seen 1, wanted 0");
  CHECK(told_bound(bad_pointer, P::moe, [](auto& b) { b.data[P::o_weights].data = nullptr; }) ==
        "o: seen null, wanted packed weights");
  CHECK(told_bound(bad_pointer, P::moe, [](auto& b) { b.data[P::uk_weights].data = placed(0x10008); }) ==
        "w_uk: seen a misaligned address, wanted 16-byte alignment");
  CHECK(told_bound(mismatch, P::moe, [](auto& b) {
          b.data[P::shared_gate_up].header = b.data[P::routed_gate_up].header;
        }) == "shared_gate_up.count: seen 8, wanted 1");
  CHECK(told_bound(mismatch, P::moe, [](auto& b) { std::swap(b.data[P::q_a_norm], b.data[P::kv_a_norm]); }) ==
        "q_a_norm.features: seen 512, wanted 128");
  CHECK(told_bound(mismatch, P::moe, [](auto& b) {
          b.data[P::router_bias].header = b.data[P::index_norm_bias].header;
        }) == "router_bias.features: seen 128, wanted 8");
  CHECK(told_bound(mismatch, P::moe, [](auto& b) { b.data[P::uv_weights] = b.data[P::uk_weights]; }) ==
        "w_uv.format: seen 4, wanted 1");
  CHECK(told_bound(mismatch, P::moe, [](auto& b) {
          b.data[P::q_b_weights].header.bytes -= 16;
        }).starts_with("q_b.bytes: seen "));
  // A dense layer's experts are fewer, and a listed layer has no indexer.
  const auto as = [](u64 from, u64 to) {
    const bound_glm5<C> b = bound(from, 1);
    return bind_glm5<T, C>(to, b, 1).why().text();
  };
  CHECK(as(P::dense, P::moe) == "router: seen null, wanted packed weights");
  CHECK(as(P::moe, P::dense) == "routed_gate_up.count: seen 8, wanted 1");
  CHECK(as(P::moe_listed, P::moe) == "index_q: seen null, wanted packed weights");
  CHECK(as(P::moe, P::moe_listed) == "ok");
  CHECK(bind_glm5<sim::sm90, C>(P::moe, bound(P::moe, 1), 1).why().text() ==
        "input_norm.wave_size: seen 64, wanted 32");
}
