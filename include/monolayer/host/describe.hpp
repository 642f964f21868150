// A program's tables as text: stages, slots, bytes x readers, memory, hops, and the time that its weights
// take at a given bandwidth. Needs no GPU; the same tables give the same text everywhere.
#pragma once

#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "monolayer/core/graph.hpp"
#include "monolayer/core/proofs.hpp"

namespace monolayer {

struct describe_options {
  int rows = 0;                     // live rows for which bytes x readers are given; 0: max_rows
  double terabytes_per_second = 0;  // memory bandwidth of one GPU; 0: no floor is given
  int kind = -1;                    // only this kind's stages; -1: all kinds
  std::span<const double>
      weight_bytes{};  // of each stage on one rank: kind by kind, in the order of the stages
};

/// Waits from one layer to the next on the longest chain of slots through a kind: a hop is from the last work
/// of a slot's writer to the first of its reader. The one into the layer counts, the one out of it is the
/// next layer's.
struct critical_path {
  int hops = 0;
  int between_ranks = 0;    // those through a mailbox
  std::vector<int> stages;  // from the first to the last
  std::vector<int> slots;   // slots[i] is what stages[i] waits for
};

inline critical_path longest_path(const program_info& p, int kind_index) {
  const kind_info& kind = p.kinds[kind_index];
  std::vector<critical_path> to(kind.stage_count);  // ends at each stage
  critical_path longest;
  const auto longer = [](const critical_path& a, const critical_path& b) {
    return a.hops != b.hops ? a.hops > b.hops : a.between_ranks > b.between_ranks;
  };
  for (int i = 0; i < kind.stage_count; ++i) {
    critical_path best;
    for (const slot_read& r : kind.stages[i].reads) {
      if (r.slot < 0) continue;
      const int writer = proofs::writer_in(kind, r.slot);
      critical_path path;
      if (!r.earlier && writer >= 0 && writer < i) path = to[writer];
      ++path.hops;
      path.between_ranks += p.slots[r.slot].scope == scope::peers;
      path.slots.push_back(r.slot);
      if (longer(path, best)) best = path;
    }
    best.stages.push_back(i);
    if (best.slots.size() < best.stages.size()) best.slots.insert(best.slots.begin(), -1);
    to[i] = best;
    if (longest.stages.empty() || longer(best, longest)) longest = best;
  }
  return longest;
}

namespace description {

/// Fixed decimals, whatever the locale.
inline std::string decimal(double value, int digits) {
  long long scale = 1;
  for (int i = 0; i < digits; ++i) scale *= 10;
  const long long scaled = std::llround(value * double(scale));
  std::string fraction = std::to_string(scaled % scale);
  fraction.insert(0, digits - fraction.size(), '0');
  return std::to_string(scaled / scale) + "." + fraction;
}
inline std::string left(std::string s, std::size_t width) {
  if (s.size() < width) s.append(width - s.size(), ' ');
  return s;
}
inline std::string right(const std::string& s, std::size_t width) {
  return s.size() < width ? std::string(width - s.size(), ' ') + s : s;
}
inline std::string right(long long n, std::size_t width) { return right(std::to_string(n), width); }
inline std::string count(long long n, const char* what) {
  return std::to_string(n) + " " + what + (n == 1 ? "" : "s");
}
inline std::string megabytes(double bytes) { return decimal(bytes / 1e6, 2) + " MB"; }

inline const char* word(element e) {
  return e == element::bf16 ? "bf16" : e == element::f32 ? "f32" : e == element::u32 ? "u32" : "token";
}
inline const char* word(scope s) {
  return s == scope::group ? "group" : s == scope::device ? "device" : "peers";
}
inline const char* word(transport t) { return t == transport::counted ? "counted" : "tagged"; }

inline void add_stage(std::string& out, const program_info& p, const program_info& live, const stage_info& st,
                      const double* weight_bytes) {
  out += "  +- " + left(st.name, 16) + " " + (st.routed ? "up to " : "") + count(st.tiles, "tile");
  if (st.tile_columns > 0) out += " x " + count(st.tile_columns, "column");
  if (st.routed) out += ", routed";
  if (st.by_row) out += ", by row";
  if (st.by_group) out += ", by group (" + count(parts_of_stage(p, st), "part") + ")";
  if (st.streamed > 0)
    out += st.streamed == 1 ? ", streams 1 matrix" : ", streams " + std::to_string(st.streamed) + " matrices";
  if (weight_bytes != nullptr && *weight_bytes > 0) out += ", " + megabytes(*weight_bytes);
  out += "\n";
  for (const slot_read& r : st.reads) {
    if (r.slot < 0) continue;
    const slot_info& s = live.slots[r.slot];
    std::string line = "  |    <- " + left(s.name, 16) + (r.reach == reach::own ? " own" : " all") +
                       left(r.earlier ? ", earlier" : "", 11);
    if (const long long bytes = fan_out_bytes(live, st, r); bytes > 0) {
      const long long readers = reader_count(st, r, s);
      line += right(bytes / readers, 9) + " B x " + right(readers, 5) +
              (readers == 1 ? " reader  = " : " readers = ") + right(megabytes(double(bytes)), 9);
    }
    out += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  if (st.writes >= 0) {
    const slot_info& s = p.slots[st.writes];
    out += "  |    -> " + left(s.name, 16) + " " + word(s.scope) + ", " + word(s.transport) + "\n";
  }
}

inline void add_path(std::string& out, const program_info& p, int kind) {
  const critical_path path = longest_path(p, kind);
  out += "  critical path: " + count(path.hops, "hop") + ", " + std::to_string(path.between_ranks) +
         " between ranks\n";
  std::string line = "   ";
  const auto add = [&](const std::string& word) {
    if (line.size() + 1 + word.size() > 108) {
      out += line + "\n";
      line = "     ";
    }
    line += " " + word;
  };
  for (std::size_t i = 0; i < path.stages.size(); ++i) {
    if (path.slots[i] >= 0) {
      const slot_info& s = p.slots[path.slots[i]];
      const char* arrow = s.scope == scope::peers ? "]=>" : "]->";
      add("-[" + std::string(s.name) + arrow);
    }
    add(p.kinds[kind].stages[path.stages[i]].name);
  }
  out += line + "\n";
}

inline void add_slots(std::string& out, const program_info& p) {
  out += "slots: bytes of one use at " + count(p.max_rows, "row") + "\n";
  out += "  name             type   columns  parts  units  scope   transport  buffers      bytes\n";
  long long scratch = 0, mailbox = 0;
  for (int i = 0; i < p.slot_count; ++i) {
    const slot_info& s = p.slots[i];
    const long long bytes = use_bytes(p, s);
    (s.scope == scope::peers ? mailbox : scratch) += bytes * s.buffers;
    out += "  " + left(s.name, 16) + " " + left(word(s.type), 6) + right(s.columns, 8) + right(s.parts, 7) +
           right(s.units, 7) + "  " + left(word(s.scope), 8) + left(word(s.transport), 9) +
           right(s.buffers, 9) + right(bytes, 11) + "\n";
  }
  out += "  scratch " + std::to_string(scratch) + " bytes, mailbox " + std::to_string(mailbox) +
         " bytes a rank\n";
  if (const int most = grid_limit(p); most < 1 << 30)
    out += "  at most " + count(most, "block") + " a launch\n";
}

}  // namespace description

/// One line: the rule, where it fails, and its numbers.
inline std::string describe(const program_info& p, const defect& d) {
  if (!d) return "sound";
  std::string out = rule_words(d.broken);
  const auto add = [&](const char* what, int index, const char* name) {
    if (index >= 0) out += std::string("; ") + what + " " + std::to_string(index) + " (" + name + ")";
  };
  add("kind", d.kind, proofs::kind_name(p, d));
  add("stage", d.stage, proofs::stage_name(p, d));
  add("slot", d.slot, proofs::slot_name(p, d));
  return out + "; seen " + std::to_string(d.seen) + ", wanted " + std::to_string(d.wanted);
}

inline std::string describe(const program_info& p, const describe_options& options = {}) {
  using namespace description;
  const defect d = first_defect(p);
  if (d && d.broken <= rule::stage_shape)
    return "REFUSED: " + describe(p, d) + "\n";  // sizes can't be trusted
  program_info live = p;
  if (options.rows > 0 && options.rows < p.max_rows) live.max_rows = options.rows;
  std::string out = "program: " + count(p.kind_count, "kind") + ", " + count(p.slot_count, "slot") + ", " +
                    count(live.max_rows, "row") + " of " + std::to_string(p.max_rows) + ", top " +
                    std::to_string(p.top_k) + ", " + count(p.ranks, "rank") + "\n";
  if (d) out += "REFUSED: " + describe(p, d) + "\n";
  std::size_t weight = 0;
  for (int k = 0; k < p.kind_count; ++k) {
    const kind_info& kind = p.kinds[k];
    if (options.kind >= 0 && options.kind != k) {
      weight += std::size_t(kind.stage_count);
      continue;
    }
    out += "\nkind " + std::string(kind.name) + ": " + count(kind.stage_count, "stage") + "\n";
    double total = 0;
    for (int i = 0; i < kind.stage_count; ++i, ++weight) {
      const double* bytes = weight < options.weight_bytes.size() ? &options.weight_bytes[weight] : nullptr;
      if (bytes != nullptr) total += *bytes;
      add_stage(out, p, live, kind.stages[i], bytes);
    }
    add_path(out, p, k);
    if (total > 0) {
      out += "  weights " + megabytes(total);
      if (options.terabytes_per_second > 0)
        out += ": memory floor " + decimal(total / options.terabytes_per_second / 1e6, 2) + " us at " +
               decimal(options.terabytes_per_second, 2) + " TB/s";
      out += "\n";
    }
  }
  out += "\n";
  add_slots(out, p);
  return out;
}

}  // namespace monolayer
