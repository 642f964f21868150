// Whole layers with one thing wrong, on one target, TARGET: each mutant must be caught, by its bits or by the
// simulator.
#include "glm5/layer_mutants.hpp"

using namespace monolayer;
using namespace monolayer::test;

using T = sim::TARGET;

namespace {

using C = nano_layer<4>;
using P = mutant_of<glm5<C>>;
using wrong = layer_mutant<T, P>;
using mutants = span_rig<T, C, wrong, P>;
static_assert(target<wrong>);

enum class caught { no, bits, race, early_read, output_read, deadlock, ring, unread, other };

std::string words(caught c) {
  constexpr const char* of[] = {"not caught",
                                "bits",
                                "race",
                                "early read",
                                "output read in its launch",
                                "deadlock",
                                "ring",
                                "unread overwrite",
                                "another error"};
  return of[int(c)];
}
caught by(sim::error e) {
  switch (e) {
    case sim::error::race:
      return caught::race;
    case sim::error::early_read:
      return caught::early_read;
    case sim::error::output_read:
      return caught::output_read;
    case sim::error::deadlock:
      return caught::deadlock;
    case sim::error::ring:
      return caught::ring;
    case sim::error::unread_overwrite:
      return caught::unread;
    default:
      return caught::other;
  }
}

const mutants& plain_layers() {
  static const mutants r({moe_layer, could_pick_layer});
  return r;
}
const mutants& bias_near_34() {
  reference::glm5_layer_options options;
  options.bias_near_34 = true;
  static const mutants r({moe_layer}, 7, options, 1, [](reference::glm5_layer& layer) {
    for (float& b : layer.bias) b = 34 + 5 * (b - 34);  // so that the biases decide
  });
  return r;
}
/// Partial sums of bf16 are added exactly where they are of one size, in any order. Here the shared expert's
/// part of rank 1 is that of rank 0 with the sign changed, and both are 2^24 times the others': only in rank
/// order do they cancel before the small ones come.
const mutants& cancelling() {
  static const mutants r({moe_layer}, 8, {}, 1, [](reference::glm5_layer& layer) {
    reference::expert& e = layer.experts.edit(reference::expert_store::shared_id);
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

/// What an unmutated run of these rows gives.
const span_outcome& expected_of(const mutants& r) {
  static std::map<const mutants*, span_outcome> known;
  if (!known.contains(&r)) {
    wrong::describe<P>();
    wrong::reset(mutation::none, layer_mutation::none, 0);
    wrong::kinds = r.kinds;
    span_setup s = with_ids({0, 3, 4, 5, 6});
    s.blocks = 2;
    known[&r] = r.run(s);
    MUST_RUN(known[&r]);
    REQUIRE(r.difference(known[&r], known[&r]) == "");
  }
  return known[&r];
}

/// Two launches on one machine, other rows in the second; red if one differs from the unmutated run or is
/// stopped.
caught run(const mutants& r, mutation what, layer_mutation of_layers, u64 seed,
           const std::vector<u64>& kinds = {}) {
  const span_outcome& expected = expected_of(r);
  span_setup s = with_ids({0, 3});
  s.blocks = 2, s.seed = seed, s.kinds = kinds;
  // A rank that lags is overtaken sooner.
  if (what == mutation::one_buffer) s.faults = {{.kind = sim::fault_kind::slow_rank, .rank = int(seed % 4)}};
  typename mutants::live l(r, s, &expected);
  wrong::kinds = l.how.kinds;
  caught result = caught::no;
  for (std::vector<int> ids : {std::vector<int>{0, 3}, {-1, 4}}) {
    if (what == mutation::bf16_bias) ids = {5, 6};  // not every row is near enough to a tie
    l.set_rows(ids);
    wrong::reset(what, of_layers, l.state(0).epoch);
    const span_outcome o = l.collect(l.run());
    wrong::reset(mutation::none, layer_mutation::none, 0);
    if (!o.report.ok) {
      UNSCOPED_INFO(o.report.text.substr(0, 400));
      return by(o.report.kind);
    }
    if (const std::string d = r.difference(o, expected); d != "") {
      UNSCOPED_INFO(d);
      result = caught::bits;
    }
  }
  return result;
}

/// How many of `seeds` seeds end in which way.
std::map<caught, int> over_seeds(const mutants& r, mutation what, layer_mutation of_layers, int seeds,
                                 const std::vector<u64>& kinds = {}) {
  std::map<caught, int> ways;
  for (int i = 1; i <= seeds; ++i) ++ways[run(r, what, of_layers, u64(i), kinds)];
  std::string text;
  for (const auto& [way, count] : ways) text += words(way) + ": " + std::to_string(count) + "  ";
  UNSCOPED_INFO(text);
  return ways;
}
std::map<caught, int> over_seeds(const mutants& r, mutation what, int seeds) {
  return over_seeds(r, what, layer_mutation::none, seeds);
}
std::map<caught, int> over_seeds(layer_mutation what, int seeds) {
  return over_seeds(plain_layers(), mutation::none, what, seeds);
}

/// A layer that attends to given lists, with entries and pages that do not exist if wanted: NaN anywhere, or
/// bits that are not those of the same launch unmutated.
struct listed_launch {
  std::vector<std::vector<int>> lists = {{0}, {}, {3, 62, 5, 63, 1}};
  bool absent_entries = false, absent_pages = false;

  span_outcome run(layer_mutation what, u64 seed) const {
    const mutants& r = plain_layers();
    span_setup s = with_ids({0, 5, 3});
    s.blocks = 2, s.seed = seed;
    s.launches = {absent_pages ? launch_of{0, 1} : launch_of{1, 1}};
    typename mutants::live l(r, s, &expected_of(r));
    const u16* input = l.s.of[0].input;
    l.s.set_rows(l.rows(), {input, input + std::size_t(C::max_rows) * C::hidden}, lists);
    for (auto& rank : l.s.of) {
      if (absent_entries) rank.list[2] = -1, rank.list[4] = int(l.s.batch(0).cache_slots);
      if (!absent_pages) continue;
      // Of request 2. Page 0, which is nobody's, holds keys that would be picked: NaN wouldn't.
      int& entry = rank.block_table[l.s.pages_of_request * 2 + 1];
      u8* keys = static_cast<u8*>(rank.bound[0].index_cache);
      std::copy_n(keys + u64(entry) * l.s.key_page(), l.s.key_page(), keys);
      entry = -1;
    }
    l.before = l.snapshot();
    wrong::describe<P>();
    wrong::kinds = {r.kinds[std::size_t(s.launches[0].first)]};
    wrong::cache_slots = l.s.batch(0).cache_slots;
    wrong::reset(mutation::none, what, 0);
    const span_outcome o = l.collect(l.run());
    wrong::reset(mutation::none, layer_mutation::none, 0);
    return o;
  }
  caught caught_by(layer_mutation what) const {
    const span_outcome expected = run(layer_mutation::none, 1);
    MUST_RUN(expected);
    for (std::size_t i = 0; i < 3 * std::size_t(C::hidden); ++i)
      REQUIRE(std::isfinite(bits_to_float(u32(expected.out[0][i]) << 16)));
    CHECK(expected.stray == "");
    const u32 bad = absent_entries ? 2 : absent_pages ? 16 : 0;
    for (const device_state& state : expected.states) CHECK(state.bad_entries == bad);
    const span_outcome again = run(layer_mutation::none, 2);
    CHECK(again.out == expected.out);
    const span_outcome o = run(what, 3);
    if (!o.report.ok) return by(o.report.kind);
    return o.out != expected.out || o.picks != expected.picks ? caught::bits : caught::no;
  }
};

}  // namespace

TEST_CASE("without a mutation the mutant is right", "[mutants]") {
  CHECK(over_seeds(layer_mutation::none, 1)[caught::no] == 1);
  CHECK(over_seeds(bias_near_34(), mutation::none, 1)[caught::no] == 1);
  CHECK(over_seeds(cancelling(), mutation::none, 1)[caught::no] == 1);
}

TEST_CASE("caught: a missing arrival", "[mutants]") {
  CHECK(over_seeds(plain_layers(), mutation::missing_arrival, 2)[caught::deadlock] == 2);
}
TEST_CASE("caught: an arrival before its payload", "[mutants]") {
  CHECK(over_seeds(plain_layers(), mutation::early_arrival, 2)[caught::race] == 2);
}
TEST_CASE("caught: an arrival without waiting for the stores", "[mutants]") {
  if constexpr (wrong::words) CHECK(over_seeds(plain_layers(), mutation::missing_drain, 2)[caught::no] == 0);
}
TEST_CASE("caught: a poll of the wrong epoch", "[mutants]") {
  CHECK(over_seeds(plain_layers(), mutation::wrong_epoch, 2)[caught::no] == 0);
}
TEST_CASE("caught: a tagged word of the wrong epoch", "[mutants]") {
  CHECK(over_seeds(plain_layers(), mutation::wrong_tag, 1)[caught::no] == 0);
}
TEST_CASE("caught: a chunk read before it landed", "[mutants]") {
  CHECK(over_seeds(plain_layers(), mutation::early_chunk, 2)[caught::ring] == 2);
}
TEST_CASE("caught: a mailbox word overwritten unread", "[mutants]") {
  // One buffer for each of the two sums would do: each one's words wait for all readers of the other.
  CHECK(over_seeds(plain_layers(), mutation::one_buffer, 3)[caught::unread] >= 1);
}
TEST_CASE("caught: a wrong order of k", "[mutants]") {
  CHECK(over_seeds(plain_layers(), mutation::k_order, 1)[caught::bits] == 1);
}
TEST_CASE("caught: another lane's scales", "[mutants]") {
  CHECK(over_seeds(plain_layers(), mutation::scale_lane, 1)[caught::bits] == 1);
}
TEST_CASE("caught: a bias rounded to bf16", "[mutants]") {
  CHECK(over_seeds(bias_near_34(), mutation::bf16_bias, 1)[caught::bits] == 1);
}
TEST_CASE("caught: a sum in the order of arrival", "[mutants]") {
  CHECK(over_seeds(cancelling(), mutation::arrival_order, 2)[caught::bits] == 2);
}

TEST_CASE("caught: the new row read from the cache", "[mutants]") {
  CHECK(over_seeds(layer_mutation::row_from_cache, 2)[caught::output_read] == 2);
}
TEST_CASE("caught: the new index key read from the cache", "[mutants]") {
  CHECK(over_seeds(layer_mutation::key_from_cache, 2)[caught::output_read] == 2);
}
TEST_CASE("caught: a sharing layer that attends to a stale list", "[mutants]") {
  CHECK(over_seeds(layer_mutation::stale_picks, 1)[caught::bits] == 1);
}
TEST_CASE("caught: own picks on a sharing layer", "[mutants]") {
  CHECK(over_seeds(plain_layers(), mutation::none, layer_mutation::none, 1, {P::moe, P::moe})[caught::bits] ==
        1);
}
TEST_CASE("caught: lists that begin or end one entry late", "[mutants]") {
  CHECK(listed_launch{}.caught_by(layer_mutation::list_start) == caught::bits);
  CHECK(listed_launch{}.caught_by(layer_mutation::list_end) == caught::bits);
}
TEST_CASE("caught: an empty list divided by its sum", "[mutants]") {
  CHECK(listed_launch{}.caught_by(layer_mutation::empty_list) != caught::no);
}
TEST_CASE("caught: slot 0 in place of what does not exist", "[mutants]") {
  listed_launch l;
  l.absent_entries = true;
  CHECK(l.caught_by(layer_mutation::absent_entry) == caught::bits);
  l.absent_entries = false, l.absent_pages = true;
  CHECK(l.caught_by(layer_mutation::absent_page) == caught::bits);
}
