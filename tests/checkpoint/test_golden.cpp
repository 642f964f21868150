// The reference model's own checkpoints, and the host's part of the model against its traces.
#include <catch2/catch_test_macros.hpp>
#include <numeric>

#include "checkpoint/directory.hpp"
#include "checkpoint/host_model.hpp"
#include "monolayer/core/types.hpp"
#include "reference/golden.hpp"

using namespace monolayer;
using namespace monolayer::examples;

namespace {

float value_at(const u16* bits, std::size_t i) { return to_float(bf16{bits[i]}); }

void check_folder(const std::filesystem::path& folder, const checkpoint_formats& formats) {
  INFO(folder.string());
  const auto opened = open_checkpoint(folder);
  INFO(opened.why().text());
  REQUIRE(opened.ok());
  const glm5_checkpoint& c = opened.value();
  REQUIRE(c.formats().ok());
  CHECK(c.formats().value() == formats);
  CHECK(c.config().moe == std::vector<bool>{false, true, true});
  CHECK(c.config().indexer == std::vector<bool>{true, true, false});
  for (int i = 0; i < c.config().layers; ++i) {
    const auto layer = c.layer(i);
    INFO(layer.why().text());
    REQUIRE(layer.ok());
    CHECK(layer.value().experts.size() == (i == 0 ? 0u : std::size_t(c.config().experts)));
  }

  auto files = tensor_files::open_file(folder / "golden.safetensors");
  REQUIRE(files.ok());
  const tensor_files& golden = files.value();
  const auto tokens = golden.values<int>("tokens").value();
  const auto hidden = std::size_t(c.config().hidden), vocab = std::size_t(c.config().vocab);

  std::vector<u16> rows(tokens.size() * hidden);
  REQUIRE(embed(c, tokens, rows).ok());
  const auto embeddings = golden.values<float>("embeddings").value();
  REQUIRE(embeddings.size() == rows.size());
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) wrong += value_at(rows.data(), i) != embeddings[i];
  CHECK(wrong == 0);

  // The reference's stream is f32, ours bf16: off by up to 2^-9 of a value, which averages out over a row.
  const auto stream = golden.values<float>("layer2.out").value(),
             wanted = golden.values<float>("logits").value();
  const auto prompt = std::size_t(golden.values<int>("prompt_len").value()[0]);
  double largest = 0, worst = 0;
  for (std::size_t t = prompt - 1; t + 1 < tokens.size(); ++t) {
    std::vector<u16> row;
    for (std::size_t i = 0; i < hidden; ++i) row.push_back(from_float<bf16>(stream[t * hidden + i]).bits);
    const auto seen = logits(c, row);
    REQUIRE(seen.ok());
    for (std::size_t v = 0; v < vocab; ++v) {
      largest = std::max(largest, std::fabs(double(wanted[t * vocab + v])));
      worst = std::max(worst, std::fabs(double(seen.value()[v]) - double(wanted[t * vocab + v])));
    }
    const greedy_choice exact = choose(std::span(wanted).subspan(t * vocab, vocab)).value();
    CHECK(exact.token == tokens[t + 1]);
    CHECK(exact.margin > 0);
    if (exact.margin > 0.01f * exact.logit) CHECK(next_token(c, row).value().token == tokens[t + 1]);
  }
  CHECK(worst < 0.01 * largest);
}

}  // namespace

TEST_CASE("the checkpoint that comes with the repository") {
  check_folder(std::filesystem::path(MONOLAYER_TEST_DATA) / "micro-mxfp4-attnfp8", mxfp4_attnfp8);
}

TEST_CASE("the other checkpoints of the reference model, where they are at hand") {
  const std::map<std::string, checkpoint_formats> known = {{"micro-bf16", all_bf16},
                                                           {"micro-fp8", all_fp8},
                                                           {"micro-mxfp4-attnfp8", mxfp4_attnfp8},
                                                           {"tiny-fp8", all_fp8},
                                                           {"tiny-mxfp4-attnfp8", mxfp4_attnfp8}};
  for (const std::filesystem::path folder : reference::find_golden_folders())
    if (const auto at = known.find(folder.filename().string()); at != known.end()) check_folder(folder, at->second);
}

TEST_CASE("the RoPE table has the reference's angles") {
  const std::vector<float> table = rope_table(5000, 1e6);
  REQUIRE(table.size() == 5000 * 64);
  for (std::size_t i = 0; i < 32; ++i) {
    CHECK(table[i] == 1.0f);
    CHECK(table[32 + i] == 0.0f);
  }
  CHECK(table[64] == float(std::cos(1.0)));
  CHECK(table[64 + 32] == float(std::sin(1.0)));
  // theta^(-2/64) by hand: 10^(-6/32) = 0.649381631576211.
  const float frequency = 0.649381631576211f;
  CHECK(table[4096 * 64 + 1] == float(std::cos(double(4096 * frequency))));
  CHECK(table[4096 * 64 + 33] == float(std::sin(double(4096 * frequency))));
  for (std::size_t i = 0; i < table.size() / 64 * 32; ++i) {
    const std::size_t at = i / 32 * 64 + i % 32;
    const double one =
        double(table[at]) * double(table[at]) + double(table[at + 32]) * double(table[at + 32]);
    if (std::fabs(one - 1) > 2e-7) FAIL("position " << i / 32 << ", frequency " << i % 32);
  }
  CHECK(rope_table(0, 1e6).empty());
}

TEST_CASE("the greedy choice: ties, margins, refusals") {
  const auto chosen = [](std::vector<float> v) { return choose(v).value(); };
  CHECK(chosen({1, 3, 2}).token == 1);
  CHECK(chosen({1, 3, 2}).margin == 1);
  CHECK(chosen({-1, 3, 3, 3}).token == 1);
  CHECK(chosen({-1, 3, 3, 3}).margin == 0);
  CHECK(chosen({5, 3, 4}).token == 0);
  CHECK(chosen({5, 3, 4}).margin == 1);
  CHECK(chosen({3, 4, 5}).margin == 1);
  CHECK(chosen({-5}).token == 0);
  CHECK(std::isinf(chosen({-5}).margin));
  CHECK(choose({}).why().text() == "logits: seen none, wanted at least one");
  const std::vector<float> bad = {1, NAN};
  CHECK(choose(bad).why().text() == "logits[1]: seen nan, wanted a number");
}

TEST_CASE("embedding and head on a random model") {
  random_checkpoint made = make_random_checkpoint(tiny_config(), all_bf16, 3);
  temporary_directory directory;
  REQUIRE(write_checkpoint(directory.path(), made).ok());
  const glm5_checkpoint c = open_checkpoint(directory.path()).value();
  std::vector<u16> rows(3 * 192, 1);
  const std::vector<int> tokens = {39, 0, 7};
  CHECK(embed(c, std::vector<int>{1, 40}, rows).text() == "tokens[1]: seen 40, wanted 0..39");
  CHECK(embed(c, std::vector<int>{-1}, rows).text() == "tokens[0]: seen -1, wanted 0..39");
  CHECK(embed(c, std::vector<int>(4), rows).text() == "rows: seen 576 values, wanted 768");
  CHECK(rows == std::vector<u16>(3 * 192, 1));
  REQUIRE(embed(c, tokens, rows).ok());
  const auto& table = tensor_of(made, "model.embed_tokens.weight").data;
  for (std::size_t i = 0; i < 3; ++i)
    CHECK(std::memcmp(rows.data() + i * 192, table.data() + std::size_t(tokens[i]) * 384, 384) == 0);

  // The norm and head in double.
  const auto row = std::span<const u16>(rows).first(192);
  double squares = 0;
  for (std::size_t i = 0; i < 192; ++i)
    squares += double(value_at(row.data(), i)) * double(value_at(row.data(), i));
  const auto seen = logits(c, row);
  REQUIRE(seen.ok());
  for (std::size_t v = 0; v < 40; ++v) {
    double sum = 0;
    for (std::size_t i = 0; i < 192; ++i)
      sum += double(value_at(row.data(), i)) * double(value_at(c.final_norm(), i)) *
             double(value_at(c.lm_head(), v * 192 + i)) / std::sqrt(squares / 192 + 1e-5);
    CHECK(std::fabs(double(seen.value()[v]) - sum) < 1e-5 * 20);
  }
  CHECK(logits(c, row.first(100)).why().text() == "row: seen 100 values, wanted 192");
}
