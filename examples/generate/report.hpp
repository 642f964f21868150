// What generate prints at its end: the table of stages, and words for a divergence.
#pragma once

#include <cstdio>

#include "generate/recorded.hpp"

namespace monolayer::examples {

inline std::string decimal(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

inline void print_stages(const runner& model) {
  std::printf("\n%-16s %6s %7s %13s %6s", "stage", "layers", "tiles", "weight bytes", "reads");
  if (model.counts_waits()) std::printf(" %9s %9s", "waits", "(weights)");
  std::printf("\n");
  double bytes = 0;
  stage_waits all;
  for (const stage_line& l : model.stages()) {
    std::printf("%-16s %6d %s%5d %13.0f %6d", l.name.c_str(), l.layers, l.routed ? "<=" : "  ", l.tiles,
                l.weight_bytes, l.reads);
    if (model.counts_waits())
      std::printf(" %9llu %9llu", static_cast<unsigned long long>(l.waits.for_others),
                  static_cast<unsigned long long>(l.waits.for_weights));
    std::printf("\n");
    bytes += l.weight_bytes, all.for_others += l.waits.for_others, all.for_weights += l.waits.for_weights;
  }
  std::printf("%-16s %6s %7s %13.0f %6s", "together", "", "", bytes, "");
  if (model.counts_waits())
    std::printf(" %9llu %9llu", static_cast<unsigned long long>(all.for_others),
                static_cast<unsigned long long>(all.for_weights));
  std::printf(
      "\ntiles: of one layer and rank; weight bytes: that one rank holds for all layers; reads: slots that a "
      "tile needs\n");
  std::printf(model.counts_waits()
                  ? "waits: of all blocks, ranks and launches, how often a tile's block slept until another "
                    "block or rank had\n"
                    "written; (weights): until a chunk of weights had landed. --trace FILE lists them\n"
                  : "waits are counted in the simulator alone\n");
}

/// The first layer that chose otherwise than was recorded for the token at a position, in words; empty if
/// none did.
inline std::string flipped_pick(const std::vector<layer_picks>& picks, const recorded_run& recorded,
                                int position) {
  const auto differ = [](const std::vector<int>& seen, const std::vector<int>& wanted) {
    std::string only;
    for (int one : wanted)
      if (std::find(seen.begin(), seen.end(), one) == seen.end()) only += " -" + std::to_string(one);
    for (int one : seen)
      if (std::find(wanted.begin(), wanted.end(), one) == wanted.end()) only += " +" + std::to_string(one);
    return only;
  };
  for (std::size_t i = 0; i < picks.size(); ++i) {
    const layer_picks wanted = recorded.picks(int(i), position);
    if (!picks[i].tokens.empty() && !wanted.tokens.empty())
      if (const std::string d = differ(picks[i].tokens, wanted.tokens); !d.empty())
        return "layer " + std::to_string(i) + " attended to other tokens:" + d;
    if (!picks[i].experts.empty() && !wanted.experts.empty())
      if (const std::string d = differ(picks[i].experts, wanted.experts); !d.empty())
        return "layer " + std::to_string(i) + " chose other experts:" + d;
  }
  return "";
}

}  // namespace monolayer::examples
