// The header of a safetensors file and the index of its shards, entry by entry.
#include "checkpoint/safetensors.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

namespace monolayer::examples {

const char* name_of(dtype type) {
  for (const dtype_row& row : dtypes)
    if (row.type == type) return row.name;
  return "?";
}

std::string shape_text(const std::vector<long>& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

std::string tensor_view::text() const { return std::string(name_of(type)) + " " + shape_text(shape); }

std::string tensor_text(std::string_view file, std::string_view name) {
  return std::string(file) + ": tensor '" + std::string(name) + "'";
}

namespace {

/// One entry of a header, checked alone. `data_bytes` is the size of the file's data.
status read_entry(const std::string& where, const json& entry, u64 data_bytes, tensor_view& to, u64& begin) {
  auto bad = [&](const char* field, std::string seen, std::string wanted) {
    return error(error_code::bad_value, where + " " + field, std::move(seen), std::move(wanted));
  };
  if (!entry.is_object()) return bad("entry", entry.type_name(), "an object with dtype, shape, data_offsets");
  auto field = [&](const char* name) { return entry.contains(name) ? entry[name] : json(); };

  const json type = field("dtype"), shape = field("shape"), offsets = field("data_offsets");
  if (!type.is_string()) return bad("dtype", type.dump(), "a string");
  const std::string type_name = type.get<std::string>();
  const dtype_row* row = nullptr;
  for (const dtype_row& known : dtypes)
    if (type_name == known.name) row = &known;
  if (type_name == "F16")
    return error(error_code::unsupported, where + " dtype", "F16",
                 "BF16 or F32 (F16 has another range: convert the checkpoint)");
  if (row == nullptr) {
    std::string known;
    for (const dtype_row& one : dtypes) known += (known.empty() ? "" : ", ") + std::string(one.name);
    return error(error_code::unsupported, where + " dtype", type_name, "one of " + known);
  }
  to.type = row->type;

  if (!shape.is_array()) return bad("shape", shape.dump(), "a list of sizes");
  // Sizes and counts stay below 2^56, so that no product of one with a dtype's bits overflows.
  constexpr u64 limit = u64(1) << 56;
  u64 count = 1;
  for (const json& size : shape) {
    if (!size.is_number_unsigned() || size.get<u64>() >= limit)
      return bad("shape", shape.dump(), "whole numbers from 0 to 2^56");
    const u64 n = size.get<u64>();
    if (n != 0 && count >= limit / n) return bad("shape", shape.dump(), "fewer than 2^56 elements");
    count *= n;
    to.shape.push_back(long(n));
  }

  if (!offsets.is_array() || offsets.size() != 2 || !offsets[0].is_number_unsigned() ||
      !offsets[1].is_number_unsigned())
    return bad("data_offsets", offsets.dump(), "[begin, end]");
  begin = offsets[0].get<u64>();
  const u64 end = offsets[1].get<u64>();
  if (begin > end) return bad("data_offsets", offsets.dump(), "a begin that is not past the end");
  if (end > data_bytes)
    return bad(
        "data_offsets", offsets.dump(),
        "an end within the file's " + std::to_string(data_bytes) + " bytes of data (is the file truncated?)");
  to.bytes = end - begin;
  const u64 bits = count * u64(row->bits);
  if (bits % 8 != 0 || bits / 8 != to.bytes)
    return bad("data_offsets", offsets.dump() + ", " + std::to_string(to.bytes) + " bytes",
               (bits % 8 != 0 ? "whole bytes" : std::to_string(bits / 8) + " bytes") + std::string(" for ") +
                   to.text());
  return {};
}

/// Adds a file's tensors to `to`, which is left in pieces after an error.
status read_header(const mapped_file& file, tensor_files::map& to) {
  const std::string& name = file.name();
  if (file.size() < 8)
    return error(error_code::too_small, name, std::to_string(file.size()) + " bytes",
                 "8 bytes of header length");
  u64 length = 0;
  std::memcpy(&length, file.data(), 8);
  if (length > file.size() - 8)
    return error(
        error_code::bad_value, name + ": header length", std::to_string(length),
        "at most the " + std::to_string(file.size() - 8) + " bytes that follow it (is the file truncated?)");
  auto parsed = parse_json(file.text().substr(8, length), name + ": header");
  if (!parsed) return parsed.why();

  const u8* data = file.data() + 8 + length;
  const u64 data_bytes = file.size() - 8 - length;
  struct extent {
    u64 begin, end;
    const std::string* name;
  };
  std::vector<extent> extents;
  for (const auto& [key, entry] : parsed.value().items()) {
    if (key == "__metadata__") continue;
    tensor_view one;
    u64 begin = 0;
    if (status s = read_entry(tensor_text(name, key), entry, data_bytes, one, begin); !s) return s;
    one.data = data + begin;
    one.file = name;
    const u64 end = begin + one.bytes;
    const auto [at, is_new] = to.emplace(key, std::move(one));
    if (!is_new)
      return error(error_code::bad_value, tensor_text(name, key),
                   "another of that name in " + std::string(at->second.file), "each tensor once");
    extents.push_back({begin, end, &at->first});
  }
  std::sort(extents.begin(), extents.end(), [](const extent& a, const extent& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
  });
  u64 covered = 0;
  const std::string* before = nullptr;
  for (const extent& one : extents) {
    if (one.begin < covered)
      return error(error_code::bad_value, tensor_text(name, *one.name) + " data_offsets",
                   "begin " + std::to_string(one.begin),
                   "at least " + std::to_string(covered) + ": it overlaps tensor '" + *before + "'");
    if (one.begin > covered)
      return error(error_code::bad_value, tensor_text(name, *one.name) + " data_offsets",
                   "begin " + std::to_string(one.begin),
                   std::to_string(covered) + ", without a hole before it");
    covered = one.end;
    before = one.name;
  }
  if (covered != data_bytes)
    return error(error_code::bad_value, name, std::to_string(data_bytes) + " bytes of data",
                 std::to_string(covered) + ", all that its tensors cover");
  return {};
}

/// The map tensor -> file name of an index. Names with a folder in them are refused: a checkpoint is one
/// directory.
result<std::map<std::string, std::string>> read_index(const std::filesystem::path& path) {
  auto index = read_json(path);
  if (!index) return index.why();
  const std::string where = path.string() + ": weight_map";
  if (!index.value().contains("weight_map") || !index.value()["weight_map"].is_object())
    return error(error_code::bad_value, where,
                 index.value().contains("weight_map") ? index.value()["weight_map"].type_name() : "nothing",
                 "an object, tensor name to file name");
  std::map<std::string, std::string> files;
  for (const auto& [tensor, file] : index.value()["weight_map"].items()) {
    const std::string name = file.is_string() ? file.get<std::string>() : "";
    if (name.empty() || name == "." || name == ".." ||
        name.find_first_of(std::string("/\\\0", 3)) != std::string::npos)
      return error(error_code::bad_value, where + "['" + tensor + "']", file.dump(),
                   "the name of a file beside the index");
    files.emplace(tensor, name);
  }
  return files;
}

}  // namespace

result<tensor_files> tensor_files::open_file(const std::filesystem::path& path) {
  tensor_files files;
  files.name_ = path.string();
  if (status s = files.add(path); !s) return s;
  return files;
}

result<tensor_files> tensor_files::open_directory(const std::filesystem::path& directory) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(directory, ignored))
    return error(error_code::bad_value, directory.string(), "no directory", "a checkpoint's directory");
  const auto single = directory / "model.safetensors", index = directory / "model.safetensors.index.json";
  if (std::filesystem::exists(single, ignored)) return open_file(single);
  if (!std::filesystem::exists(index, ignored))
    return error(error_code::bad_value, directory.string(), "neither of the two files",
                 "model.safetensors or model.safetensors.index.json");
  auto listed = read_index(index);
  if (!listed) return listed.why();
  std::set<std::string> shards;
  for (const auto& [tensor, file] : listed.value()) shards.insert(file);
  tensor_files files;
  files.name_ = directory.string();
  for (const std::string& shard : shards)
    if (status s = files.add(directory / shard); !s) return s;
  for (const auto& [tensor, file] : listed.value()) {
    const tensor_view* seen = files.find(tensor);
    const std::string wanted = (directory / file).string();
    if (seen == nullptr || seen->file != wanted)
      return error(error_code::mismatch, index.string() + ": weight_map['" + tensor + "']",
                   "no such tensor in " + file,
                   seen ? std::string(seen->file) + ", which has it" : "a shard that has it");
  }
  return files;
}

const tensor_view* tensor_files::find(std::string_view name) const {
  const auto at = tensors_->find(name);
  return at == tensors_->end() ? nullptr : &at->second;
}

status tensor_files::add(const std::filesystem::path& path) {
  auto file = mapped_file::open(path);
  if (!file) return file.why();
  files_.push_back(file.value());
  return read_header(*files_.back(), *tensors_);
}

}  // namespace monolayer::examples
