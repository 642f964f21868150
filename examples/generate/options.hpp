// The command line of generate.
#pragma once

#include <cctype>
#include <charconv>
#include <functional>

#include "generate/runner.hpp"
#include "monolayer/core/abi.hpp"

namespace monolayer::examples {

struct generate_options {
  std::string directory;
  int tp = 4;
  int rows = 0;        // most positions of a launch; 0: as many as the config has
  int tokens = 32;     // to generate
  std::string target;  // empty: the program's first
  bool fp8_caches = false;
  std::vector<int> prompt;     // empty: the recorded one
  std::string teacher_forced;  // file
  run_options run;
};

inline constexpr const char* generate_usage = R"(usage: generate DIRECTORY [OPTION VALUE]...
  DIRECTORY             a GLM-5 checkpoint: config.json, safetensors
  --tp N                ranks                                            (4)
  --target NAME         gfx950, sm90, ...: one that the program is compiled for
  --caches FORMAT       bf16 or fp8                                      (bf16)
  --rows N              most prompt positions of a launch                (the config's max_rows)
  --tokens N            how many to generate                             (32)
  --prompt ID,ID,...    token ids                                        (golden.safetensors')
  --teacher-forced FILE feeds the tokens that FILE (golden.safetensors) recorded, compares each position's choice
  --blocks N            thread blocks of a rank                          (2 simulated ones; all of a GPU)
  --seed N              of the simulator's schedule: another legal order (1)
  --checks WORD         on or off: the simulator's races, scopes, ...    (on)
  --trace FILE          writes each wait of the simulated machine as a line of CSV
Without --teacher-forced the prompt is continued greedily; a golden.safetensors in DIRECTORY is compared with.
Exit status: 0, 1 after a divergence or a failed launch, 2 for what was asked wrongly.
)";

namespace detail {

inline result<std::uint64_t> number(const std::string& option, const std::string& text, std::uint64_t low,
                                    std::uint64_t high) {
  std::uint64_t value = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || failed != std::errc{} || end != text.data() + text.size() || value < low ||
      value > high)
    return error(error_code::bad_value, option, "'" + text + "'",
                 "a whole number from " + std::to_string(low) + " to " + std::to_string(high));
  return value;
}

inline result<std::vector<int>> token_ids(const std::string& option, const std::string& text) {
  std::vector<int> ids;
  for (std::size_t from = 0; from <= text.size();) {
    const std::size_t comma = std::min(text.find(',', from), text.size());
    const auto id = number(option, text.substr(from, comma - from), 0, 0x7fffffff);
    if (!id) return id.why();
    ids.push_back(int(id.value()));
    from = comma + 1;
  }
  return ids;
}

}  // namespace detail

/// Errors: which argument, what it was, what is wanted.
inline result<generate_options> parse_options(std::span<const std::string> arguments) {
  generate_options o;
  status why;
  const auto set = [&]<class V>(V& to, const std::string& option, const std::string& text, std::uint64_t low,
                                std::uint64_t high) {
    const auto n = detail::number(option, text, low, high);
    if (n)
      to = V(n.value());
    else
      why = n.why();
  };
  const auto word = [&](bool& to, const std::string& option, const std::string& text, const char* yes,
                        const char* no) {
    if (text != yes && text != no)
      why = error(error_code::bad_value, option, "'" + text + "'", std::string(yes) + " or " + no);
    to = text == yes;
  };
  if (arguments.empty() || arguments[0].starts_with("-"))
    return error(error_code::bad_value, "first argument",
                 arguments.empty() ? "nothing" : "'" + arguments[0] + "'", "the directory of a checkpoint");
  o.directory = arguments[0];
  for (std::size_t i = 1; i < arguments.size() && why; i += 2) {
    const std::string& option = arguments[i];
    constexpr const char* known[] = {"--tp",     "--target", "--caches",         "--rows",
                                     "--tokens", "--prompt", "--teacher-forced", "--blocks",
                                     "--seed",   "--checks", "--trace"};
    if (std::find(std::begin(known), std::end(known), option) == std::end(known))
      return error(error_code::bad_value, "argument", "'" + option + "'",
                   "an option that generate --help lists");
    if (i + 1 == arguments.size()) return error(error_code::bad_value, option, "nothing", "a value after it");
    const std::string& value = arguments[i + 1];
    if (option == "--tp")
      set(o.tp, option, value, 1, max_ranks);
    else if (option == "--rows")
      set(o.rows, option, value, 1, max_rows_limit);
    else if (option == "--tokens")
      set(o.tokens, option, value, 1, 1'000'000);
    else if (option == "--blocks")
      set(o.run.blocks, option, value, 1, 1024);
    else if (option == "--seed")
      set(o.run.seed, option, value, 0, ~std::uint64_t{0});
    else if (option == "--target")
      o.target = value;
    else if (option == "--teacher-forced")
      o.teacher_forced = value;
    else if (option == "--trace")
      o.run.trace_file = value;
    else if (option == "--caches")
      word(o.fp8_caches, option, value, "fp8", "bf16");
    else if (option == "--checks")
      word(o.run.checks, option, value, "on", "off");
    else if (auto ids = detail::token_ids(option, value))
      o.prompt = ids.value();
    else
      why = ids.why();
  }
  if (why && !o.prompt.empty() && !o.teacher_forced.empty())
    why = error(error_code::bad_value, "--prompt", "given with --teacher-forced", "one of the two");
  if (!why) return why;
  return o;
}

}  // namespace monolayer::examples
