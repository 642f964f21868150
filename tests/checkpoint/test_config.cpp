// config.json: layer lists, RoPE, and the refusal of each field that the layer cannot serve.
#include <catch2/catch_test_macros.hpp>
#include <fstream>
#include <nlohmann/json.hpp>

#include "checkpoint/directory.hpp"

using namespace monolayer;
using namespace monolayer::examples;

namespace {

/// The config.json of GLM-5.2, without its lists.
json glm52() {
  glm5_model_config c = mini_config();
  c.hidden = 6144;
  c.vocab = 154880;
  c.layers = 78;
  c.heads = 64;
  c.q_lora = 2048;
  c.index_heads = 32;
  c.index_topk = 2048;
  c.experts = 256;
  c.expert_width = 2048;
  c.dense_width = 12288;
  json j = config_json(c, {});
  j.erase("mlp_layer_types");
  j.erase("indexer_types");
  j.update({{"first_k_dense_replace", 3},
            {"num_nextn_predict_layers", 1},
            {"head_dim", 192},
            {"index_topk_freq", 4},
            {"index_skip_topk_offset", 3},
            {"index_topk_pattern", nullptr},
            {"scoring_func", "sigmoid"},
            {"topk_method", "noaux_tc"},
            {"rope_interleave", true},
            {"indexer_rope_interleave", true},
            {"eos_token_id", {154820, 154827, 154829}}});
  return j;
}

glm5_model_config read(const json& j) {
  auto c = parse_config(j, "config.json");
  INFO(c.why().text());
  REQUIRE(c.ok());
  return c.value();
}

std::vector<int> layers_with(const std::vector<bool>& marks) {
  std::vector<int> layers;
  for (std::size_t i = 0; i < marks.size(); ++i)
    if (marks[i]) layers.push_back(int(i));
  return layers;
}

std::string refusal(const json& change) {
  json j = glm52();
  for (const auto& [field, value] : change.items()) j[field] = value;
  return parse_config(j, "config.json").why().text();
}
std::string refusal_without(const char* field) {
  json j = glm52();
  j.erase(field);
  return parse_config(j, "config.json").why().text();
}

}  // namespace

TEST_CASE("GLM-5.2's geometry and layers") {
  const glm5_model_config c = read(glm52());
  CHECK(c.hidden == 6144);
  CHECK(c.head_dim() == 256);
  CHECK(c.softmax_scale() == 0.0625);
  CHECK(c.dense_slices() == 6);
  CHECK(c.layer_norm_eps == 1e-5);
  CHECK(c.q_a_eps == 1e-6);
  CHECK(c.eos == std::vector<int>{154820, 154827, 154829});
  CHECK(layers_with(c.moe).size() == 75);
  CHECK(!c.moe[2]);
  CHECK(c.moe[3]);
  std::vector<int> full = {0, 1, 2};
  for (int i = 6; i < 78; i += 4) full.push_back(i);
  CHECK(full.size() == 21);
  CHECK(layers_with(c.indexer) == full);
}

TEST_CASE("lists of layers win over the numbers") {
  json j = glm52();
  j["num_hidden_layers"] = 4;
  j["mlp_layer_types"] = {"dense", "sparse", "dense", "sparse"};
  j["index_topk_pattern"] = "FSSF";
  CHECK(layers_with(read(j).moe) == std::vector<int>{1, 3});
  CHECK(layers_with(read(j).indexer) == std::vector<int>{0, 3});
  j["index_topk_pattern"] = {"full", "full", "shared", "shared"};
  CHECK(layers_with(read(j).indexer) == std::vector<int>{0, 1});
  j["indexer_types"] = {"full", "shared", "full", "shared", "full"};  // the fifth is the prediction layer's
  CHECK(layers_with(read(j).indexer) == std::vector<int>{0, 2});
  for (const char* field :
       {"indexer_types", "index_topk_pattern", "index_topk_freq", "index_skip_topk_offset"})
    j.erase(field);
  CHECK(layers_with(read(j).indexer) == std::vector<int>{0, 1, 2, 3});
  j["index_topk_freq"] = 2;  // the offset's default is 2
  CHECK(layers_with(read(j).indexer) == std::vector<int>{0, 1, 3});
}

TEST_CASE("RoPE and other fields in their older forms") {
  json j = glm52();
  j.erase("rope_parameters");
  j["rope_theta"] = 8000000;
  j["rope_scaling"] = nullptr;
  CHECK(read(j).rope_theta == 8e6);
  j["rope_scaling"] = {{"rope_type", "default"}};
  CHECK(read(j).rope_theta == 8e6);
  j["rope_parameters"] = {{"rope_theta", 8e6}};
  CHECK(read(j).rope_theta == 8e6);
  j["eos_token_id"] = 7;
  CHECK(read(j).eos == std::vector<int>{7});
  j["eos_token_id"] = nullptr;
  CHECK(read(j).eos.empty());
  j["tie_word_embeddings"] = true;
  CHECK(read(j).tied_embeddings);
}

TEST_CASE("a missing or malformed field is refused by name") {
  CHECK(refusal_without("hidden_size") ==
        "config.json: hidden_size: seen nothing, wanted a whole number from 1 to 1048576");
  CHECK(refusal_without("rms_norm_eps") ==
        "config.json: rms_norm_eps: seen nothing, wanted a positive number");
  CHECK(refusal_without("rope_parameters") ==
        "config.json: rope_theta: seen nothing, wanted a positive number");
  CHECK(refusal_without("first_k_dense_replace") ==
        "config.json: first_k_dense_replace: seen nothing, wanted a whole number from 0 to 100000");
  CHECK(refusal_without("model_type") == "config.json: model_type: seen nothing, wanted \"glm_moe_dsa\"");
  for (const char* field :
       {"vocab_size", "num_hidden_layers", "max_position_embeddings", "num_attention_heads", "q_lora_rank",
        "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "index_n_heads",
        "index_head_dim", "index_topk", "n_routed_experts", "num_experts_per_tok", "moe_intermediate_size",
        "intermediate_size", "routed_scaling_factor"}) {
    CHECK(refusal_without(field).starts_with("config.json: " + std::string(field) +
                                             ": seen nothing, wanted a "));
    CHECK(refusal({{field, "x"}})
              .starts_with("config.json: " + std::string(field) + ": seen \"x\", wanted a "));
  }
  CHECK(refusal({{"hidden_size", -1}}) ==
        "config.json: hidden_size: seen -1, wanted a whole number from 1 to 1048576");
  CHECK(refusal({{"hidden_size", 6144.0}}) ==
        "config.json: hidden_size: seen 6144.0, wanted a whole number from 1 to 1048576");
  CHECK(refusal({{"hidden_size", ~u64(0)}}) ==
        "config.json: hidden_size: seen 18446744073709551615, wanted a whole number from 1 to 1048576");
  CHECK(refusal({{"rms_norm_eps", 0}}) == "config.json: rms_norm_eps: seen 0, wanted a positive number");
  CHECK(refusal({{"tie_word_embeddings", 1}}) ==
        "config.json: tie_word_embeddings: seen 1, wanted true or false");
  CHECK(refusal({{"eos_token_id", 154880}}) ==
        "config.json: eos_token_id: seen 154880, wanted token ids below vocab_size 154880");
}

TEST_CASE("what the layer cannot compute is refused by name") {
  const std::string scaled = " (a scaled RoPE changes the frequencies and the softmax scale)";
  CHECK(refusal({{"model_type", "deepseek_v3"}}) ==
        "config.json: model_type: seen \"deepseek_v3\", wanted \"glm_moe_dsa\"");
  CHECK(refusal({{"rope_parameters", {{"rope_type", "yarn"}, {"rope_theta", 1e6}, {"factor", 4.0}}}}) ==
        "config.json: rope_parameters.rope_type: seen \"yarn\", wanted \"default\"" + scaled);
  CHECK(refusal({{"rope_scaling", {{"type", "yarn"}, {"factor", 4.0}}}}) ==
        "config.json: rope_scaling.type: seen \"yarn\", wanted \"default\"" + scaled);
  CHECK(refusal({{"rope_scaling", {{"factor", 4.0}}}}) ==
        "config.json: rope_scaling: seen {\"factor\":4.0}, wanted nothing, or rope_type \"default\"" +
            scaled);
  CHECK(refusal({{"rope_theta", 8e6}}) ==
        "config.json: rope_theta: seen 8000000.0, wanted the value of rope_parameters.rope_theta");
  CHECK(refusal({{"rope_interleave", false}}) ==
        "config.json: rope_interleave: seen false, wanted true (half-split rotation is not supported)");
  CHECK(
      refusal({{"indexer_rope_interleave", false}}) ==
      "config.json: indexer_rope_interleave: seen false, wanted true (half-split rotation is not supported)");
  CHECK(refusal({{"n_group", 8}}) ==
        "config.json: n_group: seen 8, wanted 1 (grouped routing is not supported)");
  CHECK(refusal({{"scoring_func", "softmax"}}) ==
        "config.json: scoring_func: seen \"softmax\", wanted \"sigmoid\"");
  CHECK(refusal({{"topk_method", "greedy"}}) ==
        "config.json: topk_method: seen \"greedy\", wanted \"noaux_tc\"");
  CHECK(refusal({{"norm_topk_prob", false}}) == "config.json: norm_topk_prob: seen false, wanted true");
  CHECK(refusal({{"hidden_act", "gelu"}}) == "config.json: hidden_act: seen \"gelu\", wanted \"silu\"");
  CHECK(refusal({{"attention_bias", true}}) == "config.json: attention_bias: seen true, wanted false");
  CHECK(refusal({{"n_shared_experts", 2}}) == "config.json: n_shared_experts: seen 2, wanted 1");
  CHECK(refusal({{"intermediate_size", 12289}}) ==
        "config.json: intermediate_size: seen 12289, wanted a multiple of moe_intermediate_size 2048 (a "
        "dense MLP is "
        "packed as slices of that width)");
  CHECK(refusal({{"kv_lora_rank", 256}}) ==
        "config.json: kv_lora_rank: seen 256, wanted 512, the width that the cache rows have");
  CHECK(refusal({{"qk_rope_head_dim", 32}, {"qk_head_dim", 224}}) ==
        "config.json: qk_rope_head_dim: seen 32, wanted 64, the width that the cache rows have");
  CHECK(refusal({{"index_head_dim", 64}}) ==
        "config.json: index_head_dim: seen 64, wanted 128, the width that index keys have");
  CHECK(refusal({{"qk_head_dim", 192}}) ==
        "config.json: qk_head_dim: seen 192, wanted 256, the sum of qk_nope_head_dim and qk_rope_head_dim");
  CHECK(refusal({{"num_key_value_heads", 8}}) ==
        "config.json: num_key_value_heads: seen 8, wanted 64, the same as num_attention_heads");
  CHECK(refusal({{"num_experts_per_tok", 257}}) ==
        "config.json: num_experts_per_tok: seen 257, wanted at most n_routed_experts 256");
  CHECK(refusal({{"quantization_config", {{"weight_block_size", {64, 128}}}}}) ==
        "config.json: quantization_config.weight_block_size: seen [64,128], wanted [128,128]");
}

TEST_CASE("wrong lists of layers are refused") {
  json types = json::array();
  for (int i = 0; i < 78; ++i) types.push_back("full");
  CHECK(refusal({{"indexer_types", types}}) == "ok");
  types[5] = "half";
  const std::string wanted = ", wanted a list of 78 words, 'full' or 'shared'";
  CHECK(refusal({{"indexer_types", types}}) == "config.json: indexer_types[5]: seen \"half\"" + wanted);
  types[5] = "full";
  types[0] = "shared";
  CHECK(refusal({{"indexer_types", types}}) ==
        "config.json: indexer_types[0]: seen a layer that shares an earlier layer's picks, wanted 'full': "
        "layer 0 has "
        "no earlier layer");
  types.erase(0);
  CHECK(refusal({{"indexer_types", types}}) == "config.json: indexer_types: seen 77 entries" + wanted);
  CHECK(refusal({{"indexer_types", "F"}}) == "config.json: indexer_types: seen \"F\"" + wanted);
  CHECK(refusal({{"index_topk_pattern", "FSX"}}) ==
        "config.json: index_topk_pattern: seen \"FSX\", wanted 78 letters, F or S");
  CHECK(refusal({{"mlp_layer_types", {"dense"}}}) ==
        "config.json: mlp_layer_types: seen 1 entries, wanted a list of 78 words, 'sparse' or 'dense'");
  CHECK(refusal({{"index_topk_freq", 0}}) ==
        "config.json: index_topk_freq: seen 0, wanted a whole number from 1 to 100000");
}

TEST_CASE("config.json that is no JSON, or has a field twice, is refused") {
  temporary_directory directory;
  std::ofstream(directory / "config.json") << "{\"hidden_size\": 1, \"hidden_size\": 2}";
  CHECK(directory.text(read_config(directory / "config.json").why()) ==
        "config.json: seen 'hidden_size' twice, wanted each key once");
  std::ofstream(directory / "config.json") << "hidden_size";
  CHECK(directory.text(read_config(directory / "config.json").why()) ==
        "config.json: seen no JSON: stops at byte 1, wanted a JSON object");
}
