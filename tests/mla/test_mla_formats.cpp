// The formats of weights and cache rows, and from 1 to 32 heads.
#include "mla/checks.hpp"

using namespace monolayer;
using namespace monolayer::test;

namespace {

using T = sim::TARGET;

struct wide : mla_config<32, fp8_block<128, 128>, fp8_rows> {  // two groups of heads, steps of half a matrix step
  static constexpr int index_topk = 64, kv_splits = 2, kv_step = 16;
  using index_cache = fp8_keys<shuffled_16x16>;
};
struct one_head : mla_config<1, fp8_channel, fp8_rows> {
  static constexpr int v_dim = 256, index_topk = 192, kv_splits = 2, kv_step = 64;
};
struct sixteen : mla_config<16, fp8_block<128, 128>, bf16_rows> {
  static constexpr int index_topk = 96, kv_splits = 1, kv_step = 64;
};
using eight = mla_config<8, fp8_channel, bf16_rows>;

}  // namespace

TEMPLATE_TEST_CASE("attention in every format", "[mla]", wide, one_head, sixteen, eight) {
  using C = TestType;
  constexpr int span = C::index_topk / C::kv_splits;
  const mla_rig<T, C> rig;
  mla_setup how;
  how.rows = {{0, C::index_topk}, {-1, 0}, {3, C::kv_splits > 1 ? span + 1 : 65}, {2, 0}, {6, span - 1, true, 0}};
  how.blocks = 4;
  how.padding = 32;
  const auto run = checked(rig, how);
  mla_setup alone;
  alone.rows = {how.rows[2]};
  alone.seed = 5, alone.blocks = 7;
  const auto again = rig.run(alone);
  MUST_RUN(again);
  CHECK(again.last.o.at(0) == run.last.o.at(2));
  CHECK(again.last.own.at(0) == run.last.own.at(2));
}

TEST_CASE("fp8 rows saturate", "[mla]") {
  const mla_rig<T, one_head> rig;
  mla_setup how;
  how.rows = {{0, 1}, {4, 70}};
  how.size = 2000;  // of what is only rotated; the rest is normalised
  const auto run = rig.run(how);
  MUST_RUN(run);
  const mla_checks<T, one_head> checks{rig, how, run};
  checks.cache_row(0), checks.cache_row(1);
  CHECK(std::count_if(run.last.own.at(0).begin() + 512, run.last.own.at(0).begin() + 576,
                      [](u8 code) { return (code & 0x7f) == 0x7e; }) > 10);
}
