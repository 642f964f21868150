// What only the device sees of a step that is wrong, on one target, TARGET: rows, entries and pages that do
// not exist are left out and counted, one by one; every other row has its own bits, and nothing else of the
// caches changes.
#include "glm5/span_rig.hpp"

using namespace monolayer;
using namespace monolayer::test;

using T = sim::TARGET;

namespace {

using C = nano_layer<1>;
using rig = span_rig<T, C>;
constexpr int bad_row = 1;  // of the launches here; its request is no other row's

const rig& layers() {
  static const rig r({moe_layer, sharing_layer});
  return r;
}
span_setup three_rows() {
  span_setup s = with_ids({2, 6, 4});
  s.blocks = 3;
  return s;
}
const span_outcome& expected() {
  static const span_outcome o = layers().run(three_rows());
  MUST_RUN(o);
  REQUIRE(layers().difference(o, o) == "");
  return o;
}

/// A launch of all layers whose step was changed, with the count of bad entries that it left.
template <class F>
std::pair<span_outcome, u32> launch(F change, span_setup how = three_rows()) {
  rig::live l(layers(), how);
  change(l);
  span_outcome o = l.collect(l.run());
  MUST_RUN(o);
  const u32 bad = o.states[0].bad_entries;
  o.states[0].bad_entries = 0;
  return {o, bad};
}
template <class F>
void left_out(F change, span_setup how = three_rows()) {
  auto [o, bad] = launch(change, how);
  CHECK(bad == 1);
  for (const auto& layer : o.written)  // what lies there is as it was: NaN
    for (const std::vector<u8>* bytes : {&layer[bad_row].row, &layer[bad_row].key})
      CHECK(std::all_of(bytes->begin(), bytes->end(), [](u8 b) { return b == 0xff; }));
  o.ids[bad_row] = -1;
  CHECK(layers().difference(o, expected()) == "");
  CHECK(o.states[0].epoch == 2);
}
/// The row is there, but not with all its tokens.
span_outcome others_are_right(std::pair<span_outcome, u32> launched, u32 wanted) {
  auto& [o, bad] = launched;
  CHECK(bad == wanted);
  const u16* row = o.out[0].data() + bad_row * C::hidden;
  CHECK(std::all_of(row, row + C::hidden, [](u16 x) { return std::isfinite(bits_to_float(u32(x) << 16)); }));
  span_outcome rest = o;
  rest.ids[bad_row] = -1;
  std::fill_n(rest.out[0].begin() + bad_row * C::hidden, C::hidden, u16(0x7fc1));
  CHECK(layers().difference(rest, expected()) == "");
  return o;
}

/// A launch of the second layer alone with lists; `change` may spoil them.
using lists = std::vector<std::vector<int>>;
const lists good_lists = {{0, 3, 62}, {95, 1, 2, 3, 50}, {64, 7}};
template <class F>
std::pair<span_outcome, u32> listed(const lists& given, F change) {
  span_setup how = three_rows();
  how.launches = {{1, 1}};
  return launch(
      [&](rig::live& l) {
        const u16* input = l.s.of[0].input;
        l.s.set_rows(l.rows(), {input, input + std::size_t(C::max_rows) * C::hidden}, given);
        change(l);
      },
      how);
}
void nothing(rig::live&) {}
const span_outcome& with_lists(const lists& given) {
  static std::map<lists, span_outcome> known;
  if (!known.contains(given)) {
    const auto [o, bad] = listed(given, nothing);
    CHECK(bad == 0);
    known[given] = o;
  }
  return known[given];
}
std::vector<u16> row_of(const span_outcome& o, int row) {
  return {o.out[0].begin() + row * C::hidden, o.out[0].begin() + (row + 1) * C::hidden};
}
template <class F>
void same_as(const lists& given, const lists& spoilt, u32 wanted, F change) {
  const auto [o, bad] = listed(spoilt, change);
  CHECK(bad == wanted);
  CHECK(o.out == with_lists(given).out);
  CHECK(o.written == with_lists(given).written);
  CHECK(o.stray == "");
}

}  // namespace

TEST_CASE("a row whose slot does not exist is left out", "[bad]") {
  left_out([](rig::live& l) { l.s.of[0].row_slots[bad_row] = (long long)(l.s.batch(0).cache_slots); });
  left_out([](rig::live& l) { l.s.of[0].row_slots[bad_row] = 1ll << 40; });
}

TEST_CASE("a row whose position does not exist is left out", "[bad]") {
  left_out([](rig::live& l) { l.s.of[0].positions[bad_row] = -1; });
  left_out([](rig::live& l) { l.s.of[0].positions[bad_row] = 96; });  // beyond the table of cosines and sines
  left_out([](rig::live& l) { l.s.of[0].positions[bad_row] = 1ll << 32; });
  span_setup how = three_rows();
  how.paging.tokens = 300;
  left_out([](rig::live& l) { l.s.of[0].positions[bad_row] = C::max_context; }, how);
}

TEST_CASE("a request that does not exist has no tokens", "[bad]") {
  const span_outcome o = others_are_right(launch([](rig::live& l) { l.s.of[0].requests[bad_row] = -1; }), 96);
  CHECK(o.picks[bad_row].empty());
}

TEST_CASE("pages that do not exist are left out of the picks", "[bad]") {
  // Page 2 of the row's request: tokens 32 .. 47.
  for (const int entry : {-1, 0x7fffffff, int(1u << 31)}) {
    const span_outcome o = others_are_right(
        launch([&](rig::live& l) { l.s.of[0].block_table[l.s.pages_of_request * 2 + 2] = entry; }), 16);
    CHECK(o.picks[bad_row].size() == 64);
    for (int token : o.picks[bad_row]) CHECK((token < 32 || token > 47));
  }
}

TEST_CASE("a request of more tokens than its table has pages", "[bad]") {
  span_setup how = with_ids({6});
  how.blocks = 3;
  rig::live l(layers(), how);
  // Row 3 of a table of 4 pages a request begins where row 2 of the table of 6 pages does.
  REQUIRE(l.s.pages_of_request == 6);
  l.s.of[0].requests[0] = 3;
  l.s.pages_of_request = 4;
  const sim::report report = l.run();
  l.s.pages_of_request = 6;
  const span_outcome o = l.collect(report);
  MUST_RUN(o);
  CHECK(o.states[0].bad_entries == 32);
  std::vector<int> first(64);
  std::iota(first.begin(), first.end(), 0);
  CHECK(o.picks[0] == first);
  CHECK(o.written[0][0] == expected().written[0][bad_row]);
  CHECK(o.stray == "");
}

TEST_CASE("list entries that do not exist are left out", "[bad]") {
  const auto spoil = [](int first, int second) {
    return [=](rig::live& l) {
      l.s.of[0].list[4] = first == 0 ? int(l.s.batch(0).cache_slots) : first;
      l.s.of[0].list[7] = second;
    };
  };
  const auto [o, bad] = listed(good_lists, spoil(-1, -1));
  CHECK(bad == 2);
  for (int row : {0, 2}) CHECK(row_of(o, row) == row_of(with_lists(good_lists), row));
  CHECK(row_of(o, bad_row) != row_of(with_lists(good_lists), bad_row));
  CHECK(o.written == with_lists(good_lists).written);
  for (u16 x : row_of(o, bad_row)) REQUIRE(std::isfinite(bits_to_float(u32(x) << 16)));
  const auto [again, bad_again] = listed(good_lists, spoil(0, int(1u << 31)));
  CHECK(bad_again == 2);
  CHECK(again.out == o.out);
  // None but such entries: as an empty list.
  same_as({{0, 3, 62}, {}, {64, 7}}, good_lists, 5,
          [](rig::live& l) { std::fill_n(l.s.of[0].list + 3, 5, -1); });
}

TEST_CASE("lists that end before they start, or start before the first entry, are empty", "[bad]") {
  const lists without = {{0, 3, 62}, {}, {64, 7}};
  same_as(without, {{}, {}, {}}, 1, [](rig::live& l) {
    const int entries[] = {l.s.slot_of(1, 64), l.s.slot_of(1, 7), l.s.slot_of(1, 0), l.s.slot_of(1, 3),
                           l.s.slot_of(1, 62)};
    std::copy_n(entries, 5, l.s.of[0].list);
    const int starts[] = {2, 5, 0, 2};
    std::copy_n(starts, 4, l.s.of[0].list_starts);
  });
  same_as({{}, good_lists[1], good_lists[2]}, {{}, good_lists[1], good_lists[2]}, 1,
          [](rig::live& l) { l.s.of[0].list_starts[0] = -3; });
}

TEST_CASE("of a list that is too long the first entries count", "[bad]") {
  std::vector<int> long_list(70), first(64);
  std::iota(long_list.begin(), long_list.end(), 5), std::iota(first.begin(), first.end(), 5);
  same_as({good_lists[0], first, good_lists[2]}, {good_lists[0], long_list, good_lists[2]}, 6, nothing);
}

TEST_CASE("picks that do not fit the caller's range are counted, and nothing is written beyond it", "[bad]") {
  constexpr int guard = 0x5a5a5a5a;
  rig::live l(layers(), three_rows());
  int* out = static_cast<int*>(l.backend.allocate(0, 256 * 4, "picks", memory_use::output));
  std::fill_n(out, 256, guard);
  l.s.of[0].bound[0].picks_out = out;
  const int starts[] = {0, 63, 73,
                        137};  // the first row has 63 picks and the others 64: of the second one 10 fit
  std::copy_n(starts, 4, l.s.of[0].list_starts);
  span_outcome o = l.collect(l.run());
  MUST_RUN(o);
  CHECK(o.states[0].bad_entries == 1);
  o.states[0].bad_entries = 0;
  CHECK(layers().difference(o, expected()) == "");
  for (int row = 0; row < 3; ++row)
    for (int i = starts[row]; i < starts[row + 1]; ++i) {
      const token_row t = row_of_id[o.ids[std::size_t(row)]];
      CHECK(out[i] == l.s.slot_of(t.request, o.picks[std::size_t(row)][std::size_t(i - starts[row])]));
    }
  CHECK(std::all_of(out + 137, out + 256, [](int x) { return x == guard; }));
}

TEST_CASE("a row of NaN is its own harm only", "[bad]") {
  auto [o, bad] = launch(
      [](rig::live& l) { std::fill_n(l.s.of[0].input + bad_row * C::hidden, C::hidden, u16(0x7fc0)); });
  CHECK(bad == 0);
  CHECK(o.picks[bad_row].empty());
  for (u16 x : row_of(o, bad_row)) REQUIRE(std::isnan(bits_to_float(u32(x) << 16)));
  o.ids[bad_row] = -1;
  std::fill_n(o.out[0].begin() + bad_row * C::hidden, C::hidden, u16(0x7fc1));
  CHECK(layers().difference(o, expected()) == "");
}
