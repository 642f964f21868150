// Checkpoints with one thing wrong in their tensors: the refusal names file, tensor, what was seen, what is
// wanted.
#include <catch2/catch_test_macros.hpp>

#include "checkpoint/directory.hpp"

using namespace monolayer;
using namespace monolayer::examples;

namespace {

const std::string at = "model.safetensors: tensor 'model.layers.";

const random_checkpoint& whole(const checkpoint_formats& formats) {
  static const random_checkpoint bf16 = make_random_checkpoint(tiny_config(), all_bf16, 1),
                                 fp8 = make_random_checkpoint(tiny_config(), all_fp8, 1),
                                 mxfp4 = make_random_checkpoint(tiny_config(), mxfp4_attnfp8, 1);
  return formats == all_bf16 ? bf16 : formats == all_fp8 ? fp8 : mxfp4;
}

using change = std::function<void(random_checkpoint&)>;

std::string refusal(const checkpoint_formats& formats, const change& spoil) {
  random_checkpoint c = whole(formats);
  spoil(c);
  temporary_directory directory;
  REQUIRE(write_checkpoint(directory.path(), c).ok());
  return directory.text(open_checkpoint(directory.path()).why());
}
std::string refusal_without(const checkpoint_formats& formats, const std::string& name) {
  return refusal(formats, [&](random_checkpoint& c) { drop_tensor(c, name); });
}
std::string refusal_of_shape(const checkpoint_formats& formats, const std::string& name,
                             std::vector<long> shape) {
  return refusal(formats, [&](random_checkpoint& c) { tensor_of(c, name).shape = shape; });
}

/// The refusal that a layer gives when its values are looked at.
std::string refusal_of_layer(const checkpoint_formats& formats, int layer, const change& spoil) {
  random_checkpoint c = whole(formats);
  spoil(c);
  temporary_directory directory;
  REQUIRE(write_checkpoint(directory.path(), c).ok());
  const auto opened = open_checkpoint(directory.path());
  REQUIRE(opened.ok());
  return directory.text(opened.value().layer(layer).why());
}

void set_float(stored_tensor& t, std::size_t i, float value) {
  std::memcpy(t.data.data() + 4 * i, &value, 4);
}

/// Makes a BF16 tensor F32, with the same values.
void widen(stored_tensor& t) {
  std::vector<u8> wide(t.data.size() * 2);
  for (std::size_t i = 0; i < t.data.size() / 2; ++i)
    std::memcpy(wide.data() + 4 * i + 2, t.data.data() + 2 * i, 2);
  t.data = wide;
  t.type = dtype::f32;
}

}  // namespace

TEST_CASE("a missing tensor is refused") {
  const std::string any = "BF16, F8_E4M3, U8 or F4 weights for a matrix ";
  for (const auto& [name, wanted] : std::map<std::string, std::string>{
           {"lm_head.weight", "BF16 or F32 [40, 192]"},
           {"model.embed_tokens.weight", "BF16 or F32 [40, 192]"},
           {"model.norm.weight", "BF16 or F32 [192]"},
           {"model.layers.0.input_layernorm.weight", "BF16 or F32 [192]"},
           {"model.layers.1.self_attn.kv_b_proj.weight", any + "[256, 512]"},
           {"model.layers.1.self_attn.indexer.k_norm.bias", "F32 or BF16 [128]"},
           {"model.layers.0.mlp.down_proj.weight", any + "[192, 128]"},
           {"model.layers.2.mlp.gate.weight", "BF16 or F32 [4, 192]"},
           {"model.layers.2.mlp.gate.e_score_correction_bias", "F32 or BF16 [4]"},
           {"model.layers.2.mlp.shared_experts.up_proj.weight", any + "[64, 192]"},
           {"model.layers.2.mlp.experts.3.gate_proj.weight", any + "[64, 192]"}})
    CHECK(refusal_without(all_bf16, name) ==
          "model.safetensors: tensor '" + name + "': seen nothing, wanted " + wanted);
}

TEST_CASE("a wrong shape is refused") {
  CHECK(refusal_of_shape(all_bf16, "model.layers.0.self_attn.q_a_proj.weight", {192, 96}) ==
        at + "0.self_attn.q_a_proj.weight': seen BF16 [192, 96], wanted [96, 192]");
  CHECK(refusal_of_shape(all_bf16, "model.layers.1.input_layernorm.weight", {1, 192}) ==
        at + "1.input_layernorm.weight': seen BF16 [1, 192], wanted [192]");
  CHECK(refusal_of_shape(all_bf16, "model.layers.1.mlp.gate.weight", {192, 4}) ==
        at + "1.mlp.gate.weight': seen BF16 [192, 4], wanted [4, 192]");
  CHECK(refusal_of_shape(mxfp4_attnfp8, "model.layers.1.mlp.experts.2.down_proj.weight", {32, 192}) ==
        at + "1.mlp.experts.2.down_proj.weight': seen U8 [32, 192], wanted [192, 32]");
  CHECK(refusal_of_shape(mxfp4_attnfp8, "model.layers.1.mlp.experts.2.down_proj.weight_scale", {2, 192}) ==
        at + "1.mlp.experts.2.down_proj.weight_scale': seen U8 [2, 192], wanted [192, 2]");
  CHECK(refusal_of_shape(all_fp8, "model.layers.0.self_attn.kv_a_proj_with_mqa.weight_scale_inv", {2, 5}) ==
        at + "0.self_attn.kv_a_proj_with_mqa.weight_scale_inv': seen F32 [2, 5], wanted [5, 2]");
  CHECK(refusal_of_shape(mxfp4_attnfp8, "model.layers.0.self_attn.o_proj.weight_scale", {1, 192}) ==
        at + "0.self_attn.o_proj.weight_scale': seen F32 [1, 192], wanted [192] or [192, 1] or [2, 1]");
  // A config of another model, then: every tensor is whole, none fits.
  CHECK(refusal(all_bf16, [](random_checkpoint& c) { c.config.hidden = 256; }) ==
        "model.safetensors: tensor 'model.embed_tokens.weight': seen BF16 [40, 192], wanted [40, 256]");
}

TEST_CASE("a type that a tensor may not have is refused") {
  const auto with_type = [](const checkpoint_formats& formats, const std::string& name, dtype type,
                            long columns) {
    return refusal(formats, [&](random_checkpoint& c) {
      tensor_of(c, name).type = type;
      tensor_of(c, name).shape.back() = columns;
    });
  };
  CHECK(with_type(all_bf16, "model.layers.0.self_attn.q_b_proj.weight", dtype::f32, 48) ==
        at + "0.self_attn.q_b_proj.weight': seen F32 [256, 48], wanted BF16 or F8_E4M3 or U8 or F4");
  CHECK(with_type(all_bf16, "model.layers.0.self_attn.indexer.weights_proj.weight", dtype::f8_e4m3, 384) ==
        at + "0.self_attn.indexer.weights_proj.weight': seen F8_E4M3 [2, 384], wanted BF16 or F32 [2, 192]");
  CHECK(with_type(all_fp8, "model.layers.0.self_attn.q_b_proj.weight_scale_inv", dtype::i32, 1) ==
        at + "0.self_attn.q_b_proj.weight_scale_inv': seen I32 [2, 1], wanted F32 or BF16 [2, 1]");
  // Scales of FP8 type are another format's, with blocks of 16.
  CHECK(with_type(mxfp4_attnfp8, "model.layers.0.mlp.up_proj.weight_scale", dtype::f8_e4m3, 6) ==
        at + "0.mlp.up_proj.weight_scale': seen F8_E4M3 [128, 6], wanted U8 or F8_E8M0 [128, 6]");
}

TEST_CASE("scales that are missing, double or out of place are refused") {
  CHECK(refusal_without(all_fp8, "model.layers.0.self_attn.kv_a_proj_with_mqa.weight_scale_inv") ==
        at + "0.self_attn.kv_a_proj_with_mqa.weight': seen F8_E4M3 [576, 192] without scales, wanted "
             "weight_scale_inv "
             "[5, 2] or weight_scale [576]");
  CHECK(refusal_without(mxfp4_attnfp8, "model.layers.1.mlp.experts.0.up_proj.weight_scale") ==
        "model.safetensors: tensor 'model.layers.1.mlp.experts.0.up_proj.weight_scale': seen nothing, wanted "
        "U8 or F8_E8M0 "
        "[64, 6]");
  CHECK(refusal(all_fp8,
                [](random_checkpoint& c) {
                  c.tensors.push_back(
                      {"model.layers.0.mlp.up_proj.weight_scale", dtype::f32, {128}, std::vector<u8>(512)});
                }) == at + "0.mlp.up_proj.weight_scale_inv': seen weight_scale too, wanted one of "
                           "weight_scale_inv and weight_scale");
  CHECK(refusal(all_bf16,
                [](random_checkpoint& c) {
                  c.tensors.push_back(
                      {"model.layers.0.mlp.up_proj.weight_scale", dtype::f32, {128}, std::vector<u8>(512)});
                }) == at + "0.mlp.up_proj.weight_scale': seen a scale of BF16 weights, wanted scales of "
                           "F8_E4M3, U8 or F4 weights only");
  // One scale for a whole matrix is none of the formats.
  CHECK(refusal(mxfp4_attnfp8, [](random_checkpoint& c) {
          stored_tensor& t = tensor_of(c, "model.layers.0.self_attn.q_a_proj.weight_scale");
          t.shape = {1};
          t.data.resize(4);
        }) == at + "0.self_attn.q_a_proj.weight_scale': seen F32 [1], wanted [96] or [96, 1] or [1, 2]");
}

TEST_CASE("a projection with a bias is refused") {
  CHECK(refusal(all_bf16,
                [](random_checkpoint& c) {
                  c.tensors.push_back(
                      {"model.layers.1.self_attn.q_a_proj.bias", dtype::bf16, {96}, std::vector<u8>(192)});
                }) ==
        at + "1.self_attn.q_a_proj.bias': seen BF16 [96], wanted no bias: the layer's projections have none");
}

TEST_CASE("MXFP4 needs whole blocks of columns") {
  CHECK(refusal(mxfp4_attnfp8,
                [](random_checkpoint& c) {
                  c.config.expert_width = 16;
                  for (int layer : {1, 2})
                    for (const char* name : {"gate_proj", "up_proj", "down_proj"})
                      for (const char* part : {".weight", ".weight_scale"}) {
                        stored_tensor& t = tensor_of(c, "model.layers." + std::to_string(layer) +
                                                            ".mlp.shared_experts." + name + part);
                        if (name[0] == 'd') continue;
                        t.shape[0] = 16;
                        t.data.resize(std::size_t(t.shape[0] * t.shape[1]));
                      }
                }) == at + "1.mlp.shared_experts.down_proj.weight': seen U8 [192, 32], wanted a multiple of "
                           "32 columns, not 16: "
                           "MXFP4 has a scale per 32");
}

TEST_CASE("one layer's matrices of a group share one format") {
  const auto mixed = [](const checkpoint_formats& formats, const std::string& name) {
    return refusal(formats, [&](random_checkpoint& c) {
      stored_tensor& t = tensor_of(c, name + ".weight");
      const bool fp4 = t.type == dtype::u8;
      t.type = dtype::bf16;
      t.shape.back() *= fp4 ? 2 : 1;
      t.data.assign(std::size_t(t.shape[0] * t.shape[1] * 2), 0);
      drop_tensor(c, name + (formats == all_fp8 ? ".weight_scale_inv" : ".weight_scale"));
    });
  };
  CHECK(mixed(mxfp4_attnfp8, "model.layers.1.self_attn.o_proj") ==
        at +
            "1.self_attn.o_proj.weight': seen bf16, wanted fp8_channel, the format of "
            "'model.layers.1.self_attn.q_a_proj.weight': the attention matrices of a layer share one format");
  CHECK(mixed(all_fp8, "model.layers.0.self_attn.indexer.wk") ==
        at +
            "0.self_attn.indexer.wk.weight': seen bf16, wanted fp8_block, the format of "
            "'model.layers.0.self_attn.indexer.wq_b.weight': the index matrices of a layer share one format");
  CHECK(mixed(mxfp4_attnfp8, "model.layers.2.mlp.experts.3.down_proj") ==
        at + "2.mlp.experts.3.down_proj.weight': seen bf16, wanted mxfp4, the format of "
             "'model.layers.2.mlp.shared_experts.gate_proj.weight': the expert matrices of a layer share one "
             "format");
}

TEST_CASE("layers of different formats open, but no one program runs them") {
  random_checkpoint c = whole(all_bf16);
  const random_checkpoint& other = whole(mxfp4_attnfp8);
  std::erase_if(c.tensors, [](const stored_tensor& t) { return t.name.starts_with("model.layers.2."); });
  for (const stored_tensor& t : other.tensors)
    if (t.name.starts_with("model.layers.2.")) c.tensors.push_back(t);
  temporary_directory directory;
  REQUIRE(write_checkpoint(directory.path(), c).ok());
  const auto opened = open_checkpoint(directory.path());
  REQUIRE(opened.ok());
  CHECK(opened.value().formats_of(2).experts == weight_kind::mxfp4);
  CHECK(opened.value().formats().why().text() ==
        "formats of layer 2: seen attention fp8_channel, index bf16, experts mxfp4, wanted attention bf16, "
        "index bf16, "
        "experts bf16, as layer 0");
}

TEST_CASE("values that no packer may take are refused when a layer is read") {
  const std::string router = "model.layers.1.mlp.gate.weight";
  CHECK(refusal_of_layer(all_bf16, 1, [&](random_checkpoint& c) { widen(tensor_of(c, router)); }) == "ok");
  CHECK(
      refusal_of_layer(all_bf16, 1,
                       [&](random_checkpoint& c) {
                         widen(tensor_of(c, router));
                         set_float(tensor_of(c, router), 5, 1 + 0x1p-10f);
                       }) ==
      at + "1.mlp.gate.weight': seen 1.000977 at element 5, wanted values that bf16 holds exactly: the layer "
           "keeps this tensor in bf16");
  CHECK(refusal_of_layer(all_fp8, 0, [](random_checkpoint& c) {
          set_float(tensor_of(c, "model.layers.0.self_attn.o_proj.weight_scale_inv"), 1, INFINITY);
        }) == at + "0.self_attn.o_proj.weight_scale_inv': seen inf at element 1, wanted finite values");
  CHECK(refusal_of_layer(all_bf16, 2, [](random_checkpoint& c) {
          set_float(tensor_of(c, "model.layers.2.mlp.gate.e_score_correction_bias"), 3, NAN);
        }) == at + "2.mlp.gate.e_score_correction_bias': seen nan at element 3, wanted finite values");
  CHECK(refusal_of_layer(mxfp4_attnfp8, 0, [](random_checkpoint& c) {
          tensor_of(c, "model.layers.0.mlp.gate_proj.weight_scale").data[7] = 255;
        }) == at + "0.mlp.gate_proj.weight_scale': seen NaN (255) at element 7, wanted finite values");
  CHECK(refusal_of_layer(all_bf16, 3, [](random_checkpoint&) {}) == "layer: seen 3, wanted 0..2");
}

TEST_CASE("a directory without config.json is refused") {
  temporary_directory directory;
  CHECK(directory.text(open_checkpoint(directory.path()).why()) ==
        "config.json: seen open: No such file or directory, wanted a file that can be read");
}
