// A recorded run of a reference model (golden.safetensors): its tokens, and what it chose where.
#pragma once

#include <optional>

#include "checkpoint/host_model.hpp"
#include "generate/runner.hpp"

namespace monolayer::examples {

class recorded_run {
 public:
  std::vector<int> tokens;
  int prompt = 0;  // so many of them

  /// Errors: the file's, tokens that the model does not have, a prompt that is not a part of the tokens.
  static result<recorded_run> open(const std::filesystem::path& path, const glm5_model_config& c) {
    auto file = tensor_files::open_file(path);
    if (!file) return file.why();
    recorded_run run(std::move(file.value()), c);
    auto tokens = run.file_.values<int>("tokens"), prompt = run.file_.values<int>("prompt_len");
    if (!tokens) return tokens.why();
    if (!prompt) return prompt.why();
    run.tokens = std::move(tokens.value());
    for (int t : run.tokens)
      if (t < 0 || t >= c.vocab)
        return error(error_code::bad_value, tensor_text(path.string(), "tokens"), std::to_string(t),
                     "ids below vocab_size " + std::to_string(c.vocab));
    run.prompt = prompt.value().empty() ? 0 : prompt.value()[0];
    if (run.prompt < 1 || std::size_t(run.prompt) >= run.tokens.size())
      return error(error_code::bad_value, tensor_text(path.string(), "prompt_len"),
                   std::to_string(run.prompt), "1.." + std::to_string(int(run.tokens.size()) - 1));
    if (const tensor_view* t = run.file_.find("logits")) {
      const std::vector<long> shape = {long(run.tokens.size()), c.vocab};
      if (t->type != dtype::f32 || t->shape != shape)
        return error(error_code::bad_shape, tensor_text(path.string(), "logits"), t->text(),
                     "F32 " + shape_text(shape));
      run.logits_ = run.file_.values<float>("logits").value();
    }
    return run;
  }

  /// The choice after a position, with its margin over the second; from the tokens alone, with an unknown
  /// margin (NaN), where no logits were recorded, and then nothing for positions of the prompt.
  std::optional<greedy_choice> choice(int position) const {
    if (!logits_.empty()) {
      const auto chosen = choose(std::span(logits_).subspan(std::size_t(position) * vocab_, vocab_));
      if (chosen) return chosen.value();
      return std::nullopt;
    }
    if (position + 1 < prompt || std::size_t(position) + 1 >= tokens.size()) return std::nullopt;
    return greedy_choice{tokens[std::size_t(position) + 1], 0, std::nanf("")};
  }

  /// What a layer chose for the token at a position; nothing where that was not recorded.
  layer_picks picks(int layer, int position) const {
    const auto row = [&](const char* name) {
      std::vector<int> values;
      const std::string tensor = "layer" + std::to_string(layer) + "." + name;
      const tensor_view* t = file_.find(tensor);
      if (t == nullptr || t->type != dtype::i32 || t->shape.size() != 2 || t->shape[0] != long(tokens.size()))
        return values;
      const std::vector<int> all = file_.values<int>(tensor).value();
      const auto at = all.begin() + position * t->shape[1];
      values.assign(at, at + t->shape[1]);
      std::sort(values.begin(), values.end());
      return values;
    };
    layer_picks p{row("topk"), row("router_experts")};
    // Of a token with fewer visible ones than the indexer picks, only the visible ones count.
    std::erase_if(p.tokens, [&](int t) { return t > position; });
    return p;
  }

 private:
  recorded_run(tensor_files file, const glm5_model_config& c)
      : file_(std::move(file)), vocab_(std::size_t(c.vocab)) {}

  tensor_files file_;
  std::size_t vocab_;
  std::vector<float> logits_;  // [tokens][vocab], or empty
};

}  // namespace monolayer::examples
