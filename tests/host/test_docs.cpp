// docs/architecture.md shows the pipeline as the program prints it; this keeps the picture true.
#include <catch2/catch_test_macros.hpp>
#include <fstream>
#include <sstream>

#include "monolayer/host/describe.hpp"
#include "monolayer/layers/slices.hpp"

TEST_CASE("docs/architecture.md holds describe()'s picture of the slices at TP4") {
  std::ifstream file(MONOLAYER_DOCS "/architecture.md");
  REQUIRE(file);
  std::stringstream text;
  text << file.rdbuf();
  const std::string picture = monolayer::describe(monolayer::slices<monolayer::glm5_slices<4>>::info,
                                                  {.rows = 2, .terabytes_per_second = 4.1});
  const std::string body = picture.substr(0, picture.find_last_not_of('\n') + 1);
  INFO(body);
  REQUIRE(text.str().find(body) != std::string::npos);
}
