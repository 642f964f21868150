// Index keys: the pages' layouts, the scale, and the codec on one wave.
#include <set>

#include "indexer/indexer_rig.hpp"

using namespace indexer_test;
using T = sim::TARGET;

TEST_CASE("Bytes of a page lie where vLLM and AITER have them") {
  using shuffled = fp8_keys<shuffled_16x16>;
  // (place, value) -> byte: known answers
  CHECK(shuffled::value_offset(1, 0) == 16);
  CHECK(shuffled::value_offset(0, 16) == 256);
  CHECK(shuffled::value_offset(5, 77) == 1117);
  CHECK(shuffled::value_offset(15, 127) == 2047);
  CHECK(shuffled::value_offset(16, 0) == 2048);
  CHECK(shuffled::value_offset(63, 127) == 8191);
  CHECK(fp8_keys<plain>::value_offset(5, 77) == 5 * 128 + 77);
  CHECK(shuffled::scale_offset(64, 3) == 64 * 128 + 12);
  CHECK(fp8_keys<plain>::scale_offset(1, 0) == 128);
  CHECK(fp8_keys<plain>::page_bytes(1) == 132);
  CHECK(bf16_keys::value_offset(3, 5) == 3 * 256 + 10);
}

template <class Format>
void check_bijection(u32 block_size) {
  std::set<u64> bytes;
  for (u32 o = 0; o < block_size; ++o) {
    for (u32 d = 0; d < 128; ++d)
      for (u32 i = 0; i < (Format::fp8 ? 1u : 2u); ++i) bytes.insert(Format::value_offset(o, d) + i);
    if constexpr (Format::fp8)
      for (u32 i = 0; i < 4; ++i) bytes.insert(Format::scale_offset(block_size, o) + i);
  }
  CHECK(bytes.size() == Format::page_bytes(block_size));
  CHECK(*bytes.rbegin() + 1 == Format::page_bytes(block_size));
}
TEST_CASE("Each byte of a page has one use") {
  for (u32 bs : {1u, 5u, 16u, 64u}) check_bijection<bf16_keys>(bs), check_bijection<fp8_keys<plain>>(bs);
  for (u32 bs : {16u, 32u, 64u, 128u}) check_bijection<fp8_keys<shuffled_16x16>>(bs);
}

TEST_CASE("A key's scale is the least power of two that fits it") {
  CHECK(index_key_scale(0.0f) == std::exp2(-22.0f));  // the floor 1e-4 / 448 = 2.23e-7
  CHECK(index_key_scale(1e-4f) == std::exp2(-22.0f));
  CHECK(index_key_scale(448.0f) == 1.0f);
  CHECK(index_key_scale(std::nextafter(448.0f, 500.0f)) == 2.0f);
  CHECK(index_key_scale(447.0f) == 1.0f);
  CHECK(index_key_scale(224.0f) == 0.5f);
  CHECK(index_key_scale(3e38f) == std::exp2(120.0f));
  CHECK(std::isnan(index_key_scale(INFINITY)));
  CHECK(std::isnan(index_key_scale(NAN)));
  std::mt19937 random(1);
  for (int i = 0; i < 100000; ++i) {
    const float amax = std::exp2(float(random()) * 0x1p-32f * 40 - 13);
    const double quotient = float(amax / 448.0f);
    const double scale = index_key_scale(amax);
    if (!(scale >= quotient && scale / 2 < quotient)) FAIL("scale of " << amax);
  }
}

/// Encodes on each wave of a block its own key; compares the bytes in slot, LDS and page.
template <class Format>
void check_codec(u32 block_size, u64 padding) {
  constexpr int waves = T::consumer_waves;
  sim::machine m{sim::options{}};
  std::mt19937 random(block_size);
  std::vector<std::vector<float>> values(waves, std::vector<float>(128));
  for (int k = 0; k < waves; ++k)
    for (float& v : values[k]) v = std::ldexp(float(int(random() % 20001) - 10000), int(random() % 8) - 18 + k);
  values[0].assign(128, 0.0f);
  values[1].assign(128, 1e-6f);
  values[2][17] = -896.0f;
  const u64 stride = Format::page_bytes(block_size) + padding;
  auto* page = static_cast<u8*>(m.allocate(0, stride * waves, "cache", sim::memory::output, sim::fill::poison));
  auto* own = static_cast<u8*>(m.allocate(0, 256 * waves, "own", sim::memory::slot, sim::fill::poison));
  auto* from_lds = static_cast<u8*>(m.allocate(0, 256 * waves, "lds copy", sim::memory::output, sim::fill::poison));
  const auto place = [&](int k) { return (u32(k) * 7 + 3) % block_size; };
  m.launch<T>(0, 1, 65536, [&] {
    auto group = begin_block<T>();
    if (sim_test::producer<T>()) return;
    using codec = index_key_codec<Format>;
    const int k = T::wave();
    float mine[128 / T::wave_size];
    for (int i = 0; i < 128 / T::wave_size; ++i) mine[i] = values[k][T::lane() * (128 / T::wave_size) + i];
    const auto key = codec::template encode<T>(mine);
    codec::template store_cache<T>(key, page + stride * k, block_size, place(k));
    codec::template store_own<T>(key, own + 256 * k);
    codec::template store_lds<T>(key, 1024 + 256 * k);
    group.sync();
    for (u32 at = 4 * T::lane(); at < Format::own_bytes; at += 4 * T::wave_size)
      if (!Format::fp8 || at < 132) T::store4(from_lds + 256 * k + at, T::lds_load4(1024 + 256 * k + at));
    T::drain_stores();
  });
  const sim::report r = m.run();
  INFO(r.text);
  REQUIRE(r.ok);
  for (int k = 0; k < waves; ++k) {
    CAPTURE(k, block_size, Format::name);
    const std::vector<u8> want = encode_key<Format>(values[k]);
    std::vector<u8> want_page(stride, 0xA5);
    put_key<Format>(want_page.data(), block_size, place(k), want);
    CHECK(std::memcmp(page + stride * k, want_page.data(), stride) == 0);
    const std::size_t bytes = Format::fp8 ? 132 : 256;
    CHECK(std::memcmp(own + 256 * k, want.data(), bytes) == 0);
    CHECK(std::memcmp(from_lds + 256 * k, want.data(), bytes) == 0);
  }
}
TEST_CASE("The codec writes the bytes that the contract says, to slot, LDS and page") {
  for (u32 bs : {1u, 16u, 64u}) check_codec<bf16_keys>(bs, 64), check_codec<fp8_keys<plain>>(bs, bs == 1 ? 4 : 64);
  for (u32 bs : {16u, 64u}) check_codec<fp8_keys<shuffled_16x16>>(bs, 256);
}

TEST_CASE("Stored codes widen to their values") {
  const double factor = std::exp2(T::e4m3_shift + T::activation_shift);
  for (int code = 0; code < 256; ++code) {
    if ((code & 0x7f) == 0x7f) continue;
    for (int place = 0; place < 8; ++place) {
      u32x2 codes{{0, 0}};
      codes.v[place / 4] = u32(code) << (8 * (place % 4));
      const fragment_b wide = widen_stored_e4m3x8<T>(codes);
      for (int i = 0; i < 8; ++i) {
        const u16 bits = u16(wide.v[i / 2] >> (16 * (i % 2)));
        const double want = i == place ? reference::e4m3_decode(u8(code)) : 0.0;
        if (reference::bf16_decode(bits) * factor != want) FAIL("code " << code << " at " << place);
      }
    }
  }
}
