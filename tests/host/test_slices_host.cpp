// Weights that belong to another kernel, and the layer entries of the two slices.
#include <catch2/catch_test_macros.hpp>

#include "monolayer/arch/sim/targets.hpp"
#include "monolayer/host/slices.hpp"

using namespace monolayer;

namespace {

using T = sim::gfx950;
using C = small_slices<2>;
using P = slices<C>;
using packer = slice_packer<T, C>;

const void* placed(std::uintptr_t at) { return reinterpret_cast<const void*>(at); }

slice_a_weights good_a() {
  return {placed(0x1000),
          {header_for<T, P::q_a_stage::weights>(C::q_lora, 1, 2, 1), placed(0x2000)},
          placed(0x3000),
          {header_for<T, P::q_b_stage::weights>(P::q_columns, 1, 2, 1), placed(0x4000)},
          const_cast<void*>(placed(0x5000))};
}
slice_b_weights good_b() {
  return {placed(0x1000),
          {header_for<T, P::router_stage::weights>(C::router_splits * C::experts, 1, 2, 1), placed(0x2000)},
          placed(0x3000),
          {packer::gate_up_header(1, 1), placed(0x4000)},
          {packer::down_header(1, 1), placed(0x5000)},
          {packer::gate_up_header(C::experts, 1), placed(0x6000)},
          {packer::down_header(C::experts, 1), placed(0x7000)}};
}

template <class F>
std::string told_a(error_code code, F change) {
  slice_a_weights w = good_a();
  change(w);
  const auto r = bind_slice_a<T, C>(w, 1);
  if (!r.ok()) CHECK(r.why().code == code);
  return r.why().text();
}
template <class F>
std::string told_b(error_code code, F change) {
  slice_b_weights w = good_b();
  change(w);
  const auto r = bind_slice_b<T, C>(w, 1);
  if (!r.ok()) CHECK(r.why().code == code);
  return r.why().text();
}

constexpr auto bad_pointer = error_code::bad_pointer, mismatch = error_code::mismatch;

}  // namespace

TEST_CASE("a slice's entry holds its weights in the order of the kind", "[slices]") {
  const slice_a_weights a = good_a();
  const layer_entry ea = bind_slice_a<T, C>(a, 1).value();
  CHECK(ea.kind == u64(P::slice_a));
  CHECK(ea.data[P::input_norm] == a.input_norm);
  CHECK(ea.data[P::q_a_weights] == a.q_a.data);
  CHECK(ea.data[P::q_a_norm] == a.q_a_norm);
  CHECK(ea.data[P::q_b_weights] == a.q_b.data);
  CHECK(ea.output == a.q);
  const slice_b_weights b = good_b();
  const layer_entry eb = bind_slice_b<T, C>(b, 1).value();
  CHECK(eb.kind == u64(P::slice_b));
  CHECK(eb.data[P::post_norm] == b.post_norm);
  CHECK(eb.data[P::router_weights] == b.router.data);
  CHECK(eb.data[P::router_bias] == b.router_bias);
  CHECK(eb.data[P::shared_gate_up] == b.shared_gate_up.data);
  CHECK(eb.data[P::shared_down] == b.shared_down.data);
  CHECK(eb.data[P::routed_gate_up] == b.routed_gate_up.data);
  CHECK(eb.data[P::routed_down] == b.routed_down.data);
  CHECK(eb.output == nullptr);
}

TEST_CASE("slice A refuses missing and misaligned memory", "[slices]") {
  CHECK(told_a(bad_pointer, [](auto& w) { w.input_norm = nullptr; }) == "input_norm: seen null, wanted 1024 bytes");
  CHECK(told_a(bad_pointer, [](auto& w) { w.input_norm = placed(0x1002); }) ==
        "input_norm: seen an address that is 2 modulo 16, wanted 16-byte alignment");
  CHECK(told_a(bad_pointer, [](auto& w) { w.q_a_norm = nullptr; }) == "q_a_norm: seen null, wanted 512 bytes");
  CHECK(told_a(bad_pointer, [](auto& w) { w.q = nullptr; }) == "q: seen null, wanted 16 bytes");
  CHECK(told_a(bad_pointer, [](auto& w) { w.q = const_cast<void*>(placed(0x5008)); }) ==
        "q: seen an address that is 8 modulo 16, wanted 16-byte alignment");
  CHECK(told_a(bad_pointer, [](auto& w) { w.q_a.data = nullptr; }) == "q_a: seen null, wanted packed weights");
  CHECK(told_a(bad_pointer, [](auto& w) { w.q_b.data = placed(0x4008); }) ==
        "q_b: seen a misaligned address, wanted 16-byte alignment");
}

TEST_CASE("slice B refuses missing memory", "[slices]") {
  CHECK(told_b(bad_pointer, [](auto& w) { w.post_norm = nullptr; }) == "post_norm: seen null, wanted 1024 bytes");
  CHECK(told_b(bad_pointer, [](auto& w) { w.router_bias = nullptr; }) == "router_bias: seen null, wanted 64 bytes");
  CHECK(told_b(bad_pointer, [](auto& w) { w.router.data = nullptr; }) == "router: seen null, wanted packed weights");
  CHECK(told_b(bad_pointer, [](auto& w) { w.shared_gate_up.data = nullptr; }) ==
        "shared_gate_up: seen null, wanted packed weights");
  CHECK(told_b(bad_pointer, [](auto& w) { w.shared_down.data = nullptr; }) == "shared_down: seen null, wanted packed weights");
  CHECK(told_b(bad_pointer, [](auto& w) { w.routed_gate_up.data = nullptr; }) ==
        "routed_gate_up: seen null, wanted packed weights");
  CHECK(told_b(bad_pointer, [](auto& w) { w.routed_down.data = nullptr; }) == "routed_down: seen null, wanted packed weights");
}

TEST_CASE("weights packed for another kernel are refused, field by field", "[slices]") {
  auto differs = [](const std::string& field, u64 seen, u64 wanted) {
    return "q_a." + field + ": seen " + std::to_string(seen) + ", wanted " + std::to_string(wanted);
  };
  const packed_header h = good_a().q_a.header;
  CHECK(told_a(mismatch, [](auto& w) { w.q_a.header.magic = 1; }) == differs("magic", 1, h.magic));
  CHECK(told_a(mismatch, [](auto& w) { w.q_a.header.layout_version += 1; }) ==
        differs("layout_version", h.layout_version + 1, h.layout_version));
  CHECK(told_a(mismatch, [](auto& w) { w.q_a.header.wave_size = 32; }) == differs("wave_size", 32, 64));
  CHECK(told_a(mismatch, [](auto& w) { w.q_a.header.format = 2; }) == differs("format", 2, 1));
  CHECK(told_a(mismatch, [](auto& w) { w.q_a.header.subtiles = 2; }) == differs("subtiles", 2, 1));
  CHECK(told_a(mismatch, [](auto& w) { w.q_a.header.features = 128; }) == differs("features", 128, 256));
  CHECK(told_a(mismatch, [](auto& w) { w.q_a.header.k = 256; }) == differs("k", 256, 512));
  CHECK(told_a(mismatch, [](auto& w) { w.q_a.header.count = 2; }) == differs("count", 2, 1));
  CHECK(told_a(mismatch, [](auto& w) { w.q_a.header.ranks = 4; }) == differs("ranks", 4, 2));
  CHECK(told_a(mismatch, [](auto& w) { w.q_a.header.rank = 0; }) == differs("rank", 0, 1));
  CHECK(told_a(mismatch, [](auto& w) { w.q_a.header.bytes += 16; }) == differs("bytes", h.bytes + 16, h.bytes));
}

TEST_CASE("weights of one place are refused in another", "[slices]") {
  CHECK(told_b(mismatch, [](auto& w) { w.shared_gate_up = w.routed_gate_up; }) ==
        "shared_gate_up.count: seen 16, wanted 1");
  CHECK(told_b(mismatch, [](auto& w) { w.routed_down = w.routed_gate_up; }) == "routed_down.subtiles: seen 2, wanted 1");
  CHECK(told_b(mismatch, [](auto& w) { w.router = good_a().q_a; }) == "router.format: seen 1, wanted 0");
  CHECK(bind_slice_b<sim::sm90, C>(good_b(), 1).why().text() == "router.wave_size: seen 64, wanted 32");
  CHECK(bind_slice_a<T, C>(good_a(), 0).why().text() == "q_a.rank: seen 1, wanted 0");
}

TEST_CASE("the packer names the tensor", "[slices]") {
  slice_a_tensors t;
  CHECK(packer::q_a(t, 0).why().text() == "q_a.data: seen null, wanted the matrix");
  std::vector<u8> codes(512 * 256);
  std::vector<float> scales(64, 1.0f);
  t.q_b = {codes.data(), scales.data(), nullptr, 511, 256, 0, 0};
  CHECK(packer::q_b(t, 0).ok());
  CHECK(packer::q_b(t, 1).why().text() == "q_b.rows: seen 511, wanted at least 512");
  expert_tensors e;
  std::vector<u8> to(packer::gate_up_bytes, 0xEE);
  CHECK(packer::expert_gate_up(to, e, 0, "expert 3").text() == "expert 3.data: seen null, wanted the matrix");
  CHECK(packer::expert_down(std::span<u8>(to).first(16), e, 0, "expert 3").text() ==
        "expert 3 buffer: seen 16 bytes, wanted " + std::to_string(packer::down_bytes));
  CHECK(to == std::vector<u8>(packer::gate_up_bytes, 0xEE));
}
