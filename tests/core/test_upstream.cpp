// The order proofs against brute force: random small programs, every sequence of kinds up to a length, two
// ranks, every tile a node of a graph whose edges are the waits alone. What the proofs pass must hold tile by
// tile.
#include <bitset>
#include <catch2/catch_test_macros.hpp>
#include <random>
#include <string>
#include <vector>

#include "monolayer/core/proofs.hpp"

using namespace monolayer;

namespace {

constexpr int ranks = 2;
constexpr int most_nodes = 512;

int uniform(std::mt19937& random, int from, int to) { return from + int(random() % unsigned(to - from + 1)); }

/// One or two kinds of two to four stages, three slots and perhaps a mailbox. Only the order is random; sizes
/// fit.
program_info random_program(std::mt19937& random) {
  static const char* const names[] = {"a", "b", "c", "d", "e"};
  program_info p;
  p.max_rows = 1;
  p.ranks = ranks;
  p.slot_count = 4;
  const bool mailbox = uniform(random, 0, 1) == 1;
  for (int s = 0; s < p.slot_count; ++s) {
    slot_info& slot = p.slots[s];
    slot.name = names[s];
    slot.type = element::f32;
    slot.columns = 4;
    slot.parts = 1 << uniform(random, 0, 2);
    slot.buffers = uniform(random, 1, 3);
    if (mailbox && s == 3) slot.scope = scope::peers;
    if (slot.scope == scope::peers || uniform(random, 0, 3) == 0) slot.transport = transport::tagged;
    slot.units = slot.transport == transport::tagged ? 0 : 4 / slot.parts;
  }
  p.kind_count = uniform(random, 1, 2);
  for (int k = 0; k < p.kind_count; ++k) {
    kind_info& kind = p.kinds[k];
    kind.name = names[k];
    kind.stage_count = uniform(random, 2, 4);
    bool written[4] = {};
    for (int i = 0; i < kind.stage_count; ++i) {
      stage_info& st = kind.stages[i];
      st.name = names[i];
      st.tiles = 4;
      st.tile_columns = 1;
      int n = 0;
      for (int s = 0; s < p.slot_count; ++s) {
        const reach how = uniform(random, 0, 2) ? reach::all : reach::own;
        if (written[s] && uniform(random, 0, 9) < 7) st.reads[n++] = {s, how, false};
        if (n < max_reads && uniform(random, 0, 9) < (s == i % 2 ? 7 : 1)) st.reads[n++] = {s, how, true};
        if (n == max_reads) break;
      }
      const int to = uniform(random, 0, 4);
      if (to < p.slot_count && !written[to]) {
        st.writes = to;
        written[to] = true;
      }
    }
  }
  return p;
}

struct node {
  int rank, layer, stage, tile;
};
struct use {
  int layer, stage;
};

/// All tiles of a span: their waits, and what they read and write.
struct span_graph {
  const program_info& p;
  std::vector<int> kinds;
  std::vector<node> nodes;
  std::vector<std::bitset<most_nodes>> ancestors;  // of each node
  std::vector<std::vector<int>> first;             // [layer][stage]: node of rank 0, tile 0
  std::vector<std::vector<use>> uses;              // [slot], oldest first

  const stage_info& stage(const node& n) const { return p.kinds[kinds[n.layer]].stages[n.stage]; }
  int number(int rank, int layer, int stage, int tile) const { return first[layer][stage] + rank * 4 + tile; }
  static int part(const slot_info& s, int tile) { return tile / (4 / s.parts); }

  /// Does tile `reader` wait for tile `writer`? Of a tagged part it may poll no more than its own words.
  static bool waits(const slot_info& s, const slot_read& r, int writer, int reader) {
    if (r.reach == reach::all) return true;
    return s.transport == transport::tagged ? writer == reader : part(s, writer) == part(s, reader);
  }

  /// Which use of its slot a read of a layer names: index into uses[slot], or -1 for the caller's input.
  int named(const slot_read& r, int layer) const {
    int n = -1;
    for (const use& u : uses[r.slot])
      if (u.layer < layer || (u.layer == layer && !r.earlier)) ++n;
    return n;
  }

  span_graph(const program_info& program, const std::vector<int>& sequence) : p(program), kinds(sequence) {
    uses.resize(p.slot_count);
    for (int e = 0; e < int(kinds.size()); ++e) {
      first.emplace_back();
      for (int i = 0; i < p.kinds[kinds[e]].stage_count; ++i) {
        first[e].push_back(int(nodes.size()));
        for (int rank = 0; rank < ranks; ++rank)
          for (int t = 0; t < 4; ++t) nodes.push_back({rank, e, i, t});
        const int writes = p.kinds[kinds[e]].stages[i].writes;
        if (writes >= 0) uses[writes].push_back({e, i});
      }
    }
    REQUIRE(nodes.size() <= most_nodes);
    ancestors.resize(nodes.size());
    for (int n = 0; n < int(nodes.size()); ++n) {
      for (const slot_read& r : stage(nodes[n]).reads) {
        if (r.slot < 0) continue;
        const int u = named(r, nodes[n].layer);
        if (u < 0) continue;
        const slot_info& s = p.slots[r.slot];
        for (int rank = 0; rank < ranks; ++rank) {
          if (rank != nodes[n].rank && s.scope != scope::peers) continue;
          for (int t = 0; t < 4; ++t) {
            if (!waits(s, r, t, nodes[n].tile)) continue;
            const int writer = number(rank, uses[r.slot][u].layer, uses[r.slot][u].stage, t);
            ancestors[n] |= ancestors[writer];
            ancestors[n].set(writer);
          }
        }
      }
    }
  }

  /// Is every tile of the use's writer, on the ranks that write where `reader` reads, a descendant of
  /// `reader`? With parts: only tiles that overwrite what it read.
  bool kept(int reader, const slot_read& r, int u, bool only_overwritten) const {
    const slot_info& s = p.slots[r.slot];
    if (u >= int(uses[r.slot].size())) return true;
    for (int rank = 0; rank < ranks; ++rank) {
      if (rank != nodes[reader].rank && s.scope != scope::peers) continue;
      for (int t = 0; t < 4; ++t) {
        if (only_overwritten && r.reach == reach::own && part(s, t) != part(s, nodes[reader].tile)) continue;
        const int writer = number(rank, uses[r.slot][u].layer, uses[r.slot][u].stage, t);
        if (!ancestors[writer].test(reader)) return false;
      }
    }
    return true;
  }

  /// Nothing that is still to be read is overwritten (equal words of a mailbox included).
  bool reads_kept(bool only_overwritten) const {
    for (int n = 0; n < int(nodes.size()); ++n)
      for (const slot_read& r : stage(nodes[n]).reads) {
        if (r.slot < 0) continue;
        const int u = named(r, nodes[n].layer);
        if (u + p.slots[r.slot].buffers >= 0 && !kept(n, r, u + p.slots[r.slot].buffers, only_overwritten))
          return false;
      }
    return true;
  }
  /// All units of a use have arrived before the next use's first one does.
  bool uses_in_order() const {
    for (int s = 0; s < p.slot_count; ++s) {
      if (p.slots[s].transport == transport::tagged) continue;
      for (int u = 0; u + 1 < int(uses[s].size()); ++u)
        for (int a = 0; a < 4; ++a)
          for (int b = 0; b < 4; ++b)
            if (!ancestors[number(0, uses[s][u + 1].layer, uses[s][u + 1].stage, b)].test(
                    number(0, uses[s][u].layer, uses[s][u].stage, a)))
              return false;
    }
    return true;
  }
};

template <class F>
bool every_sequence(const program_info& p, int length, std::vector<int>& sequence, F f) {
  if (int(sequence.size()) == length) return f(sequence);
  for (int k = 0; k < p.kind_count; ++k) {
    sequence.push_back(k);
    const bool good = every_sequence(p, length, sequence, f);
    sequence.pop_back();
    if (!good) return false;
  }
  return true;
}
template <class F>
bool every_span(const program_info& p, F f) {
  std::vector<int> sequence;
  return every_sequence(p, p.kind_count == 1 ? 6 : 5, sequence,
                        [&](const std::vector<int>& s) { return f(span_graph(p, s)); });
}

}  // namespace

TEST_CASE("what the order proofs pass holds tile by tile") {
  std::mt19937 random(20240607);
  int passed = 0, passed_two_kinds = 0, passed_mailbox = 0;
  struct {
    int refused = 0, rightly = 0;
  } reuse, order, mailbox;
  const auto confirm = [](auto& count, const program_info& p, auto holds) {
    if (count.refused == 200) return;
    ++count.refused;
    count.rightly += !every_span(p, holds);
  };
  for (int round = 0; round < 800'000; ++round) {
    const program_info p = random_program(random);
    const defect d = first_defect(p);
    INFO("round " << round << ": " << rule_name(d.broken));
    if (!d) {
      ++passed;
      passed_two_kinds += p.kind_count == 2;
      for (int k = 0; k < p.kind_count; ++k)
        if (p.slots[3].scope == scope::peers && proofs::writer_in(p.kinds[k], 3) >= 0) {
          ++passed_mailbox;
          break;
        }
      if (passed > 1000 && p.kind_count == 1) continue;
      CHECK(every_span(p, [](const span_graph& g) { return g.reads_kept(true) && g.uses_in_order(); }));
    } else if (d.broken == rule::reuse) {
      confirm(reuse, p, [](const span_graph& g) { return g.reads_kept(false); });
    } else if (d.broken == rule::use_order) {
      confirm(order, p, [](const span_graph& g) { return g.uses_in_order(); });
    } else if (d.broken == rule::mailbox_upstream) {
      confirm(mailbox, p, [](const span_graph& g) { return g.reads_kept(false); });
    }
  }
  INFO("passed " << passed << " (two kinds " << passed_two_kinds << ", mailbox " << passed_mailbox
                 << "); refused rightly: reuse " << reuse.rightly << " of " << reuse.refused << ", use_order "
                 << order.rightly << " of " << order.refused << ", mailbox_upstream " << mailbox.rightly
                 << " of " << mailbox.refused);
  CHECK(passed_two_kinds >= 60);
  CHECK(passed_mailbox >= 200);
  // The proofs are as sharp as the waits alone allow: hardly a program is refused that would have been safe.
  CHECK(reuse.rightly >= reuse.refused * 95 / 100);
  CHECK(order.rightly >= order.refused * 95 / 100);
  CHECK(mailbox.rightly >= mailbox.refused * 95 / 100);
  CHECK(reuse.refused + order.refused + mailbox.refused == 600);
}
