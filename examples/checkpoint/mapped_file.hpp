// A file mapped into memory for reading, and JSON read from files.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "monolayer/core/weight_layout.hpp"
#include "monolayer/host/status.hpp"

namespace monolayer::examples {

using json = nlohmann::json;

/// A whole file, mapped for reading. The pages are read when they are touched: opening a checkpoint of any
/// size is cheap. Whoever shortens the file while it is mapped breaks the program, as with every mapping.
class mapped_file {
 public:
  /// Errors: the file cannot be opened, is no ordinary file, is empty, or cannot be mapped.
  static result<std::shared_ptr<const mapped_file>> open(const std::filesystem::path& path) {
    auto failed = [&](const char* what) {
      return error(error_code::bad_value, path.string(), std::string(what) + ": " + std::strerror(errno),
                   "a file that can be read");
    };
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) return failed("open");
    struct ::stat info {};
    if (::fstat(descriptor, &info) != 0) {
      const status why = failed("stat");
      ::close(descriptor);
      return why;
    }
    if (!S_ISREG(info.st_mode) || info.st_size == 0) {
      ::close(descriptor);
      return error(error_code::bad_value, path.string(),
                   S_ISREG(info.st_mode) ? "an empty file" : "no ordinary file", "a file with data");
    }
    const auto size = static_cast<std::size_t>(info.st_size);
    void* at = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor, 0);
    const status why = at == MAP_FAILED ? failed("mmap") : status{};
    ::close(descriptor);  // the mapping stays
    if (!why) return why;
    return std::shared_ptr<const mapped_file>(
        new mapped_file(path.string(), static_cast<const u8*>(at), size));
  }
  ~mapped_file() { ::munmap(const_cast<u8*>(data_), size_); }
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
inline result<json> parse_json(std::string_view text, const std::string& name) {
  std::vector<std::set<std::string>> open_objects;
  std::string repeated;
  auto watch = [&](int, json::parse_event_t event, json& parsed) {
    if (event == json::parse_event_t::object_start) open_objects.emplace_back();
    if (event == json::parse_event_t::object_end) open_objects.pop_back();
    if (event == json::parse_event_t::key && repeated.empty() &&
        !open_objects.back().insert(parsed.get<std::string>()).second)
      repeated = parsed.get<std::string>();
    return true;
  };
  json parsed;
  try {
    parsed = json::parse(text.begin(), text.end(), watch);
  } catch (const json::exception& e) {
    const auto* at = dynamic_cast<const json::parse_error*>(&e);
    return error(error_code::bad_value, name,
                 at ? "no JSON: stops at byte " + std::to_string(at->byte) : "no JSON", "a JSON object");
  }
  if (!parsed.is_object()) return error(error_code::bad_value, name, parsed.type_name(), "a JSON object");
  if (!repeated.empty())
    return error(error_code::bad_value, name, "'" + repeated + "' twice", "each key once");
  return parsed;
}

inline result<json> read_json(const std::filesystem::path& path) {
  auto file = mapped_file::open(path);
  if (!file) return file.why();
  return parse_json(file.value()->text(), path.string());
}

}  // namespace monolayer::examples
