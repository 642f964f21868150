// describe: what a GLM-5 layer's program needs on one rank, for a named config: stages, slots, weights,
// memory, hops, and the time that its weights take at a given bandwidth. Needs no GPU. A line of `configs`
// makes a config known here.
#include "monolayer/host/describe.hpp"

#include <cstdio>
#include <cstdlib>

#include "generate/stage_weights.hpp"
#include "monolayer/arch/sim/sim.hpp"

namespace {

using namespace monolayer;

struct request {
  std::string model, formats = "own", target = "gfx950", caches = "bf16";
  int tp = 4, rows = 0, experts = 0;
  double bandwidth = 0;
};

struct known_config {
  const char *model, *formats;
  int tp, max_rows, experts, top_k;
  void (*print)(const request&);
};

/// Sizes are those of the target's simulated twin, which has its wave size, LDS and arrivals.
template <class T, class C>
void print_on(const request& how) {
  using P = glm5<C>;
  using sizes = plan<T, P>;
  const int rows = how.rows == 0 ? C::max_rows : how.rows;
  const int most = std::min(rows * C::top_k, C::experts);
  const int distinct = how.experts == 0 ? most : how.experts;
  const std::vector<double> weights = examples::weight_bytes<T, C>(distinct);
  std::printf("%s, %s formats, TP%d, %s caches, on %s\n", how.model.c_str(), how.formats.c_str(), how.tp,
              how.caches.c_str(), how.target.c_str());
  std::printf("weights are those that a launch of %d row%s reads: of the routed experts %d of %d\n\n", rows,
              rows == 1 ? "" : "s", distinct, C::experts);
  std::fputs(describe(P::info, {.rows = rows, .terabytes_per_second = how.bandwidth, .weight_bytes = weights})
                 .c_str(),
             stdout);
  std::printf("\nmemory of a rank: slots %llu bytes, arrivals %llu, mailbox %llu, state %llu\n",
              static_cast<unsigned long long>(sizes::slots_bytes),
              static_cast<unsigned long long>(sizes::arrivals_bytes),
              static_cast<unsigned long long>(sizes::mailbox_bytes),
              static_cast<unsigned long long>(sizes::state_bytes));
  std::printf("LDS of a block: %u bytes; %u control, %u staged rows, %u ring slots of %u bytes\n",
              unsigned(T::lds_bytes), unsigned(sizes::lds::rows), unsigned(sizes::lds::row_bytes(rows)),
              unsigned(sizes::ring_slots(rows)), unsigned(sizes::lds::slot_bytes));
  std::printf("cache: %u bytes a token and layer, index keys %llu\n", unsigned(C::kv_cache::bytes),
              static_cast<unsigned long long>(C::index_cache::page_bytes(64) / 64));
}
template <class C>
void print(const request& how) {
  if (how.target == "gfx950")
    how.caches == "fp8" ? print_on<sim::gfx950, with_fp8_caches<C>>(how) : print_on<sim::gfx950, C>(how);
  else
    how.caches == "fp8" ? print_on<sim::sm90, with_fp8_caches<C>>(how) : print_on<sim::sm90, C>(how);
}

template <class C>
constexpr known_config line(const char* model, const char* formats) {
  return {model, formats, C::ranks, C::max_rows, C::experts, C::top_k, &print<C>};
}
constexpr known_config configs[] = {
    line<glm5_layer<4>>("glm5", "own"),
    line<glm5_layer<8>>("glm5", "own"),
    line<with_fp8_layer<glm5_layer<8>>>("glm5", "fp8"),
    line<micro_layer<1>>("micro", "own"),
    line<micro_layer<4>>("micro", "own"),
    line<with_mxfp4_layer<micro_layer<4>>>("micro", "mxfp4"),
    line<tiny_layer<4>>("tiny", "own"),
    line<with_mxfp4_layer<tiny_layer<4>>>("tiny", "mxfp4"),
    line<mini_layer<8>>("mini", "own"),
};

int refuse(const status& why) {
  std::fprintf(stderr, "describe: %s\n", why.text().c_str());
  return 2;
}

void print_usage() {
  std::puts(
      "usage: describe MODEL [OPTION VALUE]...\n"
      "  --tp N            ranks                                          (4)\n"
      "  --formats NAME    own: FP8 attention, MXFP4 experts; mxfp4, fp8  (own)\n"
      "  --caches FORMAT   bf16 or fp8                                    (bf16)\n"
      "  --target NAME     gfx950 or sm90                                 (gfx950)\n"
      "  --rows N          live rows                                      (the config's max_rows)\n"
      "  --experts N       distinct routed experts that the rows choose   (as many as they can)\n"
      "  --bandwidth TB/s  of one GPU's memory: gives the memory floor");
  std::printf("known:");
  for (const known_config& c : configs) std::printf(" %s/TP%d/%s", c.model, c.tp, c.formats);
  std::puts("");
}

}  // namespace

int main(int count, char** arguments) {
  const auto bad = [](std::string what, std::string seen, std::string wanted) {
    return refuse(error(error_code::bad_value, std::move(what), "'" + seen + "'", std::move(wanted)));
  };
  request how;
  for (int i = 1; i < count; ++i)
    if (std::string(arguments[i]) == "--help" || std::string(arguments[i]) == "-h") return print_usage(), 0;
  if (count < 2) return print_usage(), 2;
  how.model = arguments[1];
  for (int i = 2; i < count; i += 2) {
    const std::string option = arguments[i], value = i + 1 < count ? arguments[i + 1] : "";
    char* end = nullptr;
    const double number = std::strtod(value.c_str(), &end);
    const bool is_number = !value.empty() && *end == '\0',
               is_count = is_number && number >= 1 && number <= 1024 && number == int(number);
    if (option == "--bandwidth") {
      if (!is_number || !(number > 0 && number < 1000))
        return bad(option, value, "terabytes per second, above 0 and below 1000");
      how.bandwidth = number;
    } else if (option == "--tp" || option == "--rows" || option == "--experts") {
      if (!is_count) return bad(option, value, "a whole number from 1 to 1024");
      (option == "--tp" ? how.tp : option == "--rows" ? how.rows : how.experts) = int(number);
    } else if (option == "--formats") {
      how.formats = value;
    } else if (option == "--caches") {
      if (value != "bf16" && value != "fp8") return bad(option, value, "bf16 or fp8");
      how.caches = value;
    } else if (option == "--target") {
      if (value != "gfx950" && value != "sm90") return bad(option, value, "gfx950 or sm90");
      how.target = value;
    } else {
      return bad("argument", option, "an option that describe --help lists");
    }
  }
  for (const known_config& c : configs) {
    if (c.model != how.model || c.formats != how.formats || c.tp != how.tp) continue;
    if (how.rows > c.max_rows)
      return bad("--rows", std::to_string(how.rows),
                 "at most the config's max_rows " + std::to_string(c.max_rows));
    if (how.experts > c.experts)
      return bad("--experts", std::to_string(how.experts),
                 "at most the model's " + std::to_string(c.experts));
    c.print(how);
    return 0;
  }
  return bad("config", how.model + "/TP" + std::to_string(how.tp) + "/" + how.formats,
             "a known one (describe --help lists them), or a line for it in examples/describe.cpp");
}
