// Each mutant must be caught, by its bits or by the simulator, on one target, TARGET.
#include "slices/mutants.hpp"
#include "slices/rig.hpp"

using namespace monolayer;
using namespace monolayer::test;

using T = sim::TARGET;
using C = tiny_slices<4>;
using wrong = mutant<T>;
using mutants = rig<T, C, wrong, mutant_of<slices<C>>>;

namespace {

enum class caught { no, bits, race, deadlock, ring, unread, other };

std::string words(caught c) {
  switch (c) {
    case caught::no: return "not caught";
    case caught::bits: return "bits";
    case caught::race: return "race";
    case caught::deadlock: return "deadlock";
    case caught::ring: return "ring";
    case caught::unread: return "unread overwrite";
    case caught::other: return "another error";
  }
  return "?";
}

const mutants& plain() {
  static const mutants r({B, B});
  return r;
}
const mutants& bias_near_34() {
  static const mutants r({B}, 7, {.bias_near_34 = true});
  return r;
}

/// Partial sums of bf16 are added exactly where they are of one size, in any order. Here the shared expert's part of rank
/// 1 is that of rank 0 with the sign changed, and both are 2^24 times the others': only in rank order do they cancel
/// before the small ones come.
const mutants& cancelling() {
  static const mutants r({B}, 8, {}, {}, 1, {}, [](reference::layer_b& layer) {
    reference::expert& e = layer.edit(reference::layer_b::shared_id);
    constexpr int width = C::expert_width, blocks = width / 32;
    for (reference::matrix* m : {&e.gate, &e.up})
      for (int row = 0; row < width; ++row) {
        std::copy_n(m->row_data(row), m->cols / 2, m->row_data(row + width));
        std::copy_n(&m->scales_e8m0[std::size_t(row) * (m->cols / 32)], m->cols / 32,
                    &m->scales_e8m0[std::size_t(row + width) * (m->cols / 32)]);
      }
    for (int row = 0; row < e.down.rows; ++row) {
      u8 *codes = e.down.row_data(row), *scales = &e.down.scales_e8m0[std::size_t(row) * (e.down.cols / 32)];
      for (int i = 0; i < width / 2; ++i) codes[width / 2 + i] = codes[i] ^ 0x88;
      for (int i = 0; i < blocks; ++i) scales[blocks + i] = scales[i] = u8(scales[i] + 24);
    }
  });
  return r;
}

/// Two launches on one machine, other rows in the second; red if one differs from the unmutated run or is stopped.
caught run(const mutants& r, mutation what, u64 seed) {
  wrong::describe<slices<C>>();
  static std::map<const mutants*, outcome> expected;
  if (!expected.contains(&r)) {
    wrong::reset(mutation::none, 0);
    expected[&r] = r.run({});
  }
  setup s = with_rows({0, 3});
  s.blocks = 2;
  s.seed = seed;
  // A rank that lags is overtaken sooner.
  if (what == mutation::one_buffer) s.faults = {{.kind = sim::fault_kind::slow_rank, .rank = int(seed % 4)}};
  typename mutants::live l(r, s);
  caught result = caught::no;
  for (std::vector<int> rows : {std::vector<int>{0, 3}, {-1, 1}}) {
    if (what == mutation::bf16_bias) rows = mutants::all_rows();  // not every row is near enough to a tie
    l.set_rows(rows);
    wrong::reset(what, l.state(0).epoch);
    const outcome o = l.collect(l.run());
    wrong::reset(mutation::none, 0);
    if (!o.report.ok) {
      UNSCOPED_INFO(o.report.text.substr(0, 400));
      switch (o.report.kind) {
        case sim::error::race: return caught::race;
        case sim::error::deadlock: return caught::deadlock;
        case sim::error::ring: return caught::ring;
        case sim::error::unread_overwrite: return caught::unread;
        default: return caught::other;
      }
    }
    if (const std::string d = r.difference(o, expected[&r]); d != "") {
      UNSCOPED_INFO(d);
      result = caught::bits;
    }
  }
  return result;
}

/// How many of `seeds` seeds end in which way.
std::map<caught, int> over_seeds(const mutants& r, mutation what, int seeds) {
  std::map<caught, int> ways;
  for (int i = 1; i <= seeds; ++i) ++ways[run(r, what, u64(i))];
  std::string text;
  for (const auto& [way, count] : ways) text += words(way) + ": " + std::to_string(count) + "  ";
  UNSCOPED_INFO(text);
  return ways;
}

}  // namespace

TEST_CASE("without a mutation the mutant is right", "[mutants]") {
  CHECK(over_seeds(plain(), mutation::none, 3)[caught::no] == 3);
  CHECK(over_seeds(bias_near_34(), mutation::none, 2)[caught::no] == 2);
}

TEST_CASE("caught: a missing arrival", "[mutants]") {
  CHECK(over_seeds(plain(), mutation::missing_arrival, 3)[caught::deadlock] == 3);
}
TEST_CASE("caught: an arrival before its payload", "[mutants]") {
  CHECK(over_seeds(plain(), mutation::early_arrival, 3)[caught::race] == 3);
}
TEST_CASE("caught: an arrival without waiting for the stores", "[mutants]") {
  if constexpr (wrong::words) CHECK(over_seeds(plain(), mutation::missing_drain, 3)[caught::race] == 3);
}
TEST_CASE("caught: a poll of the wrong epoch", "[mutants]") {
  CHECK(over_seeds(plain(), mutation::wrong_epoch, 3)[caught::race] == 3);
}
TEST_CASE("caught: a tagged word of the wrong epoch", "[mutants]") {
  CHECK(over_seeds(plain(), mutation::wrong_tag, 3)[caught::no] == 0);
}
TEST_CASE("caught: a chunk read before it landed", "[mutants]") {
  CHECK(over_seeds(plain(), mutation::early_chunk, 3)[caught::ring] == 3);
}
TEST_CASE("caught: a mailbox word overwritten unread", "[mutants]") {
  CHECK(over_seeds(plain(), mutation::one_buffer, 5)[caught::unread] >= 1);
}
TEST_CASE("caught: a wrong order of k", "[mutants]") {
  CHECK(over_seeds(plain(), mutation::k_order, 2)[caught::bits] == 2);
}
TEST_CASE("caught: another lane's scales", "[mutants]") {
  CHECK(over_seeds(plain(), mutation::scale_lane, 2)[caught::bits] == 2);
}
TEST_CASE("caught: a bias rounded to bf16", "[mutants]") {
  CHECK(over_seeds(bias_near_34(), mutation::bf16_bias, 1)[caught::bits] == 1);
}
TEST_CASE("caught: a sum in the order of arrival", "[mutants]") {
  CHECK(over_seeds(cancelling(), mutation::none, 2)[caught::no] == 2);
  CHECK(over_seeds(cancelling(), mutation::arrival_order, 3)[caught::bits] == 3);
}
TEST_CASE("caught: group-scope data read in another group", "[mutants]") {
  // The launch believes in one group where the machine has two.
  setup s = with_rows({0, 3});
  s.blocks = 4, s.groups = 1, s.machine_groups = 2;
  const mutants r({A});
  const outcome o = r.run(s);
  INFO(o.report.text);
  CHECK(o.report.kind == sim::error::group_scope);
}
