// make_checkpoint: writes a small GLM-5 checkpoint of random weights in Hugging Face's format, to try drivers
// on.
#include <cstdio>
#include <cstdlib>

#include "make_checkpoint/random_checkpoint.hpp"

namespace {

using namespace monolayer::examples;

constexpr const char* usage = R"(usage: make_checkpoint DIRECTORY [OPTION VALUE]...
  --attention FORMAT   of q_a, kv_a, q_b, kv_b, o   (fp8_channel)
  --index FORMAT       of the indexer's wq_b, wk    (bf16)
  --experts FORMAT     of all MLPs                  (mxfp4)
  --seed N             a number                     (1)
  --shards N           files                        (1)
FORMAT: bf16, fp8_block, fp8_channel, mxfp4
The model: hidden 512, 8 heads of GLM-5's sizes, one dense and two MoE layers of 16 experts, indexers full, full, shared.
)";

int refuse(const std::string& what) {
  std::fprintf(stderr, "make_checkpoint: %s\n%s", what.c_str(), usage);
  return 2;
}

bool read_kind(const std::string& text, weight_kind& to) {
  for (weight_kind kind :
       {weight_kind::bf16, weight_kind::fp8_block, weight_kind::fp8_channel, weight_kind::mxfp4})
    if (text == name_of(kind)) {
      to = kind;
      return true;
    }
  return false;
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 2 || arguments[1][0] == '-') return refuse("the first argument is the directory to write");
  checkpoint_formats formats{weight_kind::fp8_channel, weight_kind::bf16, weight_kind::mxfp4};
  unsigned long seed = 1, shards = 1;
  for (int i = 2; i < count; i += 2) {
    const std::string option = arguments[i], value = i + 1 < count ? arguments[i + 1] : "";
    char* end = nullptr;
    const unsigned long number = std::strtoul(value.c_str(), &end, 10);
    const bool is_number = !value.empty() && *end == '\0';
    bool good = false;
    if (option == "--attention")
      good = read_kind(value, formats.attention);
    else if (option == "--index")
      good = read_kind(value, formats.index);
    else if (option == "--experts")
      good = read_kind(value, formats.experts);
    else if (option == "--seed")
      good = is_number, seed = number;
    else if (option == "--shards")
      good = is_number && number <= 1000, shards = number;
    else
      return refuse("unknown option '" + option + "'");
    if (!good) return refuse("no value for " + option + ": '" + value + "'");
  }
  const random_checkpoint made = make_random_checkpoint(mini_config(), formats, seed);
  if (auto s = write_checkpoint(arguments[1], made, int(shards)); !s) {
    std::fprintf(stderr, "make_checkpoint: %s\n", s.text().c_str());
    return 1;
  }
  // Reading it back costs little and proves that it is whole.
  auto checkpoint = open_checkpoint(arguments[1]);
  if (!checkpoint) {
    std::fprintf(stderr, "make_checkpoint: %s\n", checkpoint.why().text().c_str());
    return 1;
  }
  std::printf("%s: %zu tensors; %s\n", arguments[1], made.tensors.size(),
              checkpoint.value().formats().value().text().c_str());
  return 0;
}
