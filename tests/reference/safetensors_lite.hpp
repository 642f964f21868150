// Reads safetensors files: eight bytes of header length, a JSON header, the tensors' bytes. Whole files in
// memory, for small checkpoints on little-endian machines.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "reference/batch.hpp"
#include "reference/json_lite.hpp"
#include "reference/matrix.hpp"

namespace monolayer::reference {

inline std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  require(file.good(), ("can't read " + path).c_str());
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

struct stored_tensor {
  std::string dtype;  // BF16, F32, I32, F8_E4M3, U8 ...
  std::vector<int> shape;
  std::size_t begin = 0, end = 0;  // bytes, from the end of the header

  int rows() const { return shape.size() < 2 ? 1 : shape[0]; }
  int cols() const { return shape.empty() ? 1 : shape.back(); }
  std::size_t count() const { return static_cast<std::size_t>(rows()) * static_cast<std::size_t>(cols()); }
};

class safetensors_file {
 public:
  explicit safetensors_file(const std::string& path) : bytes_(read_file(path)) {
    std::uint64_t length = 0;
    require(bytes_.size() >= sizeof(length), "safetensors: no header");
    std::memcpy(&length, bytes_.data(), sizeof(length));
    require(length <= bytes_.size() - sizeof(length), "safetensors: the header is cut off");
    data_ = sizeof(length) + static_cast<std::size_t>(length);
    const json header = parse_json(bytes_.substr(sizeof(length), static_cast<std::size_t>(length)));
    for (std::size_t i = 0; i < header.names.size(); ++i) {
      const std::string& name = header.names[i];
      const json& entry = header.items[i];
      if (name == "__metadata__") continue;
      stored_tensor t;
      t.dtype = entry.at("dtype").text;
      for (const json& n : entry.at("shape").items) t.shape.push_back(n.integer());
      require(t.shape.size() <= 2, "safetensors: more than two dimensions");
      const auto& offsets = entry.at("data_offsets").items;
      require(offsets.size() == 2, "safetensors: wrong offsets");
      t.begin = static_cast<std::size_t>(offsets[0].number);
      t.end = static_cast<std::size_t>(offsets[1].number);
      require(t.begin <= t.end && data_ + t.end <= bytes_.size(), "safetensors: a tensor is cut off");
      tensors_.emplace(name, t);
    }
  }

  bool has(const std::string& name) const { return tensors_.count(name) != 0; }

  const stored_tensor& at(const std::string& name) const {
    const auto found = tensors_.find(name);
    require(found != tensors_.end(), ("safetensors: no tensor " + name).c_str());
    return found->second;
  }

  // Copies, as elements of type T; the dtype's name is checked so that no bytes are read as something else.
  template <class T>
  std::vector<T> read(const std::string& name, const char* dtype) const {
    const stored_tensor& t = at(name);
    require(t.dtype == dtype, ("safetensors: another type than expected: " + name).c_str());
    require(t.end - t.begin == t.count() * sizeof(T), ("safetensors: wrong size of " + name).c_str());
    std::vector<T> values(t.count());
    std::memcpy(values.data(), bytes_.data() + data_ + t.begin, t.end - t.begin);
    return values;
  }

  batch read_floats(const std::string& name) const {
    const stored_tensor& t = at(name);
    return from_float(read<float>(name, "F32").data(), t.rows(), t.cols());
  }

  // A weight in its stored format: the dtype and the scales beside it say which.
  //   BF16; F8_E4M3 with NAME_scale_inv (f32, 128 x 128 blocks) or NAME_scale (f32 [rows, 1]); U8, two e2m1
  //   a byte, low nibble first, with NAME_scale (e8m0 a block of 32 along the columns).
  matrix read_matrix(const std::string& name) const {
    const stored_tensor& t = at(name);
    if (t.dtype == "BF16") {
      matrix m = blank_matrix(t.rows(), t.cols(), format::bf16);
      copy_bytes(t, m);
      return m;
    }
    if (t.dtype == "F8_E4M3") {
      const bool blocks = has(name + "_scale_inv");
      matrix m = blank_matrix(t.rows(), t.cols(), blocks ? format::fp8_block128 : format::fp8_channel);
      copy_bytes(t, m);
      auto scales = read<float>(name + (blocks ? "_scale_inv" : "_scale"), "F32");
      require(scales.size() == m.scales.size(), ("safetensors: wrong scales of " + name).c_str());
      m.scales = std::move(scales);
      return m;
    }
    require(t.dtype == "U8", ("safetensors: no weight format for " + name).c_str());
    matrix m = blank_matrix(t.rows(), 2 * t.cols(), format::mxfp4);
    copy_bytes(t, m);
    auto scales = read<std::uint8_t>(name + "_scale", "U8");
    require(scales.size() == m.scales_e8m0.size(), ("safetensors: wrong scales of " + name).c_str());
    m.scales_e8m0 = std::move(scales);
    return m;
  }

 private:
  void copy_bytes(const stored_tensor& t, matrix& m) const {
    require(t.end - t.begin == m.data.size(), "safetensors: wrong size of a weight");
    std::memcpy(m.data.data(), bytes_.data() + data_ + t.begin, m.data.size());
  }

  std::string bytes_;
  std::size_t data_ = 0;
  std::map<std::string, stored_tensor> tensors_;
};

}  // namespace monolayer::reference
