// Writes safetensors files and checkpoint directories: the other direction of safetensors.hpp.
#pragma once

#include <span>

#include "checkpoint/safetensors.hpp"

namespace monolayer::examples {

struct stored_tensor {
  std::string name;
  dtype type = dtype::u8;
  std::vector<long> shape;
  std::vector<u8> data;
};

/// The header of a file that holds these tensors one after another.
json safetensors_header(std::span<const stored_tensor> tensors);

/// Writes a file with this header, be it right or wrong. Errors: the file cannot be written.
status write_safetensors(const std::filesystem::path& path, std::span<const stored_tensor> tensors,
                         std::string header);

status write_safetensors(const std::filesystem::path& path, std::span<const stored_tensor> tensors);

status write_json(const std::filesystem::path& path, const json& value);

/// Writes a checkpoint's directory, which is made if need be: config.json and model.safetensors, or `shards`
/// files and their index. Tensors of wide elements come first in a file, so that all are aligned.
status write_checkpoint(const std::filesystem::path& directory, const json& config,
                        std::vector<stored_tensor> tensors, int shards = 1);

}  // namespace monolayer::examples
