// The rules over the tables: the two slices pass, and each mistake is refused by the rule that it breaks, at
// its place. test_upstream.cpp compares the order proofs with brute force.
#include <catch2/catch_test_macros.hpp>
#include <string>
#include <utility>

#include "core/slices_program.hpp"
#include "monolayer/core/proofs.hpp"

using namespace slices;

namespace {

struct sound {
  static constexpr program_info info = program();
};
static_assert(proven<sound>::value);
static_assert(!first_defect(sound::info));
static_assert(lds_budget<163840, 163840>::value);

constexpr stage_info& stage(program_info& p, int kind, int index) { return p.kinds[kind].stages[index]; }

struct place {
  int kind = -1, stage = -1, slot = -1;
  long long seen = 0, wanted = 0;
};

/// What the first defect of the slices is after `change`; also that the rule itself finds it.
template <class F>
defect after(F change) {
  program_info p = program();
  change(p);
  const defect d = first_defect(p);
  INFO(rule_words(d.broken));
  CHECK(find_defect(p, d.broken).slot == d.slot);
  return d;
}
void check(const defect& d, rule r, const place& at) {
  INFO("found " << rule_name(d.broken) << " kind " << d.kind << " stage " << d.stage << " slot " << d.slot
                << " seen " << d.seen << " wanted " << d.wanted);
  CHECK(d.broken == r);
  CHECK(d.kind == at.kind);
  CHECK(d.stage == at.stage);
  CHECK(d.slot == at.slot);
  CHECK(d.seen == at.seen);
  CHECK(d.wanted == at.wanted);
}

}  // namespace

TEST_CASE("the slices pass at 1 to 8 rows and 1 to 8 ranks") {
  for (const int ranks : {1, 2, 4, 8}) {
    program_info p = program();
    p.ranks = ranks;
    for (int rows = 1; rows <= 8; ++rows) {
      p.max_rows = rows;
      p.slots[act].units = rows * 8 * 32;
      stage(p, slice_b, routed_gate_up).tiles = rows * 8 * 32;
      CHECK(!first_defect(p));
    }
  }
}

TEST_CASE("limits, names and shapes") {
  check(after([](auto& p) { p.max_rows = 9; }), rule::limits, {-1, -1, -1, 9, 8});
  check(after([](auto& p) { p.max_rows = 0; }), rule::limits, {-1, -1, -1, 0, 1});
  check(after([](auto& p) { p.slot_count = max_slots + 1; }), rule::limits, {-1, -1, -1, max_slots + 1, max_slots});
  check(after([](auto& p) { p.kind_count = 5; }), rule::limits, {-1, -1, -1, 5, 4});
  check(after([](auto& p) { p.kinds[slice_b].stage_count = max_stages + 1; }), rule::limits,
        {slice_b, -1, -1, max_stages + 1, max_stages});
  check(after([](auto& p) { p.kinds[slice_a].stage_count = 0; }), rule::limits, {slice_a, -1, -1, 0, 1});
  check(after([](auto& p) { p.slots[act].name = "q"; }), rule::names, {-1, -1, act, act, q});
  check(after([](auto& p) { p.slots[act].name = ""; }), rule::names, {-1, -1, act, act, -1});
  check(after([](auto& p) { stage(p, slice_b, down).name = "router"; }), rule::names,
        {slice_b, down, -1, down, router});
  check(after([](auto& p) { stage(p, slice_b, down).name = nullptr; }), rule::names,
        {slice_b, down, -1, down, -1});
  check(after([](auto& p) { p.kinds[slice_b].name = "slice_a"; }), rule::names,
        {slice_b, -1, -1, slice_b, slice_a});
  check(after([](auto& p) { stage(p, slice_b, down).writes = 8; }), rule::known_slots,
        {slice_b, down, -1, 8, 8});
  check(after([](auto& p) { stage(p, slice_b, down).reads[3].slot = 9; }), rule::known_slots,
        {slice_b, down, -1, 9, 8});
  check(after([](auto& p) { p.slots[q].parts = 3; }), rule::slot_shape, {-1, -1, q, 4096, 3});
  check(after([](auto& p) { p.slots[q].parts = 0; }), rule::slot_shape, {-1, -1, q, 4096, 0});
  check(after([](auto& p) { p.slots[q].buffers = 0; }), rule::slot_shape, {-1, -1, q, 0, 1});
  check(after([](auto& p) { p.slots[heads_done].columns = 16; }), rule::token_shape,
        {-1, -1, heads_done, 16, 0});
  check(after([](auto& p) { p.slots[heads_done].transport = transport::tagged; }), rule::token_shape,
        {-1, -1, heads_done, 0, 0});
  check(after([](auto& p) { p.slots[qa].columns = 0; }), rule::token_shape, {-1, -1, qa, 0, 1});
  check(after([](auto& p) { stage(p, slice_a, q_a).tiles = 0; }), rule::stage_shape,
        {slice_a, q_a, qa, 0, 1});
  check(after([](auto& p) { stage(p, slice_b, routed_gate_up).tiles = 2047; }), rule::stage_shape,
        {slice_b, routed_gate_up, act, 2047, 64});
  check(after([](auto& p) { stage(p, slice_b, routed_gate_up).by_group = true; }), rule::stage_shape,
        {slice_b, routed_gate_up, act, 2048, 64});
}

TEST_CASE("writers and readers") {
  check(after([](auto& p) { stage(p, slice_b, down).writes = act_shared; }), rule::one_writer,
        {slice_b, down, act_shared, 2, 1});
  // A reader before its writer, of its own output, and of what only another kind writes.
  check(after([](auto& p) { std::swap(stage(p, slice_b, router), stage(p, slice_b, down)); }),
        rule::writer_first, {slice_b, 0, act, 2, 0});
  check(after([](auto& p) {
          stage(p, slice_b, down).reads[3] = {partial, reach::own};
        }),
        rule::writer_first, {slice_b, down, partial, down, down});
  check(after([](auto& p) { stage(p, slice_b, down).reads[3] = {qa}; }), rule::writer_first,
        {slice_b, down, qa, -1, down});
  check(after([](auto& p) {
          p.kind_count = 1;
          p.kinds[slice_a].stages[q_a].reads[0] = {};
          p.kinds[slice_a].stages[q_a].reads[2] = {logits, reach::all, true};
        }),
        rule::earlier_writer, {slice_a, q_a, logits, 0, 1});
  check(after([](auto& p) { stage(p, slice_a, q_b).tiles = 250; }), rule::parts_divide,
        {slice_a, q_b, q, 250, 16});
  check(after([](auto& p) { stage(p, slice_b, reduce).tiles = 96; }), rule::parts_divide,
        {slice_b, reduce, partial, 96, 128});
  // A routed tile serves several places: it neither arrives at one part nor waits for one.
  check(after([](auto& p) {
          p.slots[act].parts = 8;
          p.slots[act].units = 256;
        }),
        rule::parts_divide, {slice_b, routed_gate_up, act, 1, 8});
  check(after([](auto& p) {
          p.slots[logits].parts = 16;
          stage(p, slice_b, routed_gate_up).reads[1].reach = reach::own;
        }),
        rule::parts_divide, {slice_b, routed_gate_up, logits, 2048, 16});
}

TEST_CASE("arrivals and coverage") {
  check(after([](auto& p) { p.slots[qa].units = 120; }), rule::arrivals, {slice_a, q_a, qa, 128, 120});
  check(after([](auto& p) { p.slots[q].units = 256; }), rule::arrivals, {slice_a, q_b, q, 16, 256});
  check(after([](auto& p) { p.slots[act].units = 256; }), rule::arrivals,
        {slice_b, routed_gate_up, act, 2048, 256});
  check(after([](auto& p) { p.slots[logits].units = 16; }), rule::arrivals, {slice_b, router, logits, 0, 16});
  check(after([](auto& p) { stage(p, slice_a, q_a).units_per_tile = 2; }), rule::arrivals,
        {slice_a, q_a, qa, 256, 128});
  CHECK(!after([](auto& p) {
    stage(p, slice_a, q_a).units_per_tile = 2;
    p.slots[qa].units = 256;
  }));
  check(after([](auto& p) { stage(p, slice_a, q_a).tile_columns = 32; }), rule::coverage,
        {slice_a, q_a, qa, 4096, 2048});
  check(after([](auto& p) { stage(p, slice_a, head_out).tile_columns = 1; }), rule::coverage,
        {slice_a, head_out, heads_done, 16, 0});
  check(after([](auto& p) { stage(p, slice_b, routed_gate_up).tile_columns = 8; }), rule::coverage,
        {slice_b, routed_gate_up, act, 2048, 4096});
  check(after([](auto& p) {
          p.slots[partial].parts = 2048;
          stage(p, slice_b, down).tiles = 2048, stage(p, slice_b, down).tile_columns = 3;
          stage(p, slice_b, reduce).tiles = 2048, stage(p, slice_b, reduce).tile_columns = 3;
          p.slots[hidden].units = 2048;
        }),
        rule::whole_words, {slice_b, down, partial, 6, 4});
}

TEST_CASE("group scope") {
  check(after([](auto& p) { stage(p, slice_a, head_out).reads[0].reach = reach::all; }), rule::group_scope,
        {slice_a, head_out, q, 0, 1});
  check(after([](auto& p) { stage(p, slice_a, head_out).by_group = false; }), rule::group_scope,
        {slice_a, head_out, q, 0, 1});
  check(after([](auto& p) { stage(p, slice_a, q_b).by_group = false; }), rule::group_scope,
        {slice_a, q_b, q, 0, 1});
  check(after([](auto& p) {  // one stage between two group slots that are cut differently
          p.slots[qa].scope = scope::group, p.slots[qa].parts = 8, p.slots[qa].units = 16;
          stage(p, slice_a, q_a).by_group = true;
          stage(p, slice_a, q_b).reads[0].reach = reach::own;
        }),
        rule::group_scope, {slice_a, q_b, qa, 8, 16});
  check(after([](auto& p) { p.slots[qa].scope = scope::group; }), rule::group_scope,
        {slice_a, q_a, qa, 0, 1});
}

TEST_CASE("reuse of buffers") {
  // Each block of reduce reads its columns of hidden and writes them: in place it would overwrite what others
  // read.
  check(after([](auto& p) { p.slots[hidden].buffers = 1; }), rule::reuse, {slice_b, reduce, hidden, 1, 2});
  check(after([](auto& p) {
          p.slots[hidden].buffers = 1;
          p.kinds[slice_a] = p.kinds[slice_b];
          p.kind_count = 1;
          stage(p, 0, router).reads[1] = {};
        }),
        rule::reuse, {0, reduce, hidden, 1, 2});
  // Without heads_done nothing holds q_a of the next layer back while q_b still reads qa.
  check(after([](auto& p) {
          p.kind_count = 1;
          stage(p, slice_a, q_a).reads[0] = stage(p, slice_a, q_a).reads[1] = {};
        }),
        rule::reuse, {slice_a, q_b, qa, 1, 0});
  check(after([](auto& p) { stage(p, slice_a, q_a).reads[1] = {}; }), rule::reuse,
        {slice_a, q_a, hidden, 2, 0});
  // The slices as first drawn: slice_b never waits for slice_a, so two of its layers may pass q_a's read of
  // hidden.
  check(after([](auto& p) { stage(p, slice_b, router).reads[1] = {}; }), rule::reuse,
        {slice_a, q_a, hidden, 2, 0});
  // A stage that reads and writes nothing that anyone waits for (review 22: "a stage that only writes
  // caches").
  check(after([](auto& p) {
          stage(p, slice_b, 5) = {.name = "cache", .tiles = 8, .reads = {{act_shared}}};
          p.kinds[slice_b].stage_count = 6;
        }),
        rule::reuse, {slice_b, 5, act_shared, 1, 0});
  CHECK(!after([](auto& p) { p.slots[hidden].buffers = 3; }));
}

TEST_CASE("uses of a slot follow one another") {
  // Nobody reads act_shared, so no wait keeps its next use from arriving early.
  const defect d = after([](auto& p) {
    stage(p, slice_b, down).reads[1] = {};
    stage(p, slice_b, shared_gate_up).reads[0] = {};
  });
  check(d, rule::use_order, {slice_b, shared_gate_up, act_shared, slice_b, slice_b});
}

TEST_CASE("mailboxes") {
  check(after([](auto& p) {
          p.slots[partial].transport = transport::counted;
          p.slots[partial].units = 3;
        }),
        rule::peers_tagged, {-1, -1, partial, 0, 1});
  check(after([](auto& p) { p.slots[partial].buffers = 1; }), rule::mailbox_buffers, {-1, -1, partial, 1, 2});
  check(after([](auto& p) { stage(p, slice_b, reduce).reads[0].earlier = true; }), rule::mailbox_read,
        {slice_b, down, partial, 0, 1});
  // A second reader of the reduction that nothing of the next layer waits for: two buffers do not help it.
  const auto with_spy = [](auto& p) {
    stage(p, slice_b, 5) = {.name = "spy", .tiles = 128, .reads = {{partial, reach::own}}};
    p.kinds[slice_b].stage_count = 6;
  };
  check(after(with_spy), rule::mailbox_upstream, {slice_b, 5, partial, slice_b, slice_b});
  check(after([&](auto& p) {
          with_spy(p);
          p.slots[partial].buffers = 4;
        }),
        rule::mailbox_upstream, {slice_b, 5, partial, slice_b, slice_b});
}

TEST_CASE("the grid is bounded where every block reads for a routed stage") {
  static_assert(grid_limit(sound::info) ==
                384);  // each block owns a tile of down, which waits for all of act
  program_info p = program();
  stage(p, slice_b, down).tiles = 128, stage(p, slice_b, down).tile_columns = 48;
  CHECK(!first_defect(p));
  CHECK(grid_limit(p) == 128);
  p.kind_count = 1;  // no routed stage, no bound
  CHECK(grid_limit(p) == 1 << 30);
}

TEST_CASE("sizes") {
  const auto limited = [](program_info& p) { p.fan_out_limit = program_info{}.fan_out_limit; };
  check(after(limited), rule::fan_out, {slice_a, q_a, hidden, 128LL * 8 * 6144 * 2, 6'000'000});
  // All columns of every rank to each of reduce's blocks: 101 MB. As parts of 48 columns: 0.8 MB.
  check(after([](auto& p) { p.slots[partial].parts = 1; }), rule::fan_out,
        {slice_b, reduce, partial, 128LL * 4 * 8 * 6144 * 4, 32'000'000});
  CHECK(fan_out_bytes(sound::info, sound::info.kinds[slice_b].stages[reduce], {partial, reach::own}) ==
        4LL * 8 * 6144 * 4);
  check(after([](auto& p) {
          p.slots[act].columns = 16384, p.slots[act].units = 8192;
          stage(p, slice_b, routed_gate_up).tiles = 8192;
        }),
        rule::fan_out, {slice_b, down, act, 256LL * 8 * 16384 * 2, 32'000'000});
  check(after([](auto& p) {
          p.slots[logits].columns = 1280;
          stage(p, slice_b, router).tiles = 80;
        }),
        rule::tagged_size, {-1, -1, logits, 1280LL * 8 * 8, 65536});
}

TEST_CASE("words of the rules") {
  for (int r = 1; r <= int(rule::tagged_size); ++r) {
    const std::string name = rule_name(rule(r)), words = rule_words(rule(r));
    CHECK(words.rfind(name + ": ", 0) == 0);
  }
  CHECK(std::string(rule_name(rule::none)).empty());
}
