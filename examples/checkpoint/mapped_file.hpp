// A file mapped into memory for reading, and JSON read from files.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "monolayer/core/weight_layout.hpp"
#include "monolayer/host/status.hpp"

namespace monolayer::examples {

using json = nlohmann::json;

/// A whole file, mapped for reading. The pages are read when they are touched: opening a checkpoint of any
/// size is cheap. Whoever shortens the file while it is mapped breaks the program, as with every mapping.
class mapped_file {
 public:
  /// Errors: the file cannot be opened, is no ordinary file, is empty, or cannot be mapped.
  static result<std::shared_ptr<const mapped_file>> open(const std::filesystem::path& path);
  ~mapped_file();
  mapped_file(const mapped_file&) = delete;
  mapped_file& operator=(const mapped_file&) = delete;

  const std::string& name() const { return name_; }
  const u8* data() const { return data_; }
  std::size_t size() const { return size_; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), size_}; }

 private:
  mapped_file(std::string name, const u8* data, std::size_t size)
      : name_(std::move(name)), data_(data), size_(size) {}

  std::string name_;
  const u8* data_;
  std::size_t size_;
};

/// Parses JSON whose top is an object. Errors: no JSON, no object, a key twice in one object (a parser would
/// keep either value).
result<json> parse_json(std::string_view text, const std::string& name);

result<json> read_json(const std::filesystem::path& path);

}  // namespace monolayer::examples
