// Headers, data, config.json and the index of shards, as they are read again.
#include "make_checkpoint/write_safetensors.hpp"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

namespace monolayer::examples {

json safetensors_header(std::span<const stored_tensor> tensors) {
  json header = {{"__metadata__", {{"format", "pt"}}}};
  u64 at = 0;
  for (const stored_tensor& t : tensors) {
    header[t.name] = {
        {"dtype", name_of(t.type)}, {"shape", t.shape}, {"data_offsets", {at, at + t.data.size()}}};
    at += t.data.size();
  }
  return header;
}

status write_safetensors(const std::filesystem::path& path, std::span<const stored_tensor> tensors,
                         std::string header) {
  while (header.size() % 8 != 0) header += ' ';  // so that the data begin aligned
  const u64 length = header.size();
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(reinterpret_cast<const char*>(&length), 8);
  file.write(header.data(), std::streamsize(length));
  for (const stored_tensor& t : tensors)
    file.write(reinterpret_cast<const char*>(t.data.data()), std::streamsize(t.data.size()));
  file.close();
  if (!file)
    return error(error_code::bad_value, path.string(), "an error while writing",
                 "a file that can be written");
  return {};
}

status write_safetensors(const std::filesystem::path& path, std::span<const stored_tensor> tensors) {
  return write_safetensors(path, tensors, safetensors_header(tensors).dump());
}

status write_json(const std::filesystem::path& path, const json& value) {
  std::ofstream file(path, std::ios::trunc);
  file << value.dump(1) << '\n';
  file.close();
  if (!file)
    return error(error_code::bad_value, path.string(), "an error while writing",
                 "a file that can be written");
  return {};
}

status write_checkpoint(const std::filesystem::path& directory, const json& config,
                        std::vector<stored_tensor> tensors, int shards) {
  if (shards < 1 || std::size_t(shards) > tensors.size() || shards > 99'999)
    return error(error_code::bad_value, "shards", std::to_string(shards),
                 "1.." + std::to_string(std::min<std::size_t>(tensors.size(), 99'999)));
  std::error_code failed;
  std::filesystem::create_directories(directory, failed);
  if (failed)
    return error(error_code::bad_value, directory.string(), failed.message(), "a directory to write to");
  if (status s = write_json(directory / "config.json", config); !s) return s;
  // An older model.safetensors would win over the new shards.
  for (const char* old : {"model.safetensors", "model.safetensors.index.json"})
    std::filesystem::remove(directory / old, failed);
  json map = json::object();
  u64 total = 0;
  const std::size_t share = (tensors.size() + std::size_t(shards) - 1) / std::size_t(shards);
  for (int shard = 0; shard < shards; ++shard) {
    const std::size_t begin = std::min(std::size_t(shard) * share, tensors.size());
    const auto part = std::span(tensors).subspan(begin, std::min(share, tensors.size() - begin));
    std::stable_sort(part.begin(), part.end(), [](const stored_tensor& a, const stored_tensor& b) {
      return (a.type == dtype::f32) != (b.type == dtype::f32)
                 ? a.type == dtype::f32
                 : (a.type == dtype::bf16) && (b.type != dtype::bf16);
    });
    char name[64] = "model.safetensors";
    if (shards > 1) std::snprintf(name, sizeof name, "model-%05d-of-%05d.safetensors", shard + 1, shards);
    if (status s = write_safetensors(directory / name, part); !s) return s;
    for (const stored_tensor& t : part) {
      map[t.name] = name;
      total += t.data.size();
    }
  }
  if (shards == 1) return {};
  return write_json(directory / "model.safetensors.index.json",
                    {{"metadata", {{"total_size", total}}}, {"weight_map", map}});
}

}  // namespace monolayer::examples
