// The words of reports.
#pragma once

#include "monolayer/arch/sim/engine.hpp"

namespace monolayer::sim::detail {

inline place engine::here(const wave& w, int lane) const {
  return {w.block->of->rank, w.block->index, w.index, lane, w.layer, w.stage, w.tile};
}

inline place engine::place_of(const stamp& s) const {
  const wave_identity& who = identities[s.wave];
  place p{who.rank, who.block, who.wave, s.lane == several_lanes ? -1 : s.lane};
  const auto after = std::upper_bound(who.marks.begin(), who.marks.end(), s.epoch,
                                      [](u32 epoch, const place_mark& m) { return epoch < m.epoch; });
  if (after != who.marks.begin())
    p.layer = after[-1].layer, p.stage = after[-1].stage, p.tile = after[-1].tile;
  return p;
}

inline std::string engine::words(const place& p) const {
  std::string s = "rank " + std::to_string(p.rank) + " block " + std::to_string(p.block) + " wave " +
                  std::to_string(p.wave);
  if (p.lane >= 0) s += " lane " + std::to_string(p.lane);
  s += " (layer " + std::to_string(p.layer) + ", stage ";
  s += opt.stage_name ? opt.stage_name(p.layer, p.stage) : std::to_string(p.stage);
  return s + ", tile " + std::to_string(p.tile) + ")";
}

inline std::string engine::words(const region& r, const void* at) const {
  const annotation& part = r.part(at);
  std::string s = "'" + part.name + "' + " + std::to_string(static_cast<const u8*>(at) - part.base) + " (";
  if (&part != &r.parts[0]) s += "in '" + r.parts[0].name + "', ";
  return s + "rank " + std::to_string(r.rank) + ")";
}

/// Records the first error and leaves for good: a lane jumps to the scheduler and is never resumed.
inline void engine::fail(error kind, std::string text, place first, place second) {
  if (!halted) {
    halted = true;
    result.ok = false;
    result.kind = kind;
    result.first = first, result.second = second;
    result.text = std::move(text);
    if (first.rank >= 0 && kind != error::deadlock) result.text += "\n  by " + words(first);
    if (second.rank >= 0) result.text += "\n  against " + words(second);
    result.text += "\n  seed " + std::to_string(opt.seed) + ", step " + std::to_string(stats.steps);
  }
  if (current.of) {
    fcontext_t gone;
    jump_fcontext(scheduler, &gone);
  }
  throw stopped{};
}

inline void engine::conflict(error kind, const wave& w, int lane, const char* what, const std::string& where,
                             const stamp& earlier, const char* why) {
  constexpr const char* kinds[] = {"nothing",        "a load",     "a store",  "a store",
                                   "a tagged store", "an arrival", "an atomic"};
  fail(kind,
       std::string(name_of(kind)) + ": " + what + " of " + where + " meets " +
           kinds[static_cast<int>(earlier.kind)] + ": " + why,
       here(w, lane), place_of(earlier));
}

inline void engine::trace(u32 layer, u32 stage, u32 tile) {
  wave& w = *current.of;
  if (w.layer == layer && w.stage == stage && w.tile == tile) return;
  w.layer = layer, w.stage = stage, w.tile = tile;
  if (!opt.checks) return;
  w.clock.advance();
  identities[w.clock.id].marks.push_back({w.clock.epoch(), layer, stage, tile});
}

}  // namespace monolayer::sim::detail
