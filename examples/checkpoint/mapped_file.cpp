// Maps files, and parses JSON by nlohmann's parser, whose exceptions end here.
#include "checkpoint/mapped_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

namespace monolayer::examples {

result<std::shared_ptr<const mapped_file>> mapped_file::open(const std::filesystem::path& path) {
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
  return std::shared_ptr<const mapped_file>(new mapped_file(path.string(), static_cast<const u8*>(at), size));
}

mapped_file::~mapped_file() { ::munmap(const_cast<u8*>(data_), size_); }

result<json> parse_json(std::string_view text, const std::string& name) {
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

result<json> read_json(const std::filesystem::path& path) {
  auto file = mapped_file::open(path);
  if (!file) return file.why();
  return parse_json(file.value()->text(), path.string());
}

}  // namespace monolayer::examples
