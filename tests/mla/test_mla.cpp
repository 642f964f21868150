// Latent attention with two heads and bf16 throughout: lists of every length, rows among others, spans, faulty entries.
#include "mla/checks.hpp"

using namespace monolayer;
using namespace monolayer::test;

namespace {

using T = sim::TARGET;
struct C : mla_config<2, bf16_weights, bf16_rows> {
  static constexpr int kv_step = 16;  // two steps a split
};
using P = mla_program<C>;

const mla_rig<T, C>& rig() {
  static const mla_rig<T, C> r;
  return r;
}
// kv_splits 4 of index_topk 128: a split has 32 entries.
const std::vector<mla_row> eight = {{3, 33}, {-1, 0}, {0, 0}, {5, 128}, {-1, 0}, {6, 1}, {1, 31, true, 3}, {2, 32, false, 0}};

/// The bits of a row's results, wherever it stood.
void require_same_bits(const mla_result& a, int row_a, const mla_result& b, int row_b) {
  REQUIRE(a.own.at(row_a) == b.own.at(row_b));
  REQUIRE(a.ql.at(row_a) == b.ql.at(row_b));
  REQUIRE(a.o.at(row_a) == b.o.at(row_b));
}

}  // namespace

TEST_CASE("attention over lists of all lengths, live and dead rows", "[mla]") {
  mla_setup how;
  how.rows = eight;
  for (u64 kind : {P::full, P::listed}) {
    how.kinds = {kind};
    const auto run = checked(rig(), how);
    CHECK(run.bad_entries == 0);
    for (const u8 byte : run.last.o.at(2)) REQUIRE(byte == 0);  // a row without tokens
  }
}

TEST_CASE("bits do not depend on seeds, grids, rings, padding and block sizes", "[mla]") {
  mla_setup how;
  how.rows = eight;
  const auto first = rig().run(how);
  MUST_RUN(first);
  struct machine {
    u64 seed;
    int blocks;
    u32 block_size, padding, ring;
  };
  for (const machine m : {machine{2, 8, 1, 0, 0}, {3, 17, 16, 64, 2}, {4, 3, 64, 128, 3}}) {
    how.seed = m.seed, how.blocks = m.blocks, how.block_size = m.block_size, how.padding = m.padding, how.ring_limit = m.ring;
    const auto run = m.seed == 3 ? checked(rig(), how) : rig().run(how);
    MUST_RUN(run);
    for (const auto& [row, unused] : run.last.o) require_same_bits(run.last, row, first.last, row);
  }
}

TEST_CASE("a row alone has the bits that it has among others", "[mla]") {
  mla_setup how;
  how.rows = eight;
  const auto all = rig().run(how);
  MUST_RUN(all);
  for (int row : {0, 3, 5}) {
    mla_setup alone;
    alone.rows = {{-1, 0}, eight[std::size_t(row)]};
    alone.seed = 9;
    const auto run = rig().run(alone);
    MUST_RUN(run);
    require_same_bits(run.last, 1, all.last, row);
  }
}

TEST_CASE("picks travel to later layers of a span", "[mla]") {
  mla_setup how;
  how.rows = {{4, 70}, {-1, 0}, {7, 20}};
  for (const auto& kinds : {std::vector<u64>{P::full, P::listed, P::listed}, {P::listed, P::full}, {P::full, P::full}}) {
    how.kinds = kinds;
    how.blocks = 5;
    checked(rig(), how);
  }
}

TEST_CASE("list entries outside the cache are left out and counted", "[mla]") {
  mla_setup how;
  how.rows = {{1, 40}, {-1, 0}, {2, 33}, {4, 1}};
  how.kinds = {P::listed};
  how.bad_entries = {{0, 0}, {0, 39}, {2, 32}, {3, 0}};  // the only entry of a split, and of a list
  const auto run = checked(rig(), how);
  CHECK(run.bad_entries == 4);
  for (const u8 byte : run.last.o.at(3)) REQUIRE(byte == 0);
}

TEST_CASE("small inputs show each norm's eps", "[mla]") {
  mla_setup how;
  how.rows = {{1, 5}, {2, 40}};
  how.size = 1e-3;
  checked(rig(), how);
}

TEST_CASE("a list longer than index_topk is cut, and what is cut is counted", "[mla]") {
  mla_setup how;
  how.rows = {{1, 131}, {2, 128}};
  how.kinds = {P::listed};
  const auto run = rig().run(how);
  MUST_RUN(run);
  CHECK(run.bad_entries == 3);
}
