// bind() and can_run(): each thing that a caller can get wrong, and the words that it is told.
#include <catch2/catch_test_macros.hpp>

#include "monolayer/arch/sim/targets.hpp"
#include "monolayer/host/bind.hpp"
#include "monolayer/layers/slices.hpp"

using namespace monolayer;

namespace {

using T = sim::gfx950;
using C = small_slices<2>;
using P = slices<C>;
using plan_type = plan<T, P>;

/// Addresses that nobody may follow: bind() touches no memory.
void* address(std::uintptr_t at) { return reinterpret_cast<void*>(at); }

struct call {
  rank_memory m;
  span_arguments a;
  std::vector<u64> kinds{P::slice_a, P::slice_b};

  call() {
    m.slots = address(0x1000000), m.slots_bytes = plan_type::slots_bytes;
    m.arrivals = address(0x2000000), m.arrivals_bytes = plan_type::arrivals_bytes;
    m.mailbox_bytes = plan_type::mailbox_bytes, m.state_bytes = plan_type::state_bytes;
    for (int r = 0; r < 2; ++r)
      m.mailbox[r] = address(0x3000000 + std::uintptr_t(r) * 0x100000), m.state[r] = address(0x4000000 + std::uintptr_t(r) * 0x10000);
    a.layers = static_cast<const layer_entry*>(address(0x5000000));
    a.input = address(0x6000000);
    a.output = address(0x7000000);
    a.row_slots = static_cast<const long long*>(address(0x8000000));
    a.rows = 3, a.rank = 1, a.blocks = 8, a.groups = 2;
  }
  result<launch_params> make() {
    a.kinds = kinds;
    return bind<T, P>(m, a);
  }
};

/// What bind() says after `change`.
template <class F>
std::string told(error_code code, F change) {
  call c;
  change(c);
  const auto r = c.make();
  if (r.ok()) return "ok";
  CHECK(r.why().code == code);
  return r.why().text();
}

constexpr auto value = error_code::bad_value, pointer = error_code::bad_pointer, small = error_code::too_small;
std::string bytes(u64 n) { return std::to_string(n) + " bytes"; }

}  // namespace

TEST_CASE("bind passes what is right", "[bind]") {
  call c;
  c.a.ring_limit = 5;
  const auto r = c.make();
  REQUIRE(r.why().text() == "ok");
  const launch_params& p = r.value();
  CHECK(p.state == c.m.state[1]);
  CHECK(p.peer_state[0] == c.m.state[0]);
  CHECK(p.peer_state[1] == c.m.state[1]);
  CHECK(p.mailbox[0] == c.m.mailbox[0]);
  CHECK(p.mailbox[1] == c.m.mailbox[1]);
  CHECK(p.mailbox[2] == nullptr);
  CHECK(p.layers == c.a.layers);
  CHECK(p.input == c.a.input);
  CHECK(p.output == c.a.output);
  CHECK(p.row_slots == c.a.row_slots);
  CHECK(p.slots == c.m.slots);
  CHECK(p.arrivals == c.m.arrivals);
  CHECK(p.local_deadline_ns == 200'000'000);
  CHECK(p.peer_deadline_ns == 20'000'000'000);
  CHECK(p.layer_count == 2);
  CHECK(p.rows == 3);
  CHECK(p.rank == 1);
  CHECK(p.groups == 2);
  CHECK(p.lds_bytes == T::lds_bytes);
  CHECK(p.ring_limit == 5);
}

TEST_CASE("bind accepts the limits, in-place output and a slice A without output", "[bind]") {
  CHECK(told(value, [](call& c) { c.a.rows = C::max_rows; }) == "ok");
  CHECK(told(value, [](call& c) { c.a.blocks = plan_type::max_blocks, c.a.groups = 1; }) == "ok");
  CHECK(told(value, [](call& c) { c.a.output = const_cast<void*>(c.a.input); }) == "ok");
  CHECK(told(value, [](call& c) { c.kinds = {P::slice_a}, c.a.output = nullptr; }) == "ok");
  CHECK(told(value, [](call& c) { c.a.output = address(0x6000000 + 3 * C::hidden * 2); }) == "ok");
}

TEST_CASE("bind refuses numbers out of range", "[bind]") {
  CHECK(told(value, [](call& c) { c.a.rank = -1; }) == "rank: seen -1, wanted 0..1");
  CHECK(told(value, [](call& c) { c.a.rank = 2; }) == "rank: seen 2, wanted 0..1");
  CHECK(told(value, [](call& c) { c.a.rows = 0; }) == "rows: seen 0, wanted 1..8");
  CHECK(told(value, [](call& c) { c.a.rows = 9; }) == "rows: seen 9, wanted 1..8");
  const std::string most = std::to_string(plan_type::max_blocks);
  CHECK(told(value, [](call& c) { c.a.blocks = 0; }) == "blocks: seen 0, wanted 1.." + most);
  CHECK(told(value, [](call& c) { c.a.blocks = plan_type::max_blocks + 1; }) ==
        "blocks: seen " + std::to_string(plan_type::max_blocks + 1) + ", wanted 1.." + most);
  CHECK(told(value, [](call& c) { c.a.groups = 0; }) == "groups: seen 0, wanted 1..8");
  CHECK(told(value, [](call& c) { c.a.groups = 9; }) == "groups: seen 9, wanted 1..8");
  CHECK(told(value, [](call& c) { c.a.groups = 3; }) == "groups: seen 3 groups of 8 blocks, wanted groups of one size");
  CHECK(told(value, [](call& c) { c.kinds.clear(); }) == "layers: seen 0, wanted 1..4096");
  CHECK(told(value, [](call& c) { c.kinds.assign(4097, P::slice_b); }) == "layers: seen 4097, wanted 1..4096");
  CHECK(told(value, [](call& c) { c.kinds = {P::slice_a, 2, P::slice_b}; }) == "kinds[1]: seen 2, wanted below 2");
  CHECK(told(value, [](call& c) { c.a.local_deadline_ns = 999; }) ==
        "local_deadline_ns: seen 999, wanted 1000..3600000000000");
  CHECK(told(value, [](call& c) { c.a.peer_deadline_ns = 3'600'000'000'001; }) ==
        "peer_deadline_ns: seen 3600000000001, wanted 1000..3600000000000");
}

TEST_CASE("bind refuses a span whose output no layer would write", "[bind]") {
  CHECK(told(value, [](call& c) { c.kinds = {P::slice_b, P::slice_a}; }) ==
        "kinds: seen a last layer that does not write the residual stream, wanted a span that ends with the layer whose "
        "stream is the output");
}

TEST_CASE("bind refuses null and misaligned addresses", "[bind]") {
  CHECK(told(pointer, [](call& c) { c.a.layers = nullptr; }) == "layers: seen null, wanted " + bytes(2 * sizeof(layer_entry)));
  CHECK(told(pointer, [](call& c) { c.a.layers = static_cast<const layer_entry*>(address(0x5000004)); }) ==
        "layers: seen an address that is 4 modulo 8, wanted 8-byte alignment");
  CHECK(told(pointer, [](call& c) { c.a.row_slots = nullptr; }) == "row_slots: seen null, wanted 24 bytes");
  CHECK(told(pointer, [](call& c) { c.a.row_slots = static_cast<const long long*>(address(0x8000001)); }) ==
        "row_slots: seen an address that is 1 modulo 8, wanted 8-byte alignment");
  CHECK(told(pointer, [](call& c) { c.a.input = nullptr; }) == "input: seen null, wanted " + bytes(C::hidden * 2));
  CHECK(told(pointer, [](call& c) { c.a.input = address(0x6000008); }) ==
        "input: seen an address that is 8 modulo 16, wanted 16-byte alignment");
  CHECK(told(pointer, [](call& c) { c.a.output = nullptr; }) == "output: seen null, wanted " + bytes(C::hidden * 2));
  CHECK(told(pointer, [](call& c) { c.a.output = address(0x7000002); }) ==
        "output: seen an address that is 2 modulo 16, wanted 16-byte alignment");
  CHECK(told(pointer, [](call& c) { c.m.slots = nullptr; }) == "slots: seen null, wanted " + bytes(plan_type::slots_bytes));
  CHECK(told(pointer, [](call& c) { c.m.slots = address(0x1000080); }) ==
        "slots: seen an address that is 128 modulo 256, wanted 256-byte alignment");
  CHECK(told(pointer, [](call& c) { c.m.arrivals = address(0x2000040); }) ==
        "arrivals: seen an address that is 64 modulo 128, wanted 128-byte alignment");
  CHECK(told(pointer, [](call& c) { c.m.mailbox[0] = nullptr; }) ==
        "mailbox[0]: seen null, wanted " + bytes(plan_type::mailbox_bytes));
  CHECK(told(pointer, [](call& c) { c.m.mailbox[1] = address(0x3100010); }) ==
        "mailbox[1]: seen an address that is 16 modulo 256, wanted 256-byte alignment");
  CHECK(told(pointer, [](call& c) { c.m.state[0] = nullptr; }) ==
        "state[0]: seen null, wanted " + bytes(plan_type::state_bytes));
  CHECK(told(pointer, [](call& c) { c.m.state[1] = address(0x4010020); }) ==
        "state[1]: seen an address that is 32 modulo 128, wanted 128-byte alignment");
}

TEST_CASE("bind refuses buffers that are too small", "[bind]") {
  auto text = [](const char* name, u64 wanted) {
    return std::string(name) + ": seen " + bytes(wanted - 1) + ", wanted " + bytes(wanted);
  };
  CHECK(told(small, [](call& c) { --c.m.slots_bytes; }) == text("slots", plan_type::slots_bytes));
  CHECK(told(small, [](call& c) { --c.m.arrivals_bytes; }) == text("arrivals", plan_type::arrivals_bytes));
  CHECK(told(small, [](call& c) { --c.m.mailbox_bytes; }) == text("mailbox[0]", plan_type::mailbox_bytes));
  CHECK(told(small, [](call& c) { --c.m.state_bytes; }) == text("state[0]", plan_type::state_bytes));
}

TEST_CASE("bind refuses memory that is shared where it must not be", "[bind]") {
  const std::string overlap = "output: seen a range that overlaps `input`, wanted `input` itself, or disjoint";
  CHECK(told(pointer, [](call& c) { c.a.output = address(0x6000000 + 16); }) == overlap);
  CHECK(told(pointer, [](call& c) { c.a.output = address(0x6000000 + 3 * C::hidden * 2 - 16); }) == overlap);
  CHECK(told(pointer, [](call& c) { c.a.output = address(0x6000000 - 3 * C::hidden * 2 + 16); }) == overlap);
  CHECK(told(pointer, [](call& c) { c.m.mailbox[1] = c.m.mailbox[0]; }) ==
        "mailbox[1]: seen the memory of rank 0, wanted memory of its own for each rank");
  CHECK(told(pointer, [](call& c) { c.m.state[1] = c.m.state[0]; }) ==
        "state[1]: seen the memory of rank 0, wanted memory of its own for each rank");
}

TEST_CASE("can_run lists every reason", "[bind]") {
  CHECK(can_run<T, P>({T::lds_bytes, 256, 256}, 256).empty());
  const auto reasons = can_run<T, P>({65536, 64, 64}, 65);
  REQUIRE(reasons.size() == 2);
  CHECK(reasons[0].code == error_code::unsupported);
  CHECK(reasons[0].text() == "device LDS bytes a block: seen 65536, wanted at least 163840");
  CHECK(reasons[1].text() ==
        "blocks: seen 65, wanted at most 64: blocks wait for one another, so all must be resident at once");
  const auto none = can_run<T, P>({T::lds_bytes, 64, 64}, 0);
  REQUIRE(none.size() == 1);
  CHECK(none[0].text() == "blocks: seen 0, wanted at least 1");
}
