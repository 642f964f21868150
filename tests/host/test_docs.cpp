// docs/architecture.md shows the pipeline as the program prints it, docs/custom_layer.md and README.md show code of the
// examples; this keeps them true.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "monolayer/host/describe.hpp"
#include "monolayer/layers/glm5.hpp"
#include "monolayer/layers/slices.hpp"

namespace {

void check_picture(const std::string& picture) {
  std::ifstream file(MONOLAYER_DOCS "/architecture.md");
  REQUIRE(file);
  std::stringstream text;
  text << file.rdbuf();
  const std::string body = picture.substr(0, picture.find_last_not_of('\n') + 1);
  INFO(body);
  REQUIRE(text.str().find(body) != std::string::npos);
}

}  // namespace

TEST_CASE("docs/architecture.md holds describe()'s picture of the slices at TP4") {
  check_picture(monolayer::describe(monolayer::slices<monolayer::glm5_slices<4>>::info, {.rows = 2}));
}

TEST_CASE("docs/architecture.md holds describe()'s picture of a whole MoE layer at TP8") {
  using program = monolayer::glm5<monolayer::glm5_layer<8>>;
  static_assert(monolayer::proven<program>::value);
  check_picture(monolayer::describe(program::info, {.rows = 2, .kind = program::moe}));
}

namespace {

/// Lines without the blanks around them; empty ones are left out.
std::vector<std::string> lines_of(std::istream& in) {
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) {
    const std::size_t first = line.find_first_not_of(' ');
    if (first != std::string::npos) lines.push_back(line.substr(first, line.find_last_not_of(' ') + 1 - first));
  }
  return lines;
}
std::vector<std::string> lines_of_file(const std::string& name) {
  INFO(name);
  std::ifstream file(MONOLAYER_DOCS "/../" + name);
  REQUIRE(file);
  return lines_of(file);
}
/// The ```cpp blocks of a page.
std::vector<std::vector<std::string>> fragments_of(const std::string& page) {
  std::vector<std::vector<std::string>> all;
  bool inside = false;
  for (const std::string& line : lines_of_file(page)) {
    if (line.starts_with("```")) {
      if (line == "```cpp") all.emplace_back();
      inside = line == "```cpp";
    } else if (inside) {
      all.back().push_back(line);
    }
  }
  return all;
}
bool holds(const std::vector<std::string>& file, const std::vector<std::string>& part) {
  return std::search(file.begin(), file.end(), part.begin(), part.end()) != file.end();
}
std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

}  // namespace

TEST_CASE("docs/custom_layer.md shows code that the example has") {
  std::vector<std::vector<std::string>> files;
  for (const char* name : {"stages.hpp", "program.hpp", "host.hpp", "model.hpp", "simulated.hpp"})
    files.push_back(lines_of_file(std::string("examples/custom_layer/") + name));
  files.push_back(lines_of_file("examples/snippets/custom_layer.hip"));
  const auto fragments = fragments_of("docs/custom_layer.md");
  CHECK(fragments.size() >= 10);
  for (const auto& fragment : fragments) {
    INFO(joined(fragment));
    REQUIRE(!fragment.empty());
    CHECK(std::any_of(files.begin(), files.end(), [&](const auto& file) { return holds(file, fragment); }));
  }
}

TEST_CASE("README.md shows the whole of examples/snippets/glm5_engine.hip") {
  std::vector<std::string> file = lines_of_file("examples/snippets/glm5_engine.hip");
  file.erase(file.begin(), std::find_if(file.begin(), file.end(), [](const std::string& l) { return l.starts_with("#"); }));
  REQUIRE(file.size() > 10);
  const auto fragments = fragments_of("README.md");
  CHECK(std::find(fragments.begin(), fragments.end(), file) != fragments.end());
}

TEST_CASE("docs/custom_layer.md says what the proofs say") {
  // The cases in tests/compile_fail hold the compiler to these words; the page has them from there.
  std::string page;
  for (const std::string& line : lines_of_file("docs/custom_layer.md")) page += line + "\n";
  for (const char* name : {"custom_forgets_by_row", "custom_one_stream", "custom_reads_other_kind", "custom_drops_wait"}) {
    std::string words = lines_of_file("tests/compile_fail/cases/" + std::string(name) + ".cpp").front();
    REQUIRE(words.starts_with("// expect: "));
    words.erase(0, 11);
    INFO(name << ": " << words);
    CHECK(page.find(words) != std::string::npos);
  }
}
