// The rules that the tables of core/graph.hpp must obey, each a constexpr function over the arrays that
// returns the first place where it fails. core/proofs.hpp makes compile errors of them, host/describe.hpp
// text.
#pragma once

#include "monolayer/core/graph.hpp"
#include "monolayer/core/upstream.hpp"

namespace monolayer {

inline constexpr int max_program_rows = 8;        // x takes 12 KiB of LDS a row at hidden 6144
inline constexpr int max_reading_blocks = 256;    // most blocks that read one slot (the CUs of an MI355X)
inline constexpr long long tagged_limit = 65536;  // bytes of a tagged slot; above it counted is quicker

// The rules in three steps; core/proofs.hpp has their words. A step is asked only where the one before holds,
// as it relies on that: sizes and indices first, then each read's writer.
// clang-format off
#define MONOLAYER_SHAPE_RULES(X) \
  X(limits) X(names) X(known_slots) X(slot_shape) X(token_shape) X(stage_shape)
#define MONOLAYER_WIRING_RULES(X) \
  X(one_writer) X(writer_first) X(earlier_writer) X(parts_divide)
#define MONOLAYER_ORDER_RULES(X) \
  X(arrivals) X(coverage) X(whole_words) X(group_scope) X(peers_tagged) X(mailbox_buffers) \
  X(mailbox_read) X(mailbox_upstream) X(reuse) X(use_order) X(fan_out) X(tagged_size)
#define MONOLAYER_RULES(X) MONOLAYER_SHAPE_RULES(X) MONOLAYER_WIRING_RULES(X) MONOLAYER_ORDER_RULES(X)
// clang-format on

enum class rule : unsigned char {
  none,
#define MONOLAYER_X(name) name,
  MONOLAYER_RULES(MONOLAYER_X)
#undef MONOLAYER_X
};

/// The first place where a rule fails; -1 where the rule is not about a kind, a stage, a slot.
struct defect {
  rule broken = rule::none;
  int kind = -1, stage = -1, slot = -1;
  long long seen = 0, wanted = 0;
  constexpr explicit operator bool() const { return broken != rule::none; }
};

// ---- Sizes that the rules and describe() share

/// Bytes of one row as it lies in memory: a tagged word of 8 bytes carries 4.
constexpr long long row_bytes(const slot_info& s) {
  return 1LL * s.columns * element_bytes(s.type) * (s.transport == transport::tagged ? 2 : 1);
}
/// Bytes of one use of the slot that a rank holds: all ranks' words where the slot is a mailbox.
constexpr long long use_bytes(const program_info& p, const slot_info& s) {
  return row_bytes(s) * p.max_rows * (s.scope == scope::peers ? p.ranks : 1);
}
/// How many times something of the slot is read: by a block once for all of its tiles.
constexpr long long reader_count(const stage_info& reader, const slot_read& r, const slot_info& s) {
  const int most = r.reach == reach::own ? max_reading_blocks * s.parts : max_reading_blocks;
  return reader.tiles < most ? reader.tiles : most;
}
constexpr long long fan_out_bytes(const program_info& p, const stage_info& reader, const slot_read& r) {
  const slot_info& s = p.slots[r.slot];
  const bool row_is_part = r.reach == reach::own && reader.by_row && s.parts == p.max_rows;
  const int share = (r.reach == reach::own ? s.parts : 1) * (reader.by_row && !row_is_part ? p.max_rows : 1);
  return use_bytes(p, s) / share / r.share * reader_count(reader, r, s);
}

// ---- One function a rule

namespace proofs {

template <class F>
constexpr defect each_slot(const program_info& p, F f) {
  for (int s = 0; s < p.slot_count; ++s)
    if (const defect d = f(s, p.slots[s])) return d;
  return {};
}
template <class F>
constexpr defect each_stage(const program_info& p, F f) {
  for (int k = 0; k < p.kind_count; ++k)
    for (int i = 0; i < p.kinds[k].stage_count; ++i)
      if (const defect d = f(k, i, p.kinds[k].stages[i])) return d;
  return {};
}
template <class F>
constexpr defect each_write(const program_info& p, F f) {
  return each_stage(p, [&](int k, int i, const stage_info& st) {
    return st.writes < 0 ? defect{} : f(k, i, st, p.slots[st.writes]);
  });
}
template <class F>
constexpr defect each_read(const program_info& p, F f) {
  return each_stage(p, [&](int k, int i, const stage_info& st) {
    for (const slot_read& r : st.reads)
      if (r.slot >= 0)
        if (const defect d = f(k, i, st, r, p.slots[r.slot])) return d;
    return defect{};
  });
}

constexpr defect find_limits(const program_info& p) {
  const long long counts[][3] = {{p.max_rows, 1, max_program_rows},
                                 {p.top_k, 1, 64},
                                 {p.ranks, 1, 64},
                                 {p.slot_count, 1, max_slots},
                                 {p.kind_count, 1, max_kinds},
                                 {p.fan_out_limit, 1, p.fan_out_limit}};
  for (const auto& c : counts)
    if (c[0] < c[1] || c[0] > c[2]) return {rule::limits, -1, -1, -1, c[0], c[0] < c[1] ? c[1] : c[2]};
  for (int k = 0; k < p.kind_count; ++k) {
    const int n = p.kinds[k].stage_count;
    if (n < 1 || n > max_stages) return {rule::limits, k, -1, -1, n, n < 1 ? 1 : max_stages};
  }
  return {};
}

constexpr bool same_text(const char* a, const char* b) {
  while (*a != 0 && *a == *b) ++a, ++b;
  return *a == *b;
}
/// The index of a twin before entry n, -1 where the name is empty, n where all is well.
template <class Entry>
constexpr int twin(const Entry* entries, int n) {
  if (entries[n].name == nullptr || *entries[n].name == 0) return -1;
  for (int i = 0; i < n; ++i)
    if (same_text(entries[i].name, entries[n].name)) return i;
  return n;
}
constexpr defect find_names(const program_info& p) {
  for (int k = 0; k < p.kind_count; ++k)
    if (const int t = twin(p.kinds, k); t != k) return {rule::names, k, -1, -1, k, t};
  if (const defect d = each_slot(p, [&](int s, const slot_info&) {
        const int t = twin(p.slots, s);
        return t == s ? defect{} : defect{rule::names, -1, -1, s, s, t};
      }))
    return d;
  return each_stage(p, [&](int k, int i, const stage_info&) {
    const int t = twin(p.kinds[k].stages, i);
    return t == i ? defect{} : defect{rule::names, k, i, -1, i, t};
  });
}

constexpr defect find_known_slots(const program_info& p) {
  return each_stage(p, [&](int k, int i, const stage_info& st) {
    if (st.writes < -1 || st.writes >= p.slot_count)
      return defect{rule::known_slots, k, i, -1, st.writes, p.slot_count};
    for (const slot_read& r : st.reads)
      if (r.slot < -1 || r.slot >= p.slot_count)
        return defect{rule::known_slots, k, i, -1, r.slot, p.slot_count};
    return defect{};
  });
}

constexpr defect find_slot_shape(const program_info& p) {
  return each_slot(p, [&](int s, const slot_info& slot) {
    if (slot.buffers < 1 || slot.buffers > max_buffers)
      return defect{rule::slot_shape, -1, -1, s, slot.buffers, slot.buffers < 1 ? 1 : max_buffers};
    if (slot.parts < 1 || slot.columns < 0 || slot.columns % slot.parts != 0)
      return defect{rule::slot_shape, -1, -1, s, slot.columns, slot.parts};
    return defect{};
  });
}

constexpr defect find_token_shape(const program_info& p) {
  return each_slot(p, [&](int s, const slot_info& slot) {
    const bool token = slot.type == element::token;
    const bool good = token ? slot.columns == 0 && slot.transport == transport::counted : slot.columns > 0;
    return good ? defect{} : defect{rule::token_shape, -1, -1, s, slot.columns, token ? 0 : 1};
  });
}

constexpr defect find_stage_shape(const program_info& p) {
  return each_stage(p, [&](int k, int i, const stage_info& st) {
    const int pairs = st.routed ? p.max_rows * p.top_k : row_copies(p, st);
    const bool counted = st.units_per_tile >= 1 && st.tile_columns >= 0;
    if (st.tiles < 1 || st.tiles % pairs != 0 || !counted ||
        (st.routed && (st.by_group || st.by_row || st.units_per_tile != 1)))
      return defect{rule::stage_shape, k, i, st.writes, st.tiles, pairs};
    return defect{};
  });
}

constexpr defect find_one_writer(const program_info& p) {
  return each_write(p, [&](int k, int i, const stage_info& st, const slot_info&) {
    for (int j = 0; j < i; ++j)
      if (p.kinds[k].stages[j].writes == st.writes) return defect{rule::one_writer, k, i, st.writes, 2, 1};
    return defect{};
  });
}

constexpr defect find_writer_first(const program_info& p) {
  return each_read(p, [&](int k, int i, const stage_info&, const slot_read& r, const slot_info&) {
    const int writer = writer_in(p.kinds[k], r.slot);
    const bool good = r.earlier || (writer >= 0 && writer < i);
    return good ? defect{} : defect{rule::writer_first, k, i, r.slot, writer, i};
  });
}

constexpr defect find_earlier_writer(const program_info& p) {
  return each_read(p, [&](int k, int i, const stage_info&, const slot_read& r, const slot_info&) {
    if (!r.earlier) return defect{};
    for (int j = 0; j < p.kind_count; ++j)
      if (writer_in(p.kinds[j], r.slot) >= 0) return defect{};
    return defect{rule::earlier_writer, k, i, r.slot, 0, 1};
  });
}

constexpr defect find_parts_divide(const program_info& p) {
  // Part of a tile: t / (tiles / parts). A routed tile belongs to all places that it serves: it has no part of its own to
  // arrive at or to wait for.
  if (const defect d = each_write(p, [&](int k, int i, const stage_info& st, const slot_info& s) {
        const int whole = st.routed ? 1 : st.tiles;
        return whole % s.parts == 0 ? defect{} : defect{rule::parts_divide, k, i, st.writes, whole, s.parts};
      }))
    return d;
  return each_read(p, [&](int k, int i, const stage_info& st, const slot_read& r, const slot_info& s) {
    const bool good = r.reach == reach::all || s.parts == 1 || (!st.routed && st.tiles % s.parts == 0);
    return good ? defect{} : defect{rule::parts_divide, k, i, r.slot, st.tiles, s.parts};
  });
}

constexpr defect find_arrivals(const program_info& p) {
  return each_write(p, [&](int k, int i, const stage_info& st, const slot_info& s) {
    // A routed stage has one unit for each (row, place) and tile of columns, whatever the routing.
    const long long arriving =
        s.transport == transport::tagged ? 0 : 1LL * st.tiles / s.parts * (st.routed ? 1 : st.units_per_tile);
    return arriving == s.units ? defect{} : defect{rule::arrivals, k, i, st.writes, arriving, s.units};
  });
}

constexpr defect find_coverage(const program_info& p) {
  return each_write(p, [&](int k, int i, const stage_info& st, const slot_info& s) {
    // The columns of a routed slot are [top_k places][columns of a place].
    const long long covered = 1LL * st.tiles / row_copies(p, st) * st.tile_columns;
    return covered == s.columns ? defect{} : defect{rule::coverage, k, i, st.writes, covered, s.columns};
  });
}

constexpr defect find_whole_words(const program_info& p) {
  return each_write(p, [&](int k, int i, const stage_info& st, const slot_info& s) {
    const int bytes = st.tile_columns * element_bytes(s.type);
    const bool good = s.transport == transport::counted || bytes % 4 == 0;
    return good ? defect{} : defect{rule::whole_words, k, i, st.writes, bytes, 4};
  });
}

constexpr defect find_group_scope(const program_info& p) {
  const auto check = [&](int k, int i, const stage_info& st, int slot, bool own) {
    const slot_info& s = p.slots[slot];
    if (s.scope != scope::group) return defect{};
    if (!st.by_group || !own) return defect{rule::group_scope, k, i, slot, 0, 1};
    const int parts = parts_of_stage(p, st);
    return parts == s.parts ? defect{} : defect{rule::group_scope, k, i, slot, s.parts, parts};
  };
  if (const defect d = each_write(p, [&](int k, int i, const stage_info& st, const slot_info&) {
        return check(k, i, st, st.writes, true);
      }))
    return d;
  if (const defect d =
          each_read(p, [&](int k, int i, const stage_info& st, const slot_read& r, const slot_info&) {
            return check(k, i, st, r.slot, r.reach == reach::own);
          }))
    return d;
  return each_stage(p, [&](int k, int i, const stage_info& st) {
    const int parts = parts_of_stage(p, st);
    const bool good = !st.by_group || st.tiles % parts == 0;
    return good ? defect{} : defect{rule::group_scope, k, i, -1, st.tiles, parts};
  });
}

constexpr defect find_peers_tagged(const program_info& p) {
  return each_slot(p, [&](int s, const slot_info& slot) {
    const bool good = slot.scope != scope::peers || slot.transport == transport::tagged;
    return good ? defect{}
                : defect{rule::peers_tagged, -1, -1, s, int(slot.transport), int(transport::tagged)};
  });
}

constexpr defect find_mailbox_buffers(const program_info& p) {
  return each_slot(p, [&](int s, const slot_info& slot) {
    const bool good = slot.scope != scope::peers || slot.buffers >= 2;
    return good ? defect{} : defect{rule::mailbox_buffers, -1, -1, s, slot.buffers, 2};
  });
}

constexpr defect find_mailbox_read(const program_info& p) {
  return each_write(p, [&](int k, int i, const stage_info& st, const slot_info& s) {
    if (s.scope != scope::peers) return defect{};
    for (int j = i + 1; j < p.kinds[k].stage_count; ++j)
      for (const slot_read& r : p.kinds[k].stages[j].reads)
        if (r.slot == st.writes && !r.earlier) return defect{};
    return defect{rule::mailbox_read, k, i, st.writes, 0, 1};
  });
}

constexpr defect find_mailbox_upstream(const program_info& p) {
  // Why two buffers then suffice: a rank pushes use n + 2 after it has read words of use n + 1 from every
  // peer (mailbox_read, and this rule on the rank itself), and a peer has sent these after all its tiles have
  // read use n.
  const waits all(p);
  return each_read(p, [&](int k, int i, const stage_info&, const slot_read& r, const slot_info& s) {
    if (s.scope != scope::peers) return defect{};
    const int late = late_write(all, r.slot, k, i, r.earlier, 1);
    return late < 0 ? defect{} : defect{rule::mailbox_upstream, k, i, r.slot, late, late};
  });
}

constexpr defect find_reuse(const program_info& p) {
  const waits all(p);
  return each_read(p, [&](int k, int i, const stage_info&, const slot_read& r, const slot_info& s) {
    int enough = s.buffers;
    while (enough <= max_buffers && late_write(all, r.slot, k, i, r.earlier, enough) >= 0) ++enough;
    return enough == s.buffers ? defect{}
                               : defect{rule::reuse, k, i, r.slot, s.buffers, enough <= max_buffers ? enough : 0};
  });
}

constexpr defect find_use_order(const program_info& p) {
  // A counter of arrivals knows how many came, not of which use. Also where nobody reads the slot.
  const waits all(p);
  return each_write(p, [&](int k, int i, const stage_info& st, const slot_info& s) {
    if (s.transport == transport::tagged) return defect{};
    const int late = late_write(all, st.writes, k, i, false, 1);
    return late < 0 ? defect{} : defect{rule::use_order, k, i, st.writes, late, late};
  });
}

constexpr defect find_fan_out(const program_info& p) {
  return each_read(p, [&](int k, int i, const stage_info& st, const slot_read& r, const slot_info&) {
    const long long bytes = fan_out_bytes(p, st, r);
    return bytes <= p.fan_out_limit ? defect{} : defect{rule::fan_out, k, i, r.slot, bytes, p.fan_out_limit};
  });
}

constexpr defect find_tagged_size(const program_info& p) {
  return each_slot(p, [&](int s, const slot_info& slot) {
    const bool small = slot.transport == transport::counted || slot.scope == scope::peers ||
                       use_bytes(p, slot) <= tagged_limit;
    return small ? defect{} : defect{rule::tagged_size, -1, -1, s, use_bytes(p, slot), tagged_limit};
  });
}

}  // namespace proofs

constexpr defect find_defect(const program_info& p, rule r) {
  switch (r) {
#define MONOLAYER_X(name) \
  case rule::name:        \
    return proofs::find_##name(p);
    MONOLAYER_RULES(MONOLAYER_X)
#undef MONOLAYER_X
    case rule::none:
      break;
  }
  return {};
}

/// The first defect in the order of the rules; false if the program is sound.
constexpr defect first_defect(const program_info& p) {
  for (int r = 1; r <= int(rule::tagged_size); ++r)
    if (const defect d = find_defect(p, rule(r))) return d;
  return {};
}

constexpr const char* rule_name(rule r) {
  switch (r) {
#define MONOLAYER_X(name) \
  case rule::name:        \
    return #name;
    MONOLAYER_RULES(MONOLAYER_X)
#undef MONOLAYER_X
    case rule::none:
      break;
  }
  return "";
}

}  // namespace monolayer
