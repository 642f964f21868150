// Just enough of JSON for a checkpoint's config and a safetensors header: strings without escapes but \" and
// \\, numbers as double, no unicode escapes. Anything else throws.
#pragma once

#include <cctype>
#include <cstddef>
#include <cstdlib>
#include <string>
#include <vector>

#include "reference/matrix.hpp"

namespace monolayer::reference {

struct json {
  enum class kind { null, boolean, number, string, array, object };

  kind what = kind::null;
  bool truth = false;
  double number = 0;
  std::string text;
  std::vector<json> items;         // of an array; of an object, its values in the file's order
  std::vector<std::string> names;  // of an object

  const json* find(const std::string& key) const {
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (names[i] == key) return &items[i];
    }
    return nullptr;
  }

  const json& at(const std::string& key) const {
    const json* value = find(key);
    require(value != nullptr, ("json: no member " + key).c_str());
    return *value;
  }

  int integer() const {
    require(what == kind::number, "json: not a number");
    return static_cast<int>(number);
  }
};

namespace detail {

class json_reader {
 public:
  explicit json_reader(const std::string& text) : text_(text) {}

  json whole() {
    json value = read();
    skip();
    require(at_ == text_.size(), "json: text after the value");
    return value;
  }

 private:
  void skip() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
  }

  char peek() {
    skip();
    require(at_ < text_.size(), "json: ends too early");
    return text_[at_];
  }

  void take(const std::string& word) {
    skip();
    require(text_.compare(at_, word.size(), word) == 0, ("json: expected " + word).c_str());
    at_ += word.size();
  }

  std::string quoted() {
    take("\"");
    std::string s;
    for (;; ++at_) {
      require(at_ < text_.size(), "json: a string without an end");
      if (text_[at_] == '"') break;
      if (text_[at_] == '\\') {
        ++at_;
        require(at_ < text_.size() && (text_[at_] == '"' || text_[at_] == '\\'), "json: an escape");
      }
      s += text_[at_];
    }
    ++at_;
    return s;
  }

  // element() reads one item of an array or one member of an object.
  template <class element_reader>
  void list(const char* open, const char* close, element_reader element) {
    take(open);
    if (peek() != *close) {
      element();
      while (peek() == ',') {
        take(",");
        element();
      }
    }
    take(close);
  }

  json read() {
    json value;
    const char first = peek();
    if (first == '{') {
      value.what = json::kind::object;
      list("{", "}", [&] {
        value.names.push_back(quoted());
        take(":");
        value.items.push_back(read());
      });
    } else if (first == '[') {
      value.what = json::kind::array;
      list("[", "]", [&] { value.items.push_back(read()); });
    } else if (first == '"') {
      value.what = json::kind::string;
      value.text = quoted();
    } else if (first == 't' || first == 'f') {
      value.what = json::kind::boolean;
      value.truth = first == 't';
      take(value.truth ? "true" : "false");
    } else if (first == 'n') {
      take("null");
    } else {
      value.what = json::kind::number;
      const char* begin = text_.c_str() + at_;
      char* end = nullptr;
      value.number = std::strtod(begin, &end);
      require(end != begin, "json: not a value");
      at_ += static_cast<std::size_t>(end - begin);
    }
    return value;
  }

  const std::string& text_;
  std::size_t at_ = 0;
};

}  // namespace detail

inline json parse_json(const std::string& text) { return detail::json_reader(text).whole(); }

}  // namespace monolayer::reference
