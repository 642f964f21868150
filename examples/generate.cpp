// generate: continues a prompt with a GLM-5 checkpoint. All layers of the model are one launch on each rank;
// embedding, final norm and LM head run on the host. Greedy, one request. See generate_usage in
// generate/options.hpp, and generate/configs.hpp for the models that it is compiled for.
//
//   the simulator   g++ -std=c++20 -O2 -ffp-contract=off -I include -I examples examples/generate*.cpp
//                        examples/checkpoint/*.cpp -lboost_context
//   an H200         nvcc -x cu -std=c++20 -O3 -gencode arch=compute_90a,code=sm_90a --expt-relaxed-constexpr
//                        -fmad=false -diag-suppress 2810 -I include -I examples examples/generate*.cpp
//                        examples/checkpoint/*.cpp
//   an MI355X       hipcc -x hip -std=c++20 -O3 --offload-arch=gfx950 -ffp-contract=off -I include
//                        -I examples examples/generate*.cpp examples/checkpoint/*.cpp
//                   an MI300X: --offload-arch=gfx942 -DMONOLAYER_GENERATE_GFX942
#include <chrono>

#include "generate/choose.hpp"
#include "generate/options.hpp"
#include "generate/report.hpp"
#include "generate/targets.hpp"

namespace monolayer::examples {
namespace {

/// A choice of the model against the recorded one.
enum class verdict { unknown, equal, excused, wrong };

class generation {
 public:
  static constexpr float near_tie =
      0.05f;  // a recorded margin up to which rounding may choose the other token

  generation(const glm5_checkpoint& checkpoint, runner& model, const recorded_run* recorded, int rows)
      : checkpoint_(checkpoint), model_(model), recorded_(recorded), rows_(rows) {}

  /// Continues `ids` by at most `count` tokens.
  status continue_greedily(std::vector<int> ids, int count) {
    const int prompt = int(ids.size());
    for (int first = 0; first < prompt; first += rows_) {
      const int n = std::min(rows_, prompt - first);
      auto out = launch(ids, first, n);
      if (!out) return out.why();
      std::printf("prompt: positions %d..%d of %d, %s s\n", first, first + n - 1, prompt,
                  decimal(seconds_, 2).c_str());
      std::fflush(stdout);
      newest_.assign(out.value().end() - hidden(), out.value().end());
    }
    while (int(ids.size()) < prompt + count) {
      const int position = int(ids.size()) - 1;
      const auto next = next_token(checkpoint_, newest_);
      if (!next) return next.why();
      // After a divergence the texts differ, and so does everything.
      const verdict v = diverged_ ? verdict::unknown : compare(ids, position, next.value());
      if (status s = why_; !s) return s;
      ids.push_back(next.value().token);
      generated.push_back(next.value().token);
      std::printf("token %d of %d: %d%s\n", int(generated.size()), count, next.value().token, word(v));
      std::fflush(stdout);
      const auto& eos = checkpoint_.config().eos;
      if (std::find(eos.begin(), eos.end(), next.value().token) != eos.end()) return {};
      if (int(ids.size()) == prompt + count) return {};
      auto out = launch(ids, position + 1, 1);
      if (!out) return out.why();
      std::printf("launch: position %d, %s s\n", position + 1, decimal(seconds_, 2).c_str());
      newest_ = std::move(out.value());
    }
    return {};
  }

  /// Feeds ids and compares the choice after each.
  status follow(const std::vector<int>& ids) {
    for (int first = 0; first < int(ids.size()); first += rows_) {
      const int n = std::min(rows_, int(ids.size()) - first);
      auto out = launch(ids, first, n);
      if (!out) return out.why();
      const double seconds = seconds_;
      const int before = equal;
      for (int i = 0; i < n; ++i) {
        const auto next = next_token(
            checkpoint_, std::span<const u16>(out.value()).subspan(std::size_t(i) * hidden(), hidden()));
        if (!next) return next.why();
        compare(ids, first + i, next.value());
        if (!why_) return why_;
      }
      std::printf("positions %d..%d of %d, %s s: %d equal\n", first, first + n - 1, int(ids.size()),
                  decimal(seconds, 2).c_str(), equal - before);
      std::fflush(stdout);
    }
    return {};
  }

  std::vector<int> generated;
  int compared = 0, equal = 0, excused = 0, wrong = 0;
  std::string first_divergence;

 private:
  std::size_t hidden() const { return std::size_t(checkpoint_.config().hidden); }
  const char* word(verdict v) const {
    return v == verdict::equal ? ", as recorded" : v == verdict::unknown ? "" : ", not as recorded";
  }

  /// One launch over all layers: the tokens at positions first, first + 1, ..
  result<std::vector<u16>> launch(const std::vector<int>& ids, int first, int count) {
    std::vector<u16> rows(std::size_t(count) * hidden());
    if (status s = embed(checkpoint_, std::span(ids).subspan(std::size_t(first), std::size_t(count)), rows);
        !s)
      return s;
    const auto start = std::chrono::steady_clock::now();
    auto out = model_.run(first, rows);
    seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return out;
  }

  /// A choice that is not the recorded one is excused by a recorded margin of near_tie at most, or by a layer
  /// that picked other tokens or experts for this position: from there on another model is computed.
  verdict compare(const std::vector<int>& ids, int position, const greedy_choice& chosen) {
    const auto wanted = recorded_ != nullptr && std::size_t(position) < recorded_->tokens.size()
                            ? recorded_->choice(position)
                            : std::nullopt;
    if (!wanted) return verdict::unknown;
    ++compared;
    if (chosen.token == wanted->token) {
      ++equal;
      return verdict::equal;
    }
    diverged_ = true;
    std::string text =
        "position " + std::to_string(position) + ": token " + std::to_string(chosen.token) + ", recorded " +
        std::to_string(wanted->token) +
        (std::isnan(wanted->margin) ? " with an unknown margin"
                                    : " with a margin of " + decimal(double(wanted->margin), 3));
    verdict v = wanted->margin <= near_tie ? verdict::excused : verdict::wrong;
    if (v == verdict::excused) {
      text += ": a near tie";
    } else {
      const auto row = std::span(ids).subspan(std::size_t(position), 1);
      std::vector<u16> values(hidden());
      why_ = embed(checkpoint_, row, values);
      const auto picks = model_.picks(position, values);
      if (why_ && !picks) why_ = picks.why();
      if (!why_) return v;
      const std::string flipped = flipped_pick(picks.value(), *recorded_, position);
      if (!flipped.empty()) v = verdict::excused;
      text += flipped.empty() ? ": no layer picked otherwise" : ": " + flipped;
    }
    ++(v == verdict::excused ? excused : wrong);
    std::printf("%s\n", text.c_str());
    if (first_divergence.empty() || (v == verdict::wrong && wrong == 1)) first_divergence = text;
    return v;
  }

  const glm5_checkpoint& checkpoint_;
  runner& model_;
  const recorded_run* recorded_;
  int rows_;
  std::vector<u16> newest_;  // the residual stream of the newest token, after the last layer
  double seconds_ = 0;       // of the newest launch
  bool diverged_ = false;
  status why_;
};

int refuse(const status& why, int code = 2) {
  std::fprintf(stderr, "generate: %s\n", why.text().c_str());
  return code;
}

int finish(const generation& g, bool forced) {
  const char* what = forced ? "positions" : "tokens";
  if (g.compared == 0) {
    std::printf("generate: OK, %d tokens, nothing to compare with\n", int(g.generated.size()));
    return 0;
  }
  std::printf("generate: %s, %d of %d %s equal", g.wrong == 0 ? "OK" : "FAILED", g.equal, g.compared, what);
  if (!g.first_divergence.empty()) std::printf("; first divergence at %s", g.first_divergence.c_str());
  std::printf("\n");
  return g.wrong == 0 ? 0 : 1;
}

int run(const generate_options& o) {
  const auto start = std::chrono::steady_clock::now();
  auto opened = open_checkpoint(o.directory);
  if (!opened) return refuse(opened.why());
  const glm5_checkpoint& checkpoint = opened.value();
  const glm5_model_config& config = checkpoint.config();
  const auto formats = checkpoint.formats();
  if (!formats) return refuse(formats.why());

  std::vector<compiled_model> models;
  for (auto list : {compiled_micro(), compiled_micro_fp8(), compiled_tiny(), compiled_glm5()})
    models.insert(models.end(), list.begin(), list.end());
  const auto chosen =
      choose_model(models, {geometry_of(config), formats.value(), o.tp, o.fp8_caches, o.target});
  if (!chosen) return refuse(chosen.why());
  const compiled_model& model = chosen.value();
  if (o.rows > model.max_rows)
    return refuse(error(error_code::bad_value, "--rows", std::to_string(o.rows),
                        "at most the config's max_rows " + std::to_string(model.max_rows)));

  const bool forced = !o.teacher_forced.empty();
  const auto golden = forced ? std::filesystem::path(o.teacher_forced)
                             : std::filesystem::path(o.directory) / "golden.safetensors";
  std::error_code ignored;
  std::optional<recorded_run> recorded;
  if (forced || (o.prompt.empty() && std::filesystem::exists(golden, ignored))) {
    auto file = recorded_run::open(golden, config);
    if (!file) return refuse(file.why());
    recorded = std::move(file.value());
  }
  if (!recorded && o.prompt.empty())
    return refuse(error(error_code::bad_value, "--prompt",
                        "nothing, and no golden.safetensors in the directory", "token ids"));
  for (int id : o.prompt)
    if (id >= config.vocab)
      return refuse(error(error_code::bad_value, "--prompt", std::to_string(id),
                          "ids below vocab_size " + std::to_string(config.vocab)));

  std::vector<int> ids = o.prompt;
  if (recorded) ids.assign(recorded->tokens.begin(), recorded->tokens.begin() + recorded->prompt);
  const int count = forced ? std::min(o.tokens, int(recorded->tokens.size()) - recorded->prompt) : o.tokens;
  run_options how = o.run;
  how.tokens = int(ids.size()) + count;
  if (const int most = std::min(model.max_context, config.max_positions); how.tokens > most)
    return refuse(error(error_code::bad_value, "prompt and --tokens", std::to_string(how.tokens),
                        "at most " + std::to_string(most) + " together"));

  const auto made = model.make(checkpoint, how);
  if (!made) return refuse(made.why());
  runner& layers = *made.value();
  const int rows = o.rows == 0 ? model.max_rows : o.rows;
  const char* name = name_of(model.size);
  std::printf("%s: %s, %d layers; %s\n", o.directory.c_str(), name ? name : "a geometry of its own",
              config.layers, formats.value().text().c_str());
  std::printf("TP%d on %s: %s; caches %s, up to %d rows a launch\n", model.ranks, model.target.c_str(),
              layers.text().c_str(), model.fp8_caches ? "fp8" : "bf16", rows);

  generation g(checkpoint, layers, recorded ? &*recorded : nullptr, rows);
  if (forced)  // nothing follows the last recorded token
    ids.insert(ids.end(), recorded->tokens.begin() + recorded->prompt,
               recorded->tokens.begin() + recorded->prompt + count - 1);
  if (status s = forced ? g.follow(ids) : g.continue_greedily(ids, count); !s) return refuse(s, 1);
  print_stages(layers);
  if (!g.generated.empty()) {
    std::printf("\ngenerated:");
    for (int id : g.generated) std::printf(" %d", id);
    std::printf("\n");
  }
  std::printf(
      "%s s in all\n",
      decimal(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(), 1).c_str());
  return finish(g, forced);
}

}  // namespace
}  // namespace monolayer::examples

int main(int count, char** arguments) {
  using namespace monolayer::examples;
  const std::vector<std::string> words(arguments + 1, arguments + count);
  for (const std::string& word : words)
    if (word == "--help" || word == "-h") {
      std::fputs(generate_usage, stdout);
      return 0;
    }
  const auto options = parse_options(words);
  if (!options) return refuse(options.why());
  return run(options.value());
}
