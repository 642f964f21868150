// pack(): where each weight goes, and what is refused with nothing written.
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>

#include "monolayer/arch/sim/targets.hpp"
#include "monolayer/host/pack.hpp"

using namespace monolayer;

namespace {

using T = sim::gfx950;

/// A matrix of 48 x 384 in each format, with the codes 1, 2, 3 ... in order.
template <class F>
struct tensor {
  static constexpr long rows = 48, columns = 384;
  std::vector<u8> data = std::vector<u8>(rows * columns * F::piece_bytes / 8);
  std::vector<float> scales = std::vector<float>(48, 1.0f);
  std::vector<u8> block_scales = std::vector<u8>(rows * columns / 32, 127);

  tensor() {
    for (std::size_t i = 0; i < data.size(); ++i) data[i] = u8(i * 7 % 0x7f);  // no FP8 NaN
  }
  checkpoint_matrix view() const { return {data.data(), scales.data(), block_scales.data(), rows, columns, 0, 0}; }
};

/// What pack says of one changed matrix; nothing may have been written.
template <class F, int K = 384, int Subtiles = 1, class Change>
std::string told(error_code code, Change change, long features = 48, std::size_t missing = 0) {
  using tile = weight_tile<F, K, Subtiles>;
  tensor<F> t;
  std::vector<checkpoint_matrix> m(Subtiles, t.view());
  std::vector<u8> to(std::size_t((features + 15) / 16) * tile::bytes - missing, 0xEE);
  const std::vector<u8> before = to;
  change(t, m);
  const status s = pack<T, tile>(to, m, features, "w");
  if (!s.ok()) {
    CHECK(s.code == code);
    CHECK(to == before);
  }
  return s.text();
}
constexpr auto shape = error_code::bad_shape, pointer = error_code::bad_pointer, value = error_code::bad_value;
const auto nothing = [](auto&, auto&) {};

}  // namespace

TEST_CASE("pack refuses wrong shapes", "[pack]") {
  CHECK(told<bf16_weights>(shape, nothing) == "ok");
  CHECK(told<bf16_weights>(shape, [](auto&, auto& m) { m.push_back(m[0]); }) == "w: seen 2 matrices, wanted 1");
  CHECK(told<mxfp4, 384, 2>(shape, [](auto&, auto& m) { m.pop_back(); }) == "w: seen 1 matrices, wanted 2");
  CHECK(told<bf16_weights>(shape, nothing, 40) == "w features: seen 40, wanted a multiple of 16");
  CHECK(told<bf16_weights>(shape, [](auto&, auto& m) { m[0].rows = 47; }) == "w.rows: seen 47, wanted at least 48");
  CHECK(told<bf16_weights>(shape, [](auto&, auto& m) { m[0].first_row = 16; }) == "w.rows: seen 48, wanted at least 64");
  CHECK(told<bf16_weights>(shape, [](auto&, auto& m) { m[0].first_row = -1; }) ==
        "w window: seen first row -1, first column 0, wanted 0 or more");
  CHECK(told<bf16_weights>(shape, [](auto&, auto& m) { m[0].columns = 383; }) == "w.columns: seen 383, wanted at least 384");
  CHECK(told<bf16_weights>(shape, [](auto&, auto& m) { m[0].first_column = 8; }) ==
        "w.columns: seen 384, wanted at least 392");
  CHECK(told<bf16_weights>(shape, [](auto&, auto& m) { m[0].first_column = -1; }) ==
        "w window: seen first row 0, first column -1, wanted 0 or more");
}

TEST_CASE("pack refuses a buffer that is too small", "[pack]") {
  const u64 need = 3 * weight_tile<bf16_weights, 384>::bytes;
  CHECK(told<bf16_weights>(error_code::too_small, nothing, 48, 1) ==
        "w buffer: seen " + std::to_string(need - 1) + " bytes, wanted " + std::to_string(need));
}

TEST_CASE("pack refuses missing data and scales", "[pack]") {
  CHECK(told<bf16_weights>(pointer, [](auto&, auto& m) { m[0].data = nullptr; }) == "w.data: seen null, wanted the matrix");
  CHECK(told<fp8_block<128, 128>>(pointer, [](auto&, auto& m) { m[0].scales = nullptr; }) ==
        "w.scales: seen null, wanted f32 scales for fp8_block<128, 128>");
  CHECK(told<fp8_channel>(pointer, [](auto&, auto& m) { m[0].scales = nullptr; }) ==
        "w.scales: seen null, wanted f32 scales for fp8_channel");
  CHECK(told<mxfp4>(pointer, [](auto&, auto& m) { m[0].block_scales = nullptr; }) ==
        "w.block_scales: seen null, wanted e8m0 scales");
}

TEST_CASE("pack refuses windows that cut a scale block", "[pack]") {
  CHECK(told<fp8_block<128, 128>, 256>(shape, [](auto&, auto& m) { m[0].first_row = 8; }, 32) ==
        "w window: seen first row 8, first column 0, wanted multiples of 16 and 128: a scale block must not straddle a unit");
  CHECK(told<fp8_block<128, 128>, 256>(shape, [](auto&, auto& m) { m[0].first_column = 64; }) ==
        "w window: seen first row 0, first column 64, wanted multiples of 16 and 128: a scale block must not straddle a unit");
  CHECK(told<fp8_channel, 256>(shape, [](auto&, auto& m) { m[0].first_column = 64; }) == "ok");
  CHECK(told<mxfp4, 256>(shape, [](auto&, auto& m) { m[0].first_column = 16; }) ==
        "w columns: seen 384 from 16 for 256, wanted multiples of 32, the MX block");
  CHECK(told<mxfp4, 256>(shape, [](auto&, auto& m) { m[0].columns = 380; }) ==
        "w columns: seen 380 from 0 for 256, wanted multiples of 32, the MX block");
}

TEST_CASE("pack refuses values that a kernel would get wrong", "[pack]") {
  for (const int nan : {0x7f, 0xff})
    CHECK(told<fp8_block<128, 128>>(value, [&](auto& t, auto&) { t.data[47 * 384 + 383] = u8(nan); }) ==
          "w at row 47, column 383: seen NaN, wanted a number");
  CHECK(told<fp8_channel>(value, [](auto& t, auto&) { t.data[5 * 384 + 2] = 0x7f; }) ==
        "w at row 5, column 2: seen NaN, wanted a number");
  CHECK(told<mxfp4>(value, [](auto& t, auto&) { t.block_scales[12 * 7 + 3] = 253; }) ==
        "w scale at row 7, block 3: seen e8m0 253, wanted at most 252");
  CHECK(told<mxfp4>(value, [](auto& t, auto&) { t.block_scales[12 * 7 + 3] = 255; }) ==
        "w scale at row 7, block 3: seen e8m0 255, wanted at most 252");
  CHECK(told<mxfp4>(value, [](auto& t, auto&) { t.block_scales[0] = 252; }) == "ok");
  CHECK(told<mxfp4>(value, [](auto& t, auto&) { t.block_scales[0] = 0; }) == "ok");
  // Outside of the window anything may stand.
  CHECK(told<fp8_channel, 256>(value, [](auto& t, auto&) { t.data[300] = 0x7f; }) == "ok");
}

TEMPLATE_TEST_CASE("each piece lies where piece_offset says", "[pack]", sim::gfx950, sim::sm90) {
  using tile = weight_tile<fp8_channel, 320>;  // k is padded to 384
  tensor<fp8_channel> t;
  for (int i = 0; i < 48; ++i) t.scales[std::size_t(i)] = float(i + 1);
  checkpoint_matrix m = t.view();
  m.first_row = 16, m.first_column = 32;
  std::vector<u8> to(2 * tile::bytes, 0xEE);
  REQUIRE(pack<TestType, tile>(to, {&m, 1}, 32, "w").text() == "ok");
  for (int feature = 0; feature < 32; ++feature)
    for (int lane = 0; lane < TestType::wave_size; ++lane)
      for (int h = 0; h < TestType::lane_rows; ++h) {
        if (TestType::a_row(lane, h) != feature % 16) continue;
        for (int unit = 0; unit < tile::units; ++unit)
          for (int s = 0; s < steps_per_unit; ++s) {
            const int chunk = unit / tile::units_per_chunk;
            const u8* at = to.data() + u64(feature / 16) * tile::bytes + u64(chunk) * tile::chunk_bytes +
                           u64(unit % tile::units_per_chunk) * tile::unit_bytes;
            const u8* piece = at + piece_offset<TestType, fp8_channel>(lane, s, h);
            for (int i = 0; i < 8; ++i) {
              const int k = unit * unit_k + s * step_k + 8 * TestType::k_group(lane) + i;
              const u8 wanted = k < 320 ? t.data[std::size_t(16 + feature) * 384 + 32 + std::size_t(k)] : u8(0);
              REQUIRE(piece[i] == wanted);
            }
            float scale;
            std::memcpy(&scale, to.data() + u64(feature / 16) * tile::bytes + u64(chunk) * tile::chunk_bytes +
                                    tile::scales_at + 4 * (feature % 16), 4);
            REQUIRE(scale == float(16 + feature + 1));
          }
      }
}

TEST_CASE("the checksum sees any byte", "[pack]") {
  std::vector<u8> bytes(37, 5);
  const u64 before = checksum(bytes);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    ++bytes[i];
    CHECK(checksum(bytes) != before);
    --bytes[i];
  }
  CHECK(checksum(bytes) == before);
}
