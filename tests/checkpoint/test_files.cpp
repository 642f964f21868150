// safetensors files: what is refused and how the refusal reads; what is accepted.
#include <catch2/catch_test_macros.hpp>
#include <fstream>
#include <nlohmann/json.hpp>

#include "checkpoint/directory.hpp"

using namespace monolayer;
using namespace monolayer::examples;

namespace {

std::vector<stored_tensor> three_tensors() {
  return {{"a", dtype::f32, {2, 2}, std::vector<u8>(16, 1)},
          {"b", dtype::bf16, {3}, std::vector<u8>(6, 2)},
          {"c", dtype::u8, {2}, std::vector<u8>(2, 3)}};
}

void write_bytes(const std::filesystem::path& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

std::string length_of(u64 length) { return std::string(reinterpret_cast<const char*>(&length), 8); }

/// The refusal of a file of three tensors, a F32 [2, 2], b BF16 [3], c U8 [2], whose header was changed.
std::string refusal(const std::function<void(json&)>& change) {
  temporary_directory directory;
  const auto tensors = three_tensors();
  json header = safetensors_header(tensors);
  change(header);
  REQUIRE(write_safetensors(directory / "f", tensors, header.dump()).ok());
  return directory.text(tensor_files::open_file(directory / "f").why());
}

std::string refusal_of_bytes(std::string_view bytes) {
  temporary_directory directory;
  write_bytes(directory / "f", bytes);
  return directory.text(tensor_files::open_file(directory / "f").why());
}

}  // namespace

TEST_CASE("a damaged file is refused") {
  CHECK(refusal_of_bytes("") == "f: seen an empty file, wanted a file with data");
  CHECK(refusal_of_bytes("1234") == "f: seen 4 bytes, wanted 8 bytes of header length");
  CHECK(refusal_of_bytes(length_of(100) + "{}") ==
        "f: header length: seen 100, wanted at most the 2 bytes that follow it (is the file truncated?)");
  CHECK(refusal_of_bytes(length_of(~u64(0)) + "{}") ==
        "f: header length: seen 18446744073709551615, wanted at most the 2 bytes that follow it (is the file "
        "truncated?)");
  CHECK(refusal_of_bytes(length_of(6) + "{\"a\": ") ==
        "f: header: seen no JSON: stops at byte 7, wanted a JSON object");
  CHECK(refusal_of_bytes(length_of(2) + "[]") == "f: header: seen array, wanted a JSON object");
  CHECK(refusal_of_bytes(length_of(15) + "{\"a\":{},\"a\":{}}") ==
        "f: header: seen 'a' twice, wanted each key once");
  CHECK(refusal_of_bytes(length_of(2) + "{}xyz") ==
        "f: seen 3 bytes of data, wanted 0, all that its tensors cover");
  temporary_directory directory;
  CHECK(directory.text(tensor_files::open_file(directory / "none").why()) ==
        "none: seen open: No such file or directory, wanted a file that can be read");
  CHECK(directory.text(tensor_files::open_file(directory.path()).why()) ==
        ": seen no ordinary file, wanted a file with data");
}

TEST_CASE("a truncated file is refused at every length") {
  temporary_directory directory;
  REQUIRE(write_safetensors(directory / "whole", three_tensors()).ok());
  const auto whole = mapped_file::open(directory / "whole");
  const std::string bytes(whole.value()->text());
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    write_bytes(directory / "cut", std::string_view(bytes).substr(0, size));
    INFO(size);
    CHECK(!tensor_files::open_file(directory / "cut").ok());
  }
  CHECK(tensor_files::open_file(directory / "whole").ok());
}

TEST_CASE("a header's entry that is wrong is refused") {
  CHECK(refusal([](json& h) { h["a"] = 3; }) ==
        "f: tensor 'a' entry: seen number, wanted an object with dtype, shape, data_offsets");
  CHECK(refusal([](json& h) { h["a"].erase("dtype"); }) == "f: tensor 'a' dtype: seen null, wanted a string");
  CHECK(refusal([](json& h) { h["a"]["dtype"] = "F12"; }) ==
        "f: tensor 'a' dtype: seen F12, wanted one of BF16, F32, F8_E4M3, F8_E8M0, F4, U8, I32, I64");
  CHECK(refusal([](json& h) { h["a"]["dtype"] = "F16"; }) ==
        "f: tensor 'a' dtype: seen F16, wanted BF16 or F32 (F16 has another range: convert the checkpoint)");
  CHECK(refusal([](json& h) { h["a"]["shape"] = 4; }) ==
        "f: tensor 'a' shape: seen 4, wanted a list of sizes");
  CHECK(refusal([](json& h) {
          h["a"]["shape"] = {2, -2};
        }) == "f: tensor 'a' shape: seen [2,-2], wanted whole numbers from 0 to 2^56");
  CHECK(refusal([](json& h) {
          h["a"]["shape"] = {2, 2.0};
        }) == "f: tensor 'a' shape: seen [2,2.0], wanted whole numbers from 0 to 2^56");
  CHECK(refusal([](json& h) {
          h["a"]["shape"] = {u64(1) << 32, u64(1) << 32, 4};
        }) == "f: tensor 'a' shape: seen [4294967296,4294967296,4], wanted fewer than 2^56 elements");
  CHECK(refusal([](json& h) { h["a"]["data_offsets"] = {0}; }) ==
        "f: tensor 'a' data_offsets: seen [0], wanted [begin, end]");
  CHECK(refusal([](json& h) {
          h["a"]["data_offsets"] = {-1, 15};
        }) == "f: tensor 'a' data_offsets: seen [-1,15], wanted [begin, end]");
  CHECK(refusal([](json& h) {
          h["a"]["data_offsets"] = {16, 0};
        }) == "f: tensor 'a' data_offsets: seen [16,0], wanted a begin that is not past the end");
  CHECK(refusal([](json& h) {
          h["c"]["data_offsets"] = {22, 25};
        }) ==
        "f: tensor 'c' data_offsets: seen [22,25], wanted an end within the file's 24 bytes of data (is the "
        "file "
        "truncated?)");
  CHECK(refusal([](json& h) {
          h["a"]["shape"] = {2, 3};
        }) == "f: tensor 'a' data_offsets: seen [0,16], 16 bytes, wanted 24 bytes for F32 [2, 3]");
  CHECK(refusal([](json& h) { h["c"]["dtype"] = "F4", h["c"]["shape"] = {3}; }) ==
        "f: tensor 'c' data_offsets: seen [22,24], 2 bytes, wanted whole bytes for F4 [3]");
  CHECK(refusal([](json& h) {
          h["b"]["data_offsets"] = {14, 20};
        }) == "f: tensor 'b' data_offsets: seen begin 14, wanted at least 16: it overlaps tensor 'a'");
  CHECK(refusal([](json& h) { h.erase("b"); }) ==
        "f: tensor 'c' data_offsets: seen begin 22, wanted 16, without a hole before it");
  CHECK(refusal([](json& h) { h.erase("c"); }) ==
        "f: seen 24 bytes of data, wanted 22, all that its tensors cover");
  CHECK(refusal([](json&) {}) == "ok");
}

TEST_CASE("tensors are found with their types, shapes and data") {
  temporary_directory directory;
  auto tensors = three_tensors();
  tensors.push_back({"empty", dtype::i64, {0, 5}, {}});
  tensors.push_back({"scalar", dtype::i32, {}, {7, 0, 0, 0}});
  tensors.push_back({"codes", dtype::f4, {2, 4}, {0x21, 0x43, 0x65, 0x87}});
  REQUIRE(write_safetensors(directory / "f", tensors).ok());
  const auto files = tensor_files::open_file(directory / "f");
  REQUIRE(files.ok());
  CHECK(files.value().all().size() == tensors.size());
  for (const stored_tensor& t : tensors) {
    const tensor_view* seen = files.value().find(t.name);
    REQUIRE(seen != nullptr);
    CHECK(seen->type == t.type);
    CHECK(seen->shape == t.shape);
    CHECK(std::vector<u8>(seen->data, seen->data + seen->bytes) == t.data);
  }
  CHECK(files.value().values<int>("scalar").value() == std::vector<int>{7});
  CHECK(files.value().values<long long>("empty").value().empty());
  CHECK(directory.text(files.value().values<float>("b").why()) == "f: tensor 'b': seen BF16 [3], wanted F32");
  CHECK(directory.text(files.value().values<float>("d").why()) == "f: tensor 'd': seen nothing, wanted F32");
  CHECK(files.value().find("d") == nullptr);
  CHECK(files.value().find("codes")->text() == "F4 [2, 4]");
}

namespace {

/// The refusal of a directory of two shards, s1 with a and s2 with b and c, whose index was changed.
std::string refusal_of_index(const std::function<void(json&)>& change, bool a_in_both = false) {
  temporary_directory directory;
  const auto tensors = three_tensors();
  REQUIRE(write_safetensors(directory / "s1", std::span(tensors).first(1)).ok());
  REQUIRE(write_safetensors(directory / "s2", std::span(tensors).subspan(a_in_both ? 0 : 1)).ok());
  json index = {{"metadata", {{"total_size", 24}}}, {"weight_map", {{"a", "s1"}, {"b", "s2"}, {"c", "s2"}}}};
  change(index);
  REQUIRE(write_json(directory / "model.safetensors.index.json", index).ok());
  return directory.text(tensor_files::open_directory(directory.path()).why());
}

}  // namespace

TEST_CASE("a wrong index is refused") {
  const std::string index = "model.safetensors.index.json: ";
  CHECK(refusal_of_index([](json&) {}) == "ok");
  CHECK(refusal_of_index([](json& i) { i["weight_map"].erase("c"); }) == "ok");  // a shard may hold more
  CHECK(refusal_of_index([](json& i) { i = json::array(); }) == index + "seen array, wanted a JSON object");
  CHECK(refusal_of_index([](json& i) { i.erase("weight_map"); }) ==
        index + "weight_map: seen nothing, wanted an object, tensor name to file name");
  CHECK(refusal_of_index([](json& i) { i["weight_map"] = 1; }) ==
        index + "weight_map: seen number, wanted an object, tensor name to file name");
  CHECK(refusal_of_index([](json& i) { i["weight_map"]["a"] = 1; }) ==
        index + "weight_map['a']: seen 1, wanted the name of a file beside the index");
  CHECK(refusal_of_index([](json& i) { i["weight_map"]["a"] = "../s1"; }) ==
        index + "weight_map['a']: seen \"../s1\", wanted the name of a file beside the index");
  CHECK(refusal_of_index([](json& i) { i["weight_map"]["a"] = "s3"; }) ==
        "s3: seen open: No such file or directory, wanted a file that can be read");
  CHECK(refusal_of_index([](json& i) { i["weight_map"]["d"] = "s1"; }) ==
        index + "weight_map['d']: seen no such tensor in s1, wanted a shard that has it");
  CHECK(refusal_of_index([](json& i) { i["weight_map"]["b"] = "s1"; }) ==
        index + "weight_map['b']: seen no such tensor in s1, wanted s2, which has it");
  CHECK(refusal_of_index([](json&) {}, true) ==
        "s2: tensor 'a': seen another of that name in s1, wanted each tensor once");
}

TEST_CASE("a directory without a checkpoint is refused") {
  temporary_directory directory;
  CHECK(directory.text(tensor_files::open_directory(directory.path()).why()) ==
        ": seen neither of the two files, wanted model.safetensors or model.safetensors.index.json");
  CHECK(directory.text(tensor_files::open_directory(directory / "none").why()) ==
        "none: seen no directory, wanted a checkpoint's directory");
  write_bytes(directory / "model.safetensors.index.json", "{,}");
  CHECK(directory.text(tensor_files::open_directory(directory.path()).why()) ==
        "model.safetensors.index.json: seen no JSON: stops at byte 2, wanted a JSON object");
}
