// What a caller can get wrong about a launch of whole layers: numbers, memory, caches and lists, each with
// the words that it is told. Nothing is touched: the addresses here are nobody's.
#include <catch2/catch_test_macros.hpp>

#include "monolayer/arch/sim/targets.hpp"
#include "monolayer/host/glm5.hpp"

using namespace monolayer;

namespace {

using T = sim::gfx950;
using C = micro_layer<2>;
using P = glm5<C>;
using plan_type = plan<T, P>;

void* address(std::uintptr_t at) { return reinterpret_cast<void*>(at); }
template <class V>
const V* address_of(std::uintptr_t at) {
  return reinterpret_cast<const V*>(at);
}

struct call {
  rank_memory m;
  span_arguments a;
  std::vector<u64> kinds{P::dense, P::moe, P::moe_listed};

  call() {
    m.slots = address(0x1000000), m.slots_bytes = plan_type::slots_bytes;
    m.arrivals = address(0x2000000), m.arrivals_bytes = plan_type::arrivals_bytes;
    m.mailbox_bytes = plan_type::mailbox_bytes, m.state_bytes = plan_type::state_bytes;
    for (int r = 0; r < 2; ++r) {
      m.mailbox[r] = address(0x3000000 + std::uintptr_t(r) * 0x100000);
      m.state[r] = address(0x4000000 + std::uintptr_t(r) * 0x10000);
    }
    a.layers = address_of<layer_entry>(0x5000000);
    a.input = address(0x6000000);
    a.output = address(0x7000000);
    a.row_slots = address_of<long long>(0x8000000);
    a.rows = 3, a.rank = 1, a.blocks = 8;
    batch_view& b = a.batch;
    b.positions = address_of<long long>(0x9000000);
    b.block_table = address_of<int>(0x9100000);
    b.block_table_stride = 8;
    b.requests = address_of<int>(0x9200000);
    b.list_starts = address_of<int>(0x9300000);
    b.list = address_of<int>(0x9400000);
    b.rope = address_of<float>(0x9500000);
    b.rope_positions = 4096;
    b.block_size = 16, b.cache_slots = 1600;
    b.kv_row_stride = 1152, b.kv_block_stride = 16 * 1152, b.index_block_stride = 16 * 256;
  }
  result<launch_params> make() {
    a.kinds = kinds;
    return bind<T, P>(m, a);
  }
};

template <class F>
std::string told(error_code code, F change) {
  call c;
  change(c);
  const auto r = c.make();
  if (r.ok()) return "ok";
  CHECK(r.why().code == code);
  CHECK(r.why().text() == r.why().argument + ": seen " + r.why().seen + ", wanted " + r.why().wanted);
  return r.why().text();
}
constexpr auto value = error_code::bad_value, pointer = error_code::bad_pointer,
               small = error_code::too_small;

template <class F>
std::string batch(error_code code, F change) {
  return told(code, [&](call& c) { change(c.a.batch); });
}

}  // namespace

TEST_CASE("bind passes on what a step refers to", "[bind]") {
  call c;
  const auto r = c.make();
  REQUIRE(r.why().text() == "ok");
  CHECK(std::memcmp(&r.value().batch, &c.a.batch, sizeof(batch_view)) == 0);
  CHECK(r.value().layer_count == 3);
}

TEST_CASE("bind accepts the limits of a step", "[bind]") {
  CHECK(batch(value, [](batch_view& b) { b.requests = nullptr; }) == "ok");
  CHECK(batch(value, [](batch_view& b) { b.list = nullptr, b.list_starts = nullptr; }) == "ok");
  CHECK(told(value, [](call& c) { c.kinds = {P::dense_listed, P::moe}; }) == "ok");
  CHECK(batch(value, [](batch_view& b) {
          b.block_size = 1 << 23, b.cache_slots = b.block_size;
          b.kv_block_stride = u64(b.block_size) * 1152, b.index_block_stride = u64(b.block_size) * 256;
        }) == "ok");
  CHECK(batch(value, [](batch_view& b) {  // a row further, a page of other things further
          b.kv_row_stride = 2304, b.kv_block_stride = 1 << 30, b.index_block_stride = 1 << 30;
        }) == "ok");
  CHECK(batch(value, [](batch_view& b) { b.cache_slots = 0x7fffffff / 16 * 16; }) == "ok");
}

TEST_CASE("bind refuses what is missing of a step", "[bind]") {
  CHECK(batch(pointer, [](batch_view& b) { b.positions = nullptr; }) ==
        "batch.positions: seen null, wanted 24 bytes");
  CHECK(batch(pointer, [](batch_view& b) { b.positions = address_of<long long>(0x9000004); }) ==
        "batch.positions: seen an address that is 4 modulo 8, wanted 8-byte alignment");
  CHECK(batch(pointer, [](batch_view& b) { b.block_table = nullptr; }) ==
        "batch.block_table: seen null, wanted 4 bytes");
  CHECK(batch(pointer, [](batch_view& b) { b.block_table = address_of<int>(0x9100002); }) ==
        "batch.block_table: seen an address that is 2 modulo 4, wanted 4-byte alignment");
  CHECK(batch(pointer, [](batch_view& b) { b.requests = address_of<int>(0x9200001); }) ==
        "batch.requests: seen an address that is 1 modulo 4, wanted 4-byte alignment");
  CHECK(batch(pointer, [](batch_view& b) { b.rope = nullptr; }) == "batch.rope: seen null, wanted 16 bytes");
  CHECK(batch(pointer, [](batch_view& b) { b.rope = address_of<float>(0x9500004); }) ==
        "batch.rope: seen an address that is 4 modulo 16, wanted 16-byte alignment");
  // Half a list is none, though no layer needs it.
  CHECK(batch(pointer, [](batch_view& b) { b.list = nullptr; }) == "batch.list: seen null, wanted 4 bytes");
  CHECK(batch(pointer, [](batch_view& b) { b.list_starts = nullptr; }) ==
        "batch.list_starts: seen null, wanted 8 bytes");
  CHECK(batch(pointer, [](batch_view& b) { b.list_starts = address_of<int>(0x9300002); }) ==
        "batch.list_starts: seen an address that is 2 modulo 4, wanted 4-byte alignment");
}

TEST_CASE("bind refuses a span whose first layers have no list to attend to", "[bind]") {
  for (const std::vector<u64>& kinds : {std::vector<u64>{P::moe_listed}, {P::dense_listed, P::moe}})
    CHECK(told(pointer, [&](call& c) {
            c.kinds = kinds, c.a.batch.list = nullptr, c.a.batch.list_starts = nullptr;
          }) == "batch.list_starts: seen null, wanted 8 bytes");
  CHECK(told(value, [](call& c) { c.kinds = {P::moe, 4}; }) == "kinds[1]: seen 4, wanted below 4");
  CHECK(told(value, [](call& c) { c.kinds.clear(); }) == "layers: seen 0, wanted 1..4096");
}

TEST_CASE("bind refuses tables and tokens that cannot be", "[bind]") {
  CHECK(batch(value, [](batch_view& b) { b.block_table_stride = 0; }) ==
        "batch.block_table_stride: seen 0, wanted 1..1099511627776");
  CHECK(batch(value, [](batch_view& b) { b.block_table_stride = -8; }) ==
        "batch.block_table_stride: seen -8, wanted 1..1099511627776");
  CHECK(batch(value, [](batch_view& b) { b.rope_positions = 0; }) ==
        "batch.rope_positions: seen 0, wanted 1..2147483647");
  CHECK(batch(value, [](batch_view& b) { b.rope_positions = u64(1) << 31; }) ==
        "batch.rope_positions: seen 2147483648, wanted 1..2147483647");
  CHECK(batch(value, [](batch_view& b) { b.cache_slots = 0; }) ==
        "batch.cache_slots: seen 0, wanted 1..2147483647");
  CHECK(batch(value, [](batch_view& b) { b.cache_slots = u64(1) << 31; }) ==
        "batch.cache_slots: seen 2147483648, wanted 1..2147483647");
  CHECK(batch(value, [](batch_view& b) { b.cache_slots = ~u64(0); }) ==
        "batch.cache_slots: seen 4611686018427387904, wanted 1..2147483647");
  CHECK(batch(value, [](batch_view& b) { b.cache_slots = 1601; }) ==
        "batch.cache_slots: seen 1601, wanted a multiple of 16");
}

TEST_CASE("bind refuses pages that the caches' formats cannot have", "[bind]") {
  CHECK(batch(value, [](batch_view& b) { b.block_size = 0; }) ==
        "batch.block_size: seen 0, wanted 1..8388608");
  CHECK(batch(value, [](batch_view& b) { b.block_size = (1 << 23) + 1; }) ==
        "batch.block_size: seen 8388609, wanted 1..8388608");
  CHECK(batch(value, [](batch_view& b) { b.kv_row_stride = 1136; }) ==
        "batch.kv_row_stride: seen 1136, wanted 1152..1099511627776");
  CHECK(batch(value, [](batch_view& b) { b.kv_row_stride = 1160; }) ==
        "batch.kv_row_stride: seen 1160, wanted a multiple of 16");
  const std::string most = std::to_string((u64(1) << 56) / 100);
  CHECK(batch(value, [](batch_view& b) { b.kv_block_stride = 16 * 1152 - 16; }) ==
        "batch.kv_block_stride: seen 18416, wanted 18432.." + most);
  CHECK(batch(value, [](batch_view& b) { b.kv_block_stride = 18440; }) ==
        "batch.kv_block_stride: seen 18440, wanted a multiple of 16");
  CHECK(batch(value, [](batch_view& b) { b.kv_block_stride = u64(1) << 55; }) ==
        "batch.kv_block_stride: seen 36028797018963968, wanted 18432.." + most);
  CHECK(batch(value, [](batch_view& b) { b.index_block_stride = 16 * 256 - 16; }) ==
        "batch.index_block_stride: seen 4080, wanted 4096.." + most);
  CHECK(batch(value, [](batch_view& b) { b.index_block_stride = 4104; }) ==
        "batch.index_block_stride: seen 4104, wanted a multiple of 16");
  // Strides that together need more than 64 bits.
  CHECK(batch(value, [](batch_view& b) {
          b.block_size = 1 << 23, b.cache_slots = b.block_size, b.kv_row_stride = u64(1) << 40;
          b.kv_block_stride = 1 << 30;
        }) == "batch.kv_block_stride: seen 1073741824, wanted 4611686018427387904..72057594037927936");
}

TEST_CASE("bind refuses pages that shuffled FP8 keys cannot have", "[bind]") {
  using fp8 = glm5<with_fp8_caches<C>>;
  call c;
  c.kinds = {fp8::moe};
  c.a.kinds = c.kinds;
  c.m.slots_bytes = plan<T, fp8>::slots_bytes, c.m.arrivals_bytes = plan<T, fp8>::arrivals_bytes;
  batch_view& b = c.a.batch;
  b.kv_row_stride = 576, b.kv_block_stride = 16 * 576, b.index_block_stride = 16 * 132;
  const auto text = [&] { return bind<T, fp8>(c.m, c.a).why().text(); };
  CHECK(text() == "ok");
  b.block_size = 8;
  CHECK(text() == "batch.block_size: seen 8, wanted a multiple of 16");
  b.block_size = 16, b.index_block_stride = 16 * 132 - 16;
  CHECK(text() ==
        "batch.index_block_stride: seen 2096, wanted 2112.." + std::to_string((u64(1) << 56) / 100));
  b.index_block_stride = 16 * 132, b.kv_row_stride = 560;
  CHECK(text() == "batch.kv_row_stride: seen 560, wanted 576..1099511627776");
}

TEST_CASE("bind refuses numbers and memory of whole layers as of any program", "[bind]") {
  CHECK(told(value, [](call& c) { c.a.rows = C::max_rows + 1; }) == "rows: seen 9, wanted 1..8");
  CHECK(told(value, [](call& c) { c.a.rank = 2; }) == "rank: seen 2, wanted 0..1");
  const std::string most = std::to_string(plan_type::max_blocks);
  CHECK(told(value, [](call& c) { c.a.blocks = plan_type::max_blocks + 1; }) ==
        "blocks: seen " + std::to_string(plan_type::max_blocks + 1) + ", wanted 1.." + most);
  CHECK(told(value, [](call& c) { c.a.ring_limit = 1; }) == "ring_limit: seen 1, wanted 0, or at least 2");
  CHECK(told(small, [](call& c) { c.m.slots_bytes -= 1; }) ==
        "slots: seen " + std::to_string(plan_type::slots_bytes - 1) + " bytes, wanted " +
            std::to_string(plan_type::slots_bytes) + " bytes");
  CHECK(told(small, [](call& c) { c.m.mailbox_bytes = 0; }) ==
        "mailbox[0]: seen 0 bytes, wanted " + std::to_string(plan_type::mailbox_bytes) + " bytes");
  CHECK(told(pointer, [](call& c) { c.a.output = address(0x6000010); }) ==
        "output: seen a range that overlaps `input`, wanted `input` itself, or disjoint");
  CHECK(told(pointer, [](call& c) { c.m.mailbox[1] = c.m.mailbox[0]; }) ==
        "mailbox[1]: seen the memory of rank 0, wanted memory of its own for each rank");
}

TEST_CASE("can_run says what a device lacks for whole layers", "[bind]") {
  CHECK(can_run<T, P>({T::lds_bytes, 256, 256}, plan_type::max_blocks).empty());
  const auto reasons = can_run<T, P>({65536, 8, 8}, 9);
  REQUIRE(reasons.size() == 2);
  CHECK(reasons[0].text() == "device LDS bytes a block: seen 65536, wanted at least 163840");
  CHECK(reasons[1].text() ==
        "blocks: seen 9, wanted at most 8: blocks wait for one another, so all must be resident at once");
}
