// Errors of the host side are values: which argument, what was seen, what is wanted. A call that returns an error has
// changed nothing.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>

namespace monolayer {

enum class error_code {
  ok,
  bad_shape,       // a dimension, stride or count
  bad_value,       // a number out of range
  bad_pointer,     // null, misaligned, overlapping
  too_small,       // a buffer
  mismatch,        // packed weights or a peer that belong to another configuration
  unsupported,     // this device, or this combination, cannot run
  device_failure,  // the runtime or a launch reported a failure
};

struct [[nodiscard]] status {
  error_code code = error_code::ok;
  std::string argument, seen, wanted;

  bool ok() const { return code == error_code::ok; }
  explicit operator bool() const { return ok(); }
  /// "argument: seen X, wanted Y"
  std::string text() const { return ok() ? "ok" : argument + ": seen " + seen + ", wanted " + wanted; }
};

inline status error(error_code code, std::string argument, std::string seen, std::string wanted) {
  return {code, std::move(argument), std::move(seen), std::move(wanted)};
}

/// A value or the error that kept it from being made.
template <class V>
class [[nodiscard]] result {
 public:
  result(V value) : held_(std::move(value)) {}
  result(status why) : held_(std::move(why)) {}
  bool ok() const { return held_.index() == 0; }
  explicit operator bool() const { return ok(); }
  V& value() { return std::get<0>(held_); }
  const V& value() const { return std::get<0>(held_); }
  monolayer::status why() const { return ok() ? monolayer::status{} : std::get<1>(held_); }

 private:
  std::variant<V, monolayer::status> held_;
};

}  // namespace monolayer
