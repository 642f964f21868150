// Valid checkpoints read back value by value, in one file and in shards, and in each form that a tensor may
// have.
#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include "checkpoint/directory.hpp"
#include "monolayer/core/types.hpp"
#include "reference/synthesis.hpp"

using namespace monolayer;
using namespace monolayer::examples;

namespace {

/// A matrix's element, decoded by the library's conversions.
double value_of(const checkpoint_matrix& m, weight_kind kind, long r, long c) {
  const u8* data = static_cast<const u8*>(m.data);
  switch (kind) {
    case weight_kind::bf16: {
      bf16 v;
      std::memcpy(&v.bits, data + (r * m.columns + c) * 2, 2);
      return double(to_float(v));
    }
    case weight_kind::fp8_block:
      return double(to_float(e4m3fn{data[r * m.columns + c]})) *
             double(m.scales[r / 128 * ((m.columns + 127) / 128) + c / 128]);
    case weight_kind::fp8_channel:
      return double(to_float(e4m3fn{data[r * m.columns + c]})) * double(m.scales[r]);
    case weight_kind::mxfp4:
      return reference::e2m1_decode(data[(r * m.columns + c) / 2] >> (c % 2 * 4) & 15u) *
             reference::e8m0_decode(m.block_scales[r * (m.columns / 32) + c / 32]);
  }
  return 0;
}

/// The same matrix, as the reference holds it, out of what was written.
reference::matrix written(random_checkpoint& c, const std::string& base, long rows, long columns,
                          weight_kind kind) {
  reference::matrix m = reference::blank_matrix(int(rows), int(columns), reference::all_formats[int(kind)]);
  m.data = tensor_of(c, base + ".weight").data;
  const char* scale = kind == weight_kind::fp8_block ? ".weight_scale_inv" : ".weight_scale";
  if (!m.scales.empty()) {
    const auto& data = tensor_of(c, base + scale).data;
    REQUIRE(data.size() == m.scales.size() * 4);
    std::memcpy(m.scales.data(), data.data(), data.size());
  }
  if (!m.scales_e8m0.empty()) m.scales_e8m0 = tensor_of(c, base + scale).data;
  return m;
}

void check_matrix(random_checkpoint& c, const std::string& base, const checkpoint_matrix& m, weight_kind kind,
                  long rows, long columns) {
  INFO(base);
  REQUIRE(m.rows == rows);
  REQUIRE(m.columns == columns);
  CHECK(m.first_row == 0);
  CHECK(m.first_column == 0);
  const reference::matrix wanted = written(c, base, rows, columns, kind);
  long wrong = 0;
  for (long r = 0; r < rows; ++r)
    for (long k = 0; k < columns; ++k) wrong += value_of(m, kind, r, k) != wanted.at(int(r), int(k));
  CHECK(wrong == 0);
}

template <class V>
void check_values(random_checkpoint& c, const std::string& name, const V* seen) {
  INFO(name);
  const stored_tensor& t = tensor_of(c, name);
  REQUIRE(seen != nullptr);
  for (std::size_t i = 0; i < std::size_t(t.shape[0]); ++i) {
    if constexpr (sizeof(V) == 2) {
      CHECK(std::memcmp(seen + i, t.data.data() + 2 * i, 2) == 0);
    } else if (t.type == dtype::bf16) {
      bf16 v;
      std::memcpy(&v.bits, t.data.data() + 2 * i, 2);
      CHECK(seen[i] == to_float(v));
    } else {
      CHECK(std::memcmp(seen + i, t.data.data() + 4 * i, 4) == 0);
    }
  }
}

void check_checkpoint(random_checkpoint& c, const checkpoint_formats& formats,
                      const glm5_checkpoint& opened) {
  const glm5_model_config& g = opened.config();
  REQUIRE(opened.formats().ok());
  CHECK(opened.formats().value() == formats);
  for (int i = 0; i < g.layers; ++i) {
    const auto read = opened.layer(i);
    INFO(read.why().text());
    REQUIRE(read.ok());
    const glm5_layer_tensors& t = read.value();
    const std::string layer = "model.layers." + std::to_string(i) + ".", attention = layer + "self_attn.",
                      indexer = attention + "indexer.", mlp = layer + "mlp.";
    CHECK(t.layer == i);
    check_values(c, layer + "input_layernorm.weight", t.input_norm);
    check_values(c, layer + "post_attention_layernorm.weight", t.post_norm);
    check_values(c, attention + "q_a_layernorm.weight", t.q_a_norm);
    check_values(c, attention + "kv_a_layernorm.weight", t.kv_a_norm);
    const weight_kind of_attention = formats.attention;
    check_matrix(c, attention + "q_a_proj", t.q_a, of_attention, g.q_lora, g.hidden);
    check_matrix(c, attention + "kv_a_proj_with_mqa", t.kv_a, of_attention, 576, g.hidden);
    check_matrix(c, attention + "q_b_proj", t.q_b, of_attention, g.heads * (g.nope + 64), g.q_lora);
    check_matrix(c, attention + "kv_b_proj", t.kv_b, of_attention, g.heads * (g.nope + g.v_dim), 512);
    check_matrix(c, attention + "o_proj", t.o, of_attention, g.hidden, g.heads * g.v_dim);
    REQUIRE(t.has_indexer == (i < 2));
    if (t.has_indexer) {
      check_matrix(c, indexer + "wq_b", t.index_q, formats.index, g.index_heads * 128, g.q_lora);
      check_matrix(c, indexer + "wk", t.index_k, formats.index, 128, g.hidden);
      check_matrix(c, indexer + "weights_proj", t.index_weights, weight_kind::bf16, g.index_heads, g.hidden);
      check_values(c, indexer + "k_norm.weight", t.index_k_norm_weight);
      check_values(c, indexer + "k_norm.bias", t.index_k_norm_bias);
    }
    const auto check_expert = [&](const std::string& base, const expert_tensors& e, long width) {
      check_matrix(c, base + "gate_proj", e.gate, formats.experts, width, g.hidden);
      check_matrix(c, base + "up_proj", e.up, formats.experts, width, g.hidden);
      check_matrix(c, base + "down_proj", e.down, formats.experts, g.hidden, width);
    };
    REQUIRE(t.moe == (i > 0));
    if (t.moe) {
      check_matrix(c, mlp + "gate", t.router, weight_kind::bf16, g.experts, g.hidden);
      check_values(c, mlp + "gate.e_score_correction_bias", t.router_bias);
      check_expert(mlp + "shared_experts.", t.shared, g.expert_width);
      REQUIRE(t.experts.size() == std::size_t(g.experts));
      for (int e = 0; e < g.experts; ++e)
        check_expert(mlp + "experts." + std::to_string(e) + ".", t.expert(e), g.expert_width);
    } else {
      check_expert(mlp, t.dense, g.dense_width);
    }
  }
}

glm5_checkpoint open_written(const temporary_directory& directory, const random_checkpoint& c,
                             int shards = 1) {
  REQUIRE(write_checkpoint(directory.path(), c, shards).ok());
  auto opened = open_checkpoint(directory.path());
  INFO(opened.why().text());
  REQUIRE(opened.ok());
  return opened.value();
}

}  // namespace

TEST_CASE("a checkpoint is read back value by value, from one file and from shards") {
  const weight_kind channel = weight_kind::fp8_channel;
  for (const checkpoint_formats& formats :
       {all_bf16, all_fp8, mxfp4_attnfp8, checkpoint_formats{channel, channel, channel}})
    for (int shards : {1, 4}) {
      INFO(formats.text() << ", shards " << shards);
      random_checkpoint c = make_random_checkpoint(tiny_config(), formats, 7);
      temporary_directory directory;
      const glm5_checkpoint opened = open_written(directory, c, shards);
      CHECK(std::filesystem::exists(directory / "model.safetensors") == (shards == 1));
      check_checkpoint(c, formats, opened);
    }
}

TEST_CASE("other forms of the same tensors are read as the same") {
  random_checkpoint c = make_random_checkpoint(tiny_config(), mxfp4_attnfp8, 8), stored = c;
  for (stored_tensor& t : stored.tensors) {
    if (t.type == dtype::u8 && t.name.ends_with(".weight"))
      t.type = dtype::f4, t.shape[1] *= 2;
    else if (t.type == dtype::u8)
      t.type = dtype::f8_e8m0;
    else if (t.name.ends_with("weight_scale"))
      t.shape = {t.shape[0]};
  }
  temporary_directory directory;
  check_checkpoint(c, mxfp4_attnfp8, open_written(directory, stored));
  // Block scales under the name weight_scale.
  c = make_random_checkpoint(tiny_config(), all_fp8, 8), stored = c;
  for (stored_tensor& t : stored.tensors)
    if (t.name.ends_with("_inv")) t.name.resize(t.name.size() - 4);
  check_checkpoint(c, all_fp8, open_written(directory, stored));
}

TEST_CASE("tensors that are not aligned in their file are read as well") {
  for (const checkpoint_formats& formats : {all_bf16, all_fp8, mxfp4_attnfp8}) {
    random_checkpoint c = make_random_checkpoint(tiny_config(), formats, 9);
    temporary_directory directory;
    REQUIRE(write_json(directory / "config.json", config_json(c.config, c.formats)).ok());
    std::vector<stored_tensor> shifted = {{"first", dtype::u8, {1}, {0}}};
    shifted.insert(shifted.end(), c.tensors.begin(), c.tensors.end());
    REQUIRE(write_safetensors(directory / "model.safetensors", shifted).ok());
    auto opened = open_checkpoint(directory.path());
    REQUIRE(opened.ok());
    check_checkpoint(c, formats, opened.value());
  }
}

TEST_CASE("a layer's tensors outlive the checkpoint that they are of") {
  random_checkpoint c = make_random_checkpoint(tiny_config(), all_bf16, 10);
  std::optional<glm5_layer_tensors> layer;
  {
    temporary_directory directory;
    layer = open_written(directory, c).layer(1).value();
  }
  check_matrix(c, "model.layers.1.self_attn.o_proj", layer->o, weight_kind::bf16, 192, 128);
}

TEST_CASE("tied embeddings are the LM head") {
  glm5_model_config g = tiny_config();
  g.tied_embeddings = true;
  temporary_directory directory;
  const auto opened = open_written(directory, make_random_checkpoint(g, all_bf16, 11));
  CHECK(opened.lm_head() == opened.embeddings());
}

TEST_CASE("a random checkpoint's bits depend on its seed alone") {
  const auto made = [](u64 seed) {
    u64 sum = 0;
    for (const stored_tensor& t : make_random_checkpoint(tiny_config(), mxfp4_attnfp8, seed).tensors)
      sum = sum * 31 + checksum(t.data);
    return sum;
  };
  CHECK(made(1) == made(1));
  CHECK(made(1) != made(2));
}
