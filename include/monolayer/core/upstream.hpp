// Which tiles are ancestors of which, over every sequence of layer kinds.
//
// Take one stage R of one layer as the source and ask of any later stage how far R reaches it:
//   some   every tile of R is an ancestor of, or is, one of its tiles at least
//   all    every tile of R is an ancestor of each of its tiles
// R itself is `some`. A stage that waits for all parts of a slot takes `all` from a writer that has either;
// one whose tiles wait for their own parts takes what the writer has (each part has a tile that waits for it,
// as parts divide tiles). Of several reads the best counts.
//
// From layer to layer only the newest use of each slot matters. So a layer of kind k is a monotone function
// on the vector of what the slots' newest writers have, and the worst vector over all sequences of kinds is a
// fixed point, as in data flow analysis: each entry can only fall twice, so it ends, and it holds for
// spans of any length. It errs on one side only: where several kinds each carry the order through a slot of
// their own, a program may be refused that would be safe (tests/core/test_upstream.cpp counts how often).
#pragma once

#include "monolayer/core/graph.hpp"

namespace monolayer {

inline constexpr int max_buffers = 4;

namespace proofs {

/// The stage of the kind that writes the slot, or -1.
constexpr int writer_in(const kind_info& kind, int slot) {
  for (int i = 0; i < kind.stage_count; ++i)
    if (kind.stages[i].writes == slot) return i;
  return -1;
}

/// The waits of a program as sets of slots, bit s for slot s: what the compiler walks many times over.
struct waits {
  struct stage {
    unsigned all = 0, own = 0;                  // of this layer's uses: waited for in all parts, or in the tile's own
    unsigned earlier_all = 0, earlier_own = 0;  // of earlier layers' uses
    unsigned writes = 0;
  };
  struct kind {
    int stage_count = 0;
    unsigned writes = 0;
    stage stages[max_stages] = {};
  };
  int kind_count = 0;
  kind kinds[max_kinds] = {};

  constexpr explicit waits(const program_info& p) : kind_count(p.kind_count) {
    for (int k = 0; k < kind_count; ++k) {
      kinds[k].stage_count = p.kinds[k].stage_count;
      kinds[k].writes = slots_written(p.kinds[k]);
      for (int i = 0; i < kinds[k].stage_count; ++i) {
        const stage_info& from = p.kinds[k].stages[i];
        stage& to = kinds[k].stages[i];
        if (from.writes >= 0) to.writes = 1u << from.writes;
        for (const slot_read& r : from.reads) {
          if (r.slot < 0) continue;
          // With `own`, a tile polls only those tagged words that it needs, also where they are one part.
          const slot_info& s = p.slots[r.slot];
          const bool all = r.reach == reach::all || (s.parts == 1 && s.transport == transport::counted);
          (r.earlier ? (all ? to.earlier_all : to.earlier_own) : (all ? to.all : to.own)) |= 1u << r.slot;
        }
      }
    }
  }
};

/// How far the writers of the slots' newest uses are reached, bit s for slot s; who is reached by `all` is by `some`.
/// `known` = false: no sequence of kinds leads here yet.
struct flow {
  bool known = false;
  unsigned some = 0, all = 0;
};

/// One layer: `before` holds the uses of earlier layers; returns the uses after it. source: R's index in this
/// layer, or -1. A read of this layer's use comes after its writer in the list (rule writer_first).
constexpr flow through_layer(const waits::kind& kind, const flow& before, int source) {
  flow after = before;
  after.known = true;
  for (int i = 0; i < kind.stage_count; ++i) {
    const waits::stage& st = kind.stages[i];
    const bool all = ((st.all & after.some) | (st.own & after.all) | (st.earlier_all & before.some) |
                      (st.earlier_own & before.all)) != 0;
    const bool some = all || i == source || ((st.own & after.some) | (st.earlier_own & before.some)) != 0;
    after.some = some ? after.some | st.writes : after.some & ~st.writes;
    after.all = all ? after.all | st.writes : after.all & ~st.writes;
  }
  return after;
}

/// Lowers `worst` to what holds of both; whether that changed it.
constexpr bool lower(flow& worst, const flow& other) {
  const flow both = worst.known ? flow{true, worst.some & other.some, worst.all & other.all} : other;
  const bool changed = !worst.known || both.some != worst.some || both.all != worst.all;
  worst = both;
  return changed;
}

/// Stage `source` of a layer of kind `kind` uses `slot`: is it wholly upstream of the `uses`-th write of the
/// slot after the use that it names, in whatever kind that write falls? Returns -1 if so, else a kind whose
/// write may run too early. `earlier`: the use is an earlier layer's, so a write in the source's own layer
/// counts.
constexpr int late_write(const waits& p, int slot, int kind, int source, bool earlier, int uses) {
  const unsigned bit = 1u << slot;
  flow left[max_buffers + 1] = {};  // left[n]: n writes of the slot are still to come
  const flow first = through_layer(p.kinds[kind], {}, source);
  const bool counts = earlier && (p.kinds[kind].writes & bit) != 0;
  if (counts && uses == 1) {
    // Only a stage after the source can be downstream; in place (the source itself) needs a second buffer.
    return (first.all & bit) != 0 ? -1 : kind;
  }
  left[uses - (counts ? 1 : 0)] = first;
  for (bool changed = true; changed;) {
    changed = false;
    for (int n = uses; n >= 1; --n) {
      if (!left[n].known) continue;
      for (int k = 0; k < p.kind_count; ++k) {
        const flow after = through_layer(p.kinds[k], left[n], -1);
        if ((p.kinds[k].writes & bit) == 0) {
          changed = lower(left[n], after) || changed;
        } else if (n > 1) {
          changed = lower(left[n - 1], after) || changed;
        } else if ((after.all & bit) == 0) {
          return k;
        }
      }
    }
  }
  return -1;
}

}  // namespace proofs

/// The most blocks for which the order proofs hold. Every block reads what a routed stage reads, to learn
/// whether it owns a tile; one without a tile is nobody's ancestor. So each block must own a tile of a later
/// stage of the kind that is upstream of the next writes in its stead. A launch must not use more blocks than
/// this.
constexpr int grid_limit(const program_info& p) {
  const proofs::waits waits(p);
  int limit = 1 << 30;
  for (int k = 0; k < p.kind_count; ++k) {
    const kind_info& kind = p.kinds[k];
    for (int i = 0; i < kind.stage_count; ++i) {
      if (!kind.stages[i].routed) continue;
      for (const slot_read& r : kind.stages[i].reads) {
        if (r.slot < 0) continue;
        int most = 0;
        for (int j = i + 1; j < kind.stage_count; ++j) {
          const stage_info& later = kind.stages[j];
          if (later.routed || later.by_group || later.tiles <= most) continue;
          if (proofs::late_write(waits, r.slot, k, j, r.earlier, p.slots[r.slot].buffers) < 0) most = later.tiles;
        }
        if (most < limit) limit = most;
      }
    }
  }
  return limit;
}

}  // namespace monolayer
