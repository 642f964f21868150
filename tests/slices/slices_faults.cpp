// Ranks and blocks that stop, lost, late and repeated words, and the way back, on one target, TARGET.
#include "slices/reset_ranks.hpp"
#include "slices/rig.hpp"

using namespace monolayer;
using namespace monolayer::test;

using T = sim::TARGET;

namespace {

constexpr u64 local_deadline = 200'000'000, peer_deadline = 20'000'000'000;
// The virtual clock jumps by up to 1 s a poll while nothing happens, and a wait looks at it at every 64th.
constexpr u64 clock_slack = 64'000'000'000;

template <int TP>
const rig<T, tiny_slices<TP>>& layers() {
  static const rig<T, tiny_slices<TP>> r({A, B, B});
  return r;
}

setup faulty(std::vector<sim::fault> faults, u64 seed) {
  setup s = with_rows({-1, 4});
  s.blocks = 2;
  s.seed = seed;
  s.faults = std::move(faults);
  s.deadlock_is_error = false;
  s.local_deadline_ns = local_deadline, s.peer_deadline_ns = peer_deadline;
  return s;
}

/// All that a launch can write, of every rank, but for the count of failed launches.
template <class L>
std::vector<std::vector<u8>> everything(L& l) {
  std::vector<std::vector<u8>> all;
  auto add = [&](const void* at, std::size_t bytes) {
    all.emplace_back(static_cast<const u8*>(at), static_cast<const u8*>(at) + bytes);
  };
  for (auto& rank : l.s.of) {
    const int r = int(&rank - l.s.of);
    add(rank.memory.slots, rank.memory.slots_bytes);
    add(rank.memory.arrivals, rank.memory.arrivals_bytes);
    add(rank.memory.mailbox[r], rank.memory.mailbox_bytes);
    device_state state = l.state(r);
    state.failed_launches = 0;
    add(&state, sizeof state);
    const auto out = l.s.output(r);
    add(out.data(), out.size() * 2);
    for (std::size_t i = 0; i < rank.q.size(); ++i)
      if (rank.q[i] != nullptr) {
        const auto q = l.s.q(r, int(i));
        add(q.data(), q.size() * 2);
      }
  }
  return all;
}

/// The ranks as they are after the stopped one was started again: a machine without the fault, the same memory.
template <class L>
std::unique_ptr<L> revived(L& old, u64 seed) {
  setup s = old.how;
  s.faults.clear();
  s.seed = seed;
  s.deadlock_is_error = true;
  auto l = std::make_unique<L>(old.of, s);
  for (std::size_t r = 0; r < std::size(l->s.of); ++r) {
    auto &from = old.s.of[r].memory, &to = l->s.of[r].memory;
    std::memcpy(to.slots, from.slots, to.slots_bytes);
    std::memcpy(to.arrivals, from.arrivals, to.arrivals_bytes);
    std::memcpy(to.mailbox[r], from.mailbox[r], to.mailbox_bytes);
    std::memcpy(to.state[r], from.state[r], to.state_bytes);
  }
  return l;
}

template <class L>
std::vector<status> reset_all(L& l, int other = -1) {
  return reset_ranks<T, typename std::remove_reference_t<decltype(l.s)>::program>(l.s.of, other);
}

template <class R>
const outcome& without_faults(const R& r) {
  static const outcome o = r.run({});
  MUST_RUN(o);
  return o;
}

/// Scheduling steps of a run without faults.
template <class R>
u64 steps_of(const R& r, u64 seed) {
  setup s = faulty({}, seed);
  const outcome o = r.run(s);
  MUST_RUN(o);
  return o.report.stats.steps;
}

struct tally {
  int own_deadlines = 0, told = 0, unharmed = 0;
};

/// After a launch with a fault: every other rank has ended, in time, right or with a record; stays ended; and comes back.
/// `stopped`: the rank whose launch never ends, -1: none.
template <class L>
void aftermath(L& l, const sim::report& report, int stopped, tally& t) {
  const auto& expected = without_faults(l.of);
  constexpr int ranks = int(std::size(decltype(l.s.of){}));
  INFO(report.text);
  REQUIRE(report.ok);
  CHECK(report.unfinished <= (stopped >= 0 ? 1 : 0));
  CHECK(l.backend.machine.clock_ns() < 1'000'000'000 + peer_deadline + local_deadline + clock_slack);
  const outcome after = l.collect(report);
  bool failed = false;
  for (int r = 0; r < ranks; ++r) {
    const failure_record& f = after.states[r].failed;
    const auto why = failure(f.word);
    failed |= why != failure::none;
    if (r == stopped) continue;
    INFO("rank " << r << " failure " << f.word << " slot " << f.slot << " part " << f.part << " stage " << f.stage
                 << " block " << f.block << " told by " << f.rank);
    if (why == failure::none) {
      CHECK(after.states[r].epoch == 3);
      for (int row = 0; row < int(l.how.rows.size()); ++row)
        if (const int id = l.how.rows[row]; id >= 0)
          CHECK(std::equal(after.out[r].begin() + row * 256, after.out[r].begin() + row * 256 + 256,
                           expected.out[r].begin() + id * 256));
      ++t.unharmed;
    } else if (why == failure::peer_failed) {
      CHECK(int(f.rank) != r);
      CHECK(f.rank < u32(ranks));
      ++t.told;
    } else {
      CHECK(int(f.rank) == r);
      CHECK(f.layer < 3);
      CHECK(after.states[r].epoch == 0);
      CHECK(u64(f.epoch_high) << 32 == 0);
      ++t.own_deadlines;
      if (why == failure::peer_wait) {
        CHECK(f.slot == u32(slices<tiny_slices<4>>::partial));
        CHECK(f.part < u32(ranks));  // whose words are missing
        if (stopped >= 0) CHECK(int(f.part) == stopped);
        CHECK(f.expected == f.epoch_low);
        CHECK(f.seen != f.expected);
      } else {
        CHECK((why == failure::slot_wait || why == failure::check_in));
      }
    }
  }
  if (!failed) return;

  // Failures are sticky: later launches return at once and write nothing.
  const auto before = everything(l);
  const u64 then = l.backend.machine.clock_ns();
  std::vector<int> tried;
  for (int r = 0; r < ranks; ++r)
    if (r != stopped && after.states[r].failed.word != 0) {
      l.backend.template launch<T, typename std::remove_reference_t<decltype(l.s)>::program>(
          l.s.params(r, int(l.how.rows.size()), 0, 3, l.options()), l.how.blocks);
      tried.push_back(r);
    }
  const sim::report again = l.backend.run();
  INFO(again.text);
  REQUIRE(again.ok);
  CHECK(l.backend.machine.clock_ns() - then < 1'000'000);
  CHECK(everything(l) == before);
  for (int r : tried) CHECK(l.state(r).failed_launches == after.states[r].failed_launches + 1);

  // The collective way back.
  auto next = revived(l, l.how.seed + 1);
  for (const status& s : reset_all(*next)) CHECK(s.text() == "ok");
  for (int r = 0; r < ranks; ++r) CHECK(next->state(r).epoch == next->state(0).epoch);
  next->set_rows({6});
  const outcome o = next->collect(next->run());
  MUST_RUN(o);
  CHECK(l.of.difference(o, expected) == "");
}

template <int TP>
tally stops(sim::fault_kind kind, int places) {
  const auto& r = layers<TP>();
  tally t;
  static const u64 steps = steps_of(r, 100);  // of another seed they are others, but not by much
  for (int i = 0; i < places; ++i) {
    const u64 seed = u64(100 + i);
    const int rank = i % TP;
    const u64 after = steps * u64(i) / u64(places) * 3 / 4;
    const setup s = faulty({{.kind = kind, .rank = rank, .block = i / 4 % 2, .after = after}}, seed);
    INFO("place " << i << ", after step " << after << " on rank " << rank);
    typename rig<T, tiny_slices<TP>>::live l(r, s);
    const sim::report report = l.run();
    aftermath(l, report, rank, t);
  }
  return t;
}

/// Faults of single words, spread over those that a run stores on one rank.
template <int TP>
tally words(sim::fault_kind kind, int places, u64 delay_ns, bool may_fail, u64 every) {
  const auto& r = layers<TP>();
  tally t;
  for (int i = 0; i < places; ++i) {
    setup s = faulty({{.kind = kind, .rank = i % TP, .nth = u64(i) * every, .delay_ns = delay_ns}}, u64(200 + i));
    s.expect_readers = false;  // a repeated word may fall on one that has not been read
    INFO("place " << i << ", word " << u64(i) * every);
    typename rig<T, tiny_slices<TP>>::live l(r, s);
    const sim::report report = l.run();
    tally one;
    aftermath(l, report, -1, one);
    t.own_deadlines += one.own_deadlines, t.told += one.told, t.unharmed += one.unharmed;
    if (!may_fail) CHECK(one.unharmed == TP);
  }
  return t;
}

}  // namespace

TEST_CASE("a rank that stops", "[faults]") {
  const tally t = stops<4>(sim::fault_kind::stop_rank, 20);
  CHECK(t.own_deadlines >= 12);
  CHECK(t.own_deadlines + t.told >= 40);
}

TEST_CASE("a block that stops", "[faults]") {
  const tally t = stops<4>(sim::fault_kind::stop_block, 20);
  CHECK(t.own_deadlines + t.told >= 30);
}

TEST_CASE("a block that stops, one rank alone", "[faults]") { stops<1>(sim::fault_kind::stop_block, 20); }

TEST_CASE("lost flags and words end in a record", "[faults]") {
  CHECK(words<1>(sim::fault_kind::lose_arrival, 12, 0, true, 3).own_deadlines >= 6);
  CHECK(words<1>(sim::fault_kind::lose_tagged, 6, 0, true, 41).own_deadlines >= 4);
  CHECK(words<4>(sim::fault_kind::lose_tagged, 6, 0, true, 131).own_deadlines >= 4);
}

TEST_CASE("late flags and words change nothing", "[faults]") {
  for (u64 delay : {0u, 20'000u}) {
    words<1>(sim::fault_kind::delay_arrival, 6, delay, false, 7);
    words<1>(sim::fault_kind::delay_tagged, 6, delay, false, 41);
    words<4>(sim::fault_kind::delay_tagged, 4, delay, false, 131);
  }
}

TEST_CASE("a word of a peer may be later than blocks of one GPU wait for each other", "[faults]") {
  // The blocks that have their own words go on to the next layer and wait there for the one that has not.
  for (u64 seed = 1; seed <= 4; ++seed) {
    setup s = faulty({{.kind = sim::fault_kind::delay_tagged, .rank = 1, .nth = 20, .delay_ns = 5 * local_deadline}}, seed);
    s.expect_readers = false;
    const auto& r = layers<4>();
    const outcome o = r.run(s);
    MUST_RUN(o);
    for (const device_state& state : o.states) CHECK(state.failed.word == 0);
    CHECK(r.difference(o, without_faults(r)) == "");
  }
}

TEST_CASE("repeated flags and words change nothing", "[faults]") {
  // A counter that counted an arrival twice would be wrong, so there only words are repeated.
  if constexpr (T::arrivals == arrival_kind::words) words<1>(sim::fault_kind::repeat_arrival, 6, 1'000, false, 7);
  words<1>(sim::fault_kind::repeat_tagged, 6, 1'000, false, 41);
  words<4>(sim::fault_kind::repeat_tagged, 4, 1'000, false, 131);
}

TEST_CASE("a slow rank changes nothing", "[faults]") {
  const auto& r = layers<4>();
  const outcome o = r.run(faulty({{.kind = sim::fault_kind::slow_rank, .rank = 2}}, 5));
  MUST_RUN(o);
  CHECK(r.difference(o, without_faults(r)) == "");
}

TEST_CASE("reset refuses ranks of different programs and changes nothing then", "[faults]") {
  using program = slices<tiny_slices<4>>;
  typename rig<T, tiny_slices<4>>::live l(layers<4>(), with_rows({0}));
  const sim::report report = l.run();
  REQUIRE(report.ok);
  const auto before = everything(l);
  const std::vector<status> results = reset_all(l, 2);
  const u64 hash = program_hash<T, program>();
  for (int r = 0; r < 4; ++r) {
    CHECK(results[r].code == error_code::mismatch);
    // Rank 2 hears its own wrong word, so to it all others differ; here only its entry was changed.
    CHECK(results[r].text() == "program of rank 2: seen " + std::to_string(hash ^ 1) + ", wanted " + std::to_string(hash));
  }
  CHECK(everything(l) == before);
  for (const status& s : reset_all(l)) CHECK(s.text() == "ok");
  CHECK(l.state(3).epoch == u64(2) << 20);
}
