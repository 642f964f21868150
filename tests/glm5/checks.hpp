// The checks that tests of whole layers make: Catch2's on the simulator; on a GPU, where a program shall need nothing but
// its compiler, plain ones that count and print.
#pragma once

#if !defined(MONOLAYER_TEST_ON_GPU)

#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>

#include "slices/sim_backend.hpp"

#else

#include <cstdio>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "gpu/hip_backend.hpp"

namespace monolayer::test {

struct plain_checks {
  int passed = 0, failed = 0;
  std::vector<std::string> notes;

  static plain_checks& all() {
    static plain_checks one;
    return one;
  }
  bool take(bool good, const char* text, const char* file, int line) {
    ++(good ? passed : failed);
    if (!good && failed <= 40) {
      std::printf("FAIL %s:%d: %s\n", file, line, text);
      for (const std::string& note : notes) std::printf("     %s\n", note.c_str());
      std::fflush(stdout);
    }
    return good;
  }
  struct note {
    explicit note(std::string text) { all().notes.push_back(std::move(text)); }
    ~note() { all().notes.pop_back(); }
    note(const note&) = delete;
  };
};

}  // namespace monolayer::test

#define MONOLAYER_JOIN_(a, b) a##b
#define MONOLAYER_JOIN(a, b) MONOLAYER_JOIN_(a, b)
#define CHECK(...) static_cast<void>(::monolayer::test::plain_checks::all().take(bool(__VA_ARGS__), #__VA_ARGS__, __FILE__, __LINE__))
#define REQUIRE(...)                                                                                             \
  do {                                                                                                           \
    if (!::monolayer::test::plain_checks::all().take(bool(__VA_ARGS__), #__VA_ARGS__, __FILE__, __LINE__))       \
      throw std::runtime_error(#__VA_ARGS__);                                                                    \
  } while (false)
#define INFO(text)                                                                                               \
  const ::monolayer::test::plain_checks::note MONOLAYER_JOIN(note_, __LINE__)(                                   \
      static_cast<std::ostringstream&&>(std::ostringstream() << text).str())

#endif
