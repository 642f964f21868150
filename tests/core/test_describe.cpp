// The picture of the two slices: key lines, widths, and what a refused program says.
#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

#include "core/slices_program.hpp"
#include "monolayer/host/describe.hpp"

using namespace slices;

namespace {

std::vector<std::string> lines(const std::string& text) {
  std::vector<std::string> out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    out.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return out;
}

void check_has(const std::string& text, const std::string& line) {
  INFO(text);
  INFO("is there no line: " << line);
  bool found = false;
  for (const std::string& l : lines(text)) found |= l == line;
  CHECK(found);
}

}  // namespace

TEST_CASE("describe draws the slices") {
  const std::string text = describe(program());
  check_has(text, "program: 2 kinds, 8 slots, 8 rows of 8, top 8, 4 ranks");
  check_has(text, "kind slice_a: 3 stages");
  check_has(text, "  +- q_b              256 tiles x 16 columns, by group (16 parts), streams 1 matrix");
  check_has(text, "  |    <- qa               all               32768 B x   256 readers =   8.39 MB");
  check_has(text, "  |    -> q                group, counted");
  check_has(text, "  +- head_out         16 tiles, by group (16 parts)");
  check_has(text, "  |    <- q                own                4096 B x    16 readers =   0.07 MB");
  check_has(text, "  |    <- heads_done       all, earlier");
  check_has(text, "  +- routed_gate_up   up to 2048 tiles x 16 columns, routed, streams 2 matrices");
  check_has(text, "  |    <- hidden           all, earlier      98304 B x   256 readers =  25.17 MB");
  check_has(text, "  |    <- partial          own                6144 B x   128 readers =   0.79 MB");
  check_has(text, "  |    -> partial          peers, tagged");
  check_has(text, "  critical path: 3 hops, 0 between ranks");
  check_has(text, "  critical path: 4 hops, 1 between ranks");
  check_has(text, "    -[hidden]-> router -[logits]-> routed_gate_up -[act]-> down -[partial]=> reduce");
  check_has(text, "  logits           f32        256      1      0  device  tagged           1      16384");
  check_has(text, "  partial          bf16      6144    128      0  peers   tagged           2     786432");
  check_has(text, "  scratch 385024 bytes, mailbox 1572864 bytes a rank");
  check_has(text, "  at most 384 blocks a launch");
  CHECK(text.find("REFUSED") == std::string::npos);
  CHECK(text.find("memory floor") == std::string::npos);
  CHECK(text == describe(program()));
}

TEST_CASE("describe counts rows, weights and the memory floor") {
  const double weights[] = {16.12e6, 8.39e6, 0, 3.15e6, 3.34e6, 52.64e6, 28e6, 0};
  const std::string text =
      describe(program(), {.rows = 2, .terabytes_per_second = 4.1, .weight_bytes = weights});
  check_has(text, "program: 2 kinds, 8 slots, 2 rows of 8, top 8, 4 ranks");
  check_has(text, "  +- q_a              128 tiles x 16 columns, streams 1 matrix, 16.12 MB");
  check_has(text, "  |    <- hidden           all, earlier      24576 B x   256 readers =   6.29 MB");
  check_has(text, "  weights 24.51 MB: memory floor 5.98 us at 4.10 TB/s");
  check_has(text, "  weights 87.13 MB: memory floor 21.25 us at 4.10 TB/s");
  check_has(text, "  scratch 385024 bytes, mailbox 1572864 bytes a rank");  // at max_rows, whatever is live
  const double first[] = {16.12e6};
  check_has(describe(program(), {.weight_bytes = first}), "  weights 16.12 MB");
}

TEST_CASE("describe keeps within 110 columns, with long paths and names") {
  program_info p = program();
  p.kinds[slice_b].stages[routed_gate_up].name = "routed_gate_and_up_projection_of_all_experts";
  p.slots[act].name = "activations_of_all_routed_experts";
  const std::string text = describe(p);
  for (const std::string& l : lines(text)) {
    INFO(l);
    CHECK(l.size() <= 110);
    CHECK((l.empty() || l.back() != ' '));
  }
  check_has(text, "    -[hidden]-> router -[logits]-> routed_gate_and_up_projection_of_all_experts");
  check_has(text, "      -[activations_of_all_routed_experts]-> down -[partial]=> reduce");
}

TEST_CASE("describe names what is refused") {
  program_info p = program();
  p.slots[qa].units = 120;
  const std::string text = describe(p);
  check_has(
      text,
      "REFUSED: arrivals: the tiles of a part must bring exactly slot.units arrival units; tagged slots have "
      "none; kind 0 (slice_a); stage 0 (q_a); slot 0 (qa); seen 128, wanted 120");
  check_has(text, "kind slice_b: 5 stages");
  p.kind_count = 9;  // no index can be trusted: nothing but the reason
  const std::string broken = describe(p);
  CHECK(lines(broken).size() == 1);
  CHECK(broken.find("REFUSED: limits: ") == 0);
  CHECK(describe(program(), defect{}) == "sound");
}

TEST_CASE("the longest path counts hops and those between ranks") {
  const program_info p = program();
  const critical_path path = longest_path(p, slice_b);
  CHECK(path.hops == 4);
  CHECK(path.between_ranks == 1);
  CHECK(path.stages == std::vector<int>{router, routed_gate_up, down, reduce});
  CHECK(path.slots == std::vector<int>{hidden, logits, act, partial});
  program_info q = p;  // a stage that waits for nothing begins a path without a hop
  q.kinds[slice_b].stages[router].reads[0] = q.kinds[slice_b].stages[router].reads[1] = {};
  CHECK(longest_path(q, slice_b).hops == 3);
}
