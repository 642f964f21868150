// pack_w_uk and pack_w_uv: every weight of kv_b's two halves where the kernels look for it, and what is refused.
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>

#include "mla/model.hpp"
#include "monolayer/arch/sim/targets.hpp"
#include "monolayer/host/pack_heads.hpp"

using namespace monolayer;
using test::weight_matrix;

namespace {

template <class F>
constexpr auto kind_of = F::piece_bytes == 16           ? weight_matrix::bf16
                         : F::chunk_scale_bytes != 0 ? weight_matrix::channel
                                                     : weight_matrix::block;
constexpr long nope = 192, v_dim = 256, latent = 512, first_head = 1, heads = 2;  // heads of 448 rows, the first begins in a block

kv_b_heads heads_of(const weight_matrix& m) {
  return {{m.data.data(), m.scales.data(), nullptr, m.rows, m.columns, 0, 0}, nope, v_dim, latent, first_head, heads};
}

/// The value that the packed form has for (feature, k) of tile `first_tile` + feature / (16 subtiles).
template <class T, class Tile>
double packed_value(const std::vector<u8>& packed, long first_tile, long feature, long k) {
  using F = typename Tile::format;
  const long tile = first_tile + feature / (16 * Tile::subtiles), sub = feature / 16 % Tile::subtiles, i = feature % 16;
  const long unit = k / 128, s = k % 128 / 32, chunk = unit / Tile::units_per_chunk, in_chunk = unit % Tile::units_per_chunk;
  const u8* at = packed.data() + u64(tile) * Tile::bytes + u64(sub * Tile::chunks + chunk) * Tile::chunk_bytes;
  for (int lane = 0; lane < T::wave_size; ++lane)
    for (int h = 0; h < T::lane_rows; ++h) {
      if (T::a_row(lane, h) != i || T::k_group(lane) != k % 32 / 8) continue;
      const u8* piece = at + u32(in_chunk) * Tile::unit_bytes + piece_offset<T, F>(lane, int(s), h);
      if constexpr (F::piece_bytes == 16) {
        return test::row_value(piece, int(k % 8), false);
      } else {
        long scale_at = 0;
        if constexpr (has_step_scale<F>) scale_at = in_chunk * 16 + s * 4;
        else if constexpr (F::chunk_scale_bytes != 0) scale_at = i * 4;
        else scale_at = in_chunk * 4;
        float scale;
        std::memcpy(&scale, at + Tile::scales_at + scale_at, 4);
        return test::of_e4m3(piece[k % 8]) * double(scale);
      }
    }
  return 1e300;
}

template <class Target, class Format>
struct of {
  using T = Target;
  using F = Format;
};

}  // namespace

TEMPLATE_TEST_CASE("the halves of kv_b, head by head", "[pack]", (of<sim::gfx950, bf16_weights>),
                   (of<sim::sm90, bf16_weights>), (of<sim::gfx950, fp8_block<128, 128>>), (of<sim::sm90, fp8_block<128, 128>>),
                   (of<sim::gfx950, fp8_channel>), (of<sim::sm90, fp8_channel>)) {
  using T = typename TestType::T;
  using F = typename TestType::F;
  using uk = weight_tile<typename absorbed_format<F>::type, nope, 8>;
  using uv = weight_tile<F, latent, 8>;
  const weight_matrix m(kind_of<F>, (first_head + heads) * (nope + v_dim), latent, 3, 0.5);
  const kv_b_heads h = heads_of(m);
  const packed_header k_header = header_for_heads<T, uk>(latent, heads, 2, 1), v_header = header_for_heads<T, uv>(v_dim, heads, 2, 1);
  CHECK(k_header.bytes == heads * 4 * uk::bytes);
  CHECK(k_header.features == latent);
  std::vector<u8> k_half(k_header.bytes, 0xEE), v_half(v_header.bytes, 0xEE);
  REQUIRE(pack_w_uk<T, F, uk>(k_half, h, "w_uk").text() == "ok");
  REQUIRE(pack_w_uv<T, uv>(v_half, h, "w_uv").text() == "ok");
  long wrong = 0;
  for (long head = 0; head < heads; ++head) {
    const long row = (first_head + head) * (nope + v_dim);
    for (long c = 0; c < latent; c += 3)
      for (long n = 0; n < uk::padded_k; ++n)
        wrong += packed_value<T, uk>(k_half, head * latent / 128, c, n) != (n < nope ? m.at(row + n, c, false) : 0.0);
    for (long v = 0; v < v_dim; v += 3)
      for (long c = 0; c < latent; ++c) wrong += packed_value<T, uv>(v_half, head * v_dim / 128, v, c) != m.at(row + nope + v, c);
  }
  CHECK(wrong == 0);
}

TEST_CASE("what packing kv_b refuses", "[pack]") {
  using T = sim::gfx950;
  using F = fp8_block<128, 128>;
  using uk = weight_tile<fp8_steps, nope, 8>;
  using uv = weight_tile<F, latent, 8>;
  weight_matrix m(weight_matrix::block, (first_head + heads) * (nope + v_dim), latent, 3, 0.5);
  const auto told = [&](auto change, std::size_t missing = 0) {
    kv_b_heads h = heads_of(m);
    change(h);
    std::vector<u8> k_half(heads * 4 * uk::bytes - missing, 0xEE), v_half(heads * 2 * uv::bytes - missing, 0xEE);
    const status k = pack_w_uk<T, F, uk>(k_half, h, "w_uk"), v = pack_w_uv<T, uv>(v_half, h, "w_uv");
    if (!k.ok()) CHECK(k_half == std::vector<u8>(k_half.size(), 0xEE));
    if (!v.ok()) CHECK(v_half == std::vector<u8>(v_half.size(), 0xEE));
    return k.text() + " | " + v.text();
  };
  CHECK(told([](auto&) {}) == "ok | ok");
  CHECK(told([](auto&) {}, 1) == "w_uk buffer: seen " + std::to_string(heads * 4 * uk::bytes - 1) + " bytes, wanted " +
                                     std::to_string(heads * 4 * uk::bytes) + " | w_uv buffer: seen " +
                                     std::to_string(heads * 2 * uv::bytes - 1) + " bytes, wanted " +
                                     std::to_string(heads * 2 * uv::bytes));
  CHECK(told([](auto& h) { h.first_head = 2; }) ==
        "w_uk.rows: seen 1344, wanted at least 1792 | w_uv.rows: seen 1344, wanted at least 1792");
  CHECK(told([](auto& h) { h.heads = 0; }) ==
        "w_uk heads: seen 0 from 1 of 192 + 256 x 512, wanted positive numbers | w_uv heads: seen 0 from 1 of 192 + 256 x "
        "512, wanted positive numbers");
  CHECK(told([](auto& h) { h.nope = 128; }) ==
        "w_uk nope, latent: seen 128, 512, wanted 192, a multiple of 128 | ok");
  CHECK(told([](auto& h) { h.v_dim = 200; }) ==
        "w_uk rows of a head: seen 192 + 200, wanted a sum that is a multiple of 32, the first a multiple of 16 | w_uv "
        "latent, v_dim: seen 512, 200, wanted 512, a multiple of 128");
  CHECK(told([](auto& h) { h.matrix.scales = nullptr; }) ==
        "w_uk.scales: seen null, wanted f32 scales for fp8_block<128, 128> | w_uv.scales: seen null, wanted f32 scales for "
        "fp8_block<128, 128>");
  m.data[(448 + 200) * 512 + 7] = 0xff;  // in W_UV of the first head; either half refuses it
  CHECK(told([](auto&) {}) == "w_uk at row 200, column 7: seen NaN, wanted a number | w_uv at row 200, column 7: seen NaN, wanted a "
                              "number");
}
