// Ranks and blocks that stop somewhere in a span of whole layers, and the way back, on one target, TARGET.
#include "glm5/span_rig.hpp"
#include "slices/reset_ranks.hpp"

using namespace monolayer;
using namespace monolayer::test;

using T = sim::TARGET;

namespace {

using C = nano_layer<2>;
using P = glm5<C>;
using rig = span_rig<T, C>;
constexpr u64 local_deadline = 200'000'000, peer_deadline = 20'000'000'000;
// The virtual clock jumps by up to 1 s a poll while nothing happens, and a wait looks at it at every 64th.
constexpr u64 clock_slack = 64'000'000'000;
constexpr int layer_count = 2;

const rig& layers() {
  static const rig r({moe_layer, sharing_layer});
  return r;
}
span_setup faulty(std::vector<sim::fault> faults, u64 seed) {
  span_setup s = with_ids({-1, 4});
  s.blocks = 2, s.seed = seed;
  s.faults = std::move(faults);
  s.deadlock_is_error = false;
  s.local_deadline_ns = local_deadline, s.peer_deadline_ns = peer_deadline;
  return s;
}
const span_outcome& expected() {
  static const span_outcome o = [] {
    span_setup s = with_ids({3, 4});
    s.blocks = 2;
    return layers().run(s);
  }();
  MUST_RUN(o);
  REQUIRE(layers().difference(o, o) == "");
  return o;
}

/// All that a launch can write, of every rank, but for the count of failed launches.
std::vector<std::vector<u8>> everything(rig::live& l) {
  std::vector<std::vector<u8>> all;
  for (int r = 0; r < C::ranks; ++r) {
    const rank_memory& m = l.s.of[r].memory;
    all.push_back(l.bytes_at(m.slots, m.slots_bytes));
    all.push_back(l.bytes_at(m.arrivals, m.arrivals_bytes));
    all.push_back(l.bytes_at(m.mailbox[r], m.mailbox_bytes));
    device_state state = l.state(r);
    state.failed_launches = 0;
    all.push_back(l.bytes_at(&state, sizeof state));
    all.push_back(l.bytes_at(l.s.of[r].output, std::size_t(C::max_rows) * C::hidden * 2));
  }
  for (auto& rank : l.snapshot())
    for (auto& cache : rank) all.push_back(std::move(cache));
  return all;
}

/// The ranks as they are after the stopped one was started again: a machine without the fault, the same
/// memory.
std::unique_ptr<rig::live> revived(rig::live& old, u64 seed) {
  span_setup s = old.how;
  s.faults.clear();
  s.seed = seed;
  s.deadlock_is_error = true;
  auto l = std::make_unique<rig::live>(old.of, s, old.earlier);
  for (int r = 0; r < C::ranks; ++r) {
    auto &from = old.s.of[r].memory, &to = l->s.of[r].memory;
    std::memcpy(to.slots, from.slots, to.slots_bytes);
    std::memcpy(to.arrivals, from.arrivals, to.arrivals_bytes);
    std::memcpy(to.mailbox[r], from.mailbox[r], to.mailbox_bytes);
    std::memcpy(to.state[r], from.state[r], to.state_bytes);
  }
  return l;
}

struct tally {
  int own_deadlines = 0, told = 0, unharmed = 0;
};

/// What must hold after a launch in which rank `stopped` (or a block of it) stood still.
void aftermath(rig::live& l, const sim::report& report, int stopped, tally& t) {
  INFO(report.text);
  REQUIRE(report.ok);
  CHECK(report.unfinished <= 1);
  CHECK(l.backend.machine.clock_ns() < 1'000'000'000 + peer_deadline + local_deadline + clock_slack);
  bool failed = false;
  std::vector<device_state> states;
  for (int r = 0; r < C::ranks; ++r) {
    states.push_back(l.state(r));
    const failure_record& f = states.back().failed;
    const auto why = failure(f.word);
    failed |= why != failure::none;
    if (r == stopped) continue;
    INFO("rank " << r << " failure " << f.word << " slot " << f.slot << " part " << f.part << " stage "
                 << f.stage << " block " << f.block << " told by " << f.rank);
    if (why == failure::none) {
      CHECK(states.back().epoch == layer_count);
      const std::vector<u16> out = l.s.output(r);
      CHECK(std::equal(out.begin() + C::hidden, out.begin() + 2 * C::hidden,
                       expected().out[0].begin() + C::hidden));
      ++t.unharmed;
    } else if (why == failure::peer_failed) {
      CHECK(int(f.rank) == stopped);
      ++t.told;
    } else {
      CHECK(int(f.rank) == r);
      CHECK(f.layer < u32(layer_count));
      CHECK(states.back().epoch == 0);
      if (why == failure::peer_wait) {
        CHECK((f.slot == u32(P::attn_partial) || f.slot == u32(P::mlp_partial)));
        CHECK(int(f.part) == stopped);  // whose words are missing
        CHECK(f.expected == f.epoch_low);
        CHECK(f.seen != f.expected);
      } else {
        CHECK((why == failure::slot_wait || why == failure::check_in));
      }
      ++t.own_deadlines;
    }
  }
  CHECK(l.others(l.snapshot()) == l.others(l.before));
  if (!failed) return;

  // Failures are sticky: later launches return at once and write nothing, outputs and caches included.
  const auto before = everything(l);
  const u64 then = l.backend.machine.clock_ns();
  std::vector<int> tried;
  for (int r = 0; r < C::ranks; ++r)
    if (r != stopped && states[std::size_t(r)].failed.word != 0) {
      const auto& d = l.s.of[r];
      span_arguments a;
      a.layers = d.layers, a.kinds = l.how.kinds, a.input = d.input, a.output = d.output,
      a.row_slots = d.row_slots;
      a.batch = l.s.batch(r), a.rows = int(l.how.ids.size()), a.rank = r, a.blocks = l.how.blocks;
      a.local_deadline_ns = local_deadline, a.peer_deadline_ns = peer_deadline;
      l.backend.launch<T, P>(must(bind<T, P>(d.memory, a)), a.blocks);
      tried.push_back(r);
    }
  const sim::report again = l.backend.run();
  INFO(again.text);
  REQUIRE(again.ok);
  CHECK(l.backend.machine.clock_ns() - then < 1'000'000);
  CHECK(everything(l) == before);
  for (int r : tried) CHECK(l.state(r).failed_launches == states[std::size_t(r)].failed_launches + 1);

  // The collective way back.
  auto next = revived(l, l.how.seed + 1);
  for (const status& s : reset_ranks<T, P>(next->s.of)) CHECK(s.text() == "ok");
  for (int r = 0; r < C::ranks; ++r) CHECK(next->state(r).epoch == next->state(0).epoch);
  next->set_rows({3});
  const span_outcome o = next->collect(next->run());
  MUST_RUN(o);
  CHECK(l.of.difference(o, expected()) == "");
}

/// Places first .. first + count - 1 of `all`, spread over the span: a rank stops at the even ones, a block
/// at the odd.
tally stops(int first, int count, int all) {
  static const u64 steps = [] {
    const span_outcome o = layers().run(faulty({}, 100), &expected());
    MUST_RUN(o);
    return o.report.stats.steps;  // of another seed they are others, but not by much
  }();
  tally t;
  for (int i = first; i < first + count; ++i) {
    const auto kind = i % 2 == 0 ? sim::fault_kind::stop_rank : sim::fault_kind::stop_block;
    const int rank = i / 2 % C::ranks, block = i / 4 % 2;
    const u64 after = steps * u64(i) / u64(all) * 3 / 4;
    INFO("place " << i << ": block " << block << " of rank " << rank << " after step " << after);
    rig::live l(layers(),
                faulty({{.kind = kind, .rank = rank, .block = block, .after = after}}, u64(100 + i)),
                &expected());
    aftermath(l, l.run(), rank, t);
  }
  return t;
}

}  // namespace

TEST_CASE("a rank or a block stops anywhere in a span of whole layers", "[faults]") {
  const tally t = stops(0, 20, 20);
  CHECK(t.own_deadlines + t.told >= 15);
}
TEST_CASE("a rank or a block stops at more places", "[.long][long]") {
  const tally t = stops(1, 119, 120);
  CHECK(t.own_deadlines + t.told >= 90);
}
