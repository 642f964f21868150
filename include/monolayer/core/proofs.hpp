// Compile-time proofs over a program's tables. static_assert(proven<P>::value), P::info being a static
// constexpr program_info, makes a compile error of each rule of core/proof_rules.hpp that fails, with the
// names and numbers:
//     In instantiation of 'struct monolayer::refused::arrivals<in_kind<0, text<8>{"slice_a"}>,
//         in_stage<0, text<4>{"q_a"}>, of_slot<0, text<3>{"qa"}>, arrival_units<128, 120> >':
//     error: static assertion failed: arrivals: the tiles of a part must bring exactly slot.units ...
//
// A program that passes cannot deadlock, overwrite what is still to be read, or count an arrival for another
// use, in any span of its kinds. The proofs stand on what the pipeline does:
//   - A block walks the stages in the listed order, and all blocks are co-resident: a wait for something
//     listed before, or of an earlier layer, ends.
//   - A tile arrives after all that it reads was read. Every tile of a stage that is not routed runs in every
//     layer and waits, whatever rows are live. A launch without a live row does nothing.
//   - The owner of tile 0 of a routed stage waits for what the stage reads before it arrives for dead rows.
//   - A tile polls every word of the live rows that it needs of a tagged slot (reach all: every word of the
//     slot), and from every rank where the scope is peers.
//   - A block that reads for a routed stage owns a tile of a later stage that stands in for it: a launch has
//     at most grid_limit(info) blocks.
//   - All ranks run the same kinds with the same live rows. A launch begins after its GPU ended the one
//   before.
//
// Passes for a device skip the proofs (the host pass of the same file has them), as does
// MONOLAYER_SKIP_PROOFS.
#pragma once

#include "monolayer/core/proof_rules.hpp"

namespace monolayer {

namespace refused {  // what the errors are made of

template <int N>
struct text {
  char chars[N];
};
template <int Index, text Name>
struct in_kind;
template <int Index, text Name>
struct in_stage;
template <int Index, text Name>
struct of_slot;

// Rule `name` failed: refused::name<in_kind<..>, in_stage<..>, of_slot<..>, numbers<seen, wanted>>.
#define MONOLAYER_RULE(name, numbers, words)     \
  template <long long Seen, long long Wanted>    \
  struct numbers;                                \
  template <class... Where>                      \
  struct name {                                  \
    static_assert(sizeof...(Where) == 0, words); \
    static constexpr bool value = false;         \
  };                                             \
  template <long long Seen, long long Wanted>    \
  struct name##_numbers {                        \
    using type = numbers<Seen, Wanted>;          \
  };                                             \
  inline constexpr const char* name##_words = words;
// clang-format off
MONOLAYER_RULE(limits, number_and_limit,
               "limits: a count of the program is outside what the tables or the kernels hold")
MONOLAYER_RULE(names, name_and_twin,
               "names: every kind, every slot, and every stage of a kind needs a name of its own")
MONOLAYER_RULE(known_slots, slot_and_count,
               "known_slots: a stage reads or writes a slot that the table does not have")
MONOLAYER_RULE(slot_shape, number_and_wanted,
               "slot_shape: a slot has 1 to 4 buffers, and parts that divide its columns")
MONOLAYER_RULE(token_shape, columns_and_wanted,
               "token_shape: a token is counted and has no columns; every other slot has columns")
MONOLAYER_RULE(stage_shape, tiles_and_divisor,
               "stage_shape: tiles and units_per_tile are positive; a routed stage has a multiple "
               "of max_rows * top_k tiles, one unit a tile, and is not by_group; a stage by_row has a "
               "multiple of max_rows tiles")
MONOLAYER_RULE(one_writer, writers, "one_writer: two stages of a kind write the same slot")
MONOLAYER_RULE(writer_first, writer_and_reader,
               "writer_first: a stage reads a slot that no stage before it in its kind writes")
MONOLAYER_RULE(earlier_writer, writers,
               "earlier_writer: no kind writes a slot that is read as an earlier layer's")
MONOLAYER_RULE(parts_divide, tiles_and_parts,
               "parts_divide: a slot's parts must divide the tiles of its writer (routed: one part) "
               "and of every stage that reads its own part; a routed stage reads all parts")
MONOLAYER_RULE(arrivals, arrival_units,
               "arrivals: the tiles of a part must bring exactly slot.units arrival units; tagged "
               "slots have none")
MONOLAYER_RULE(coverage, columns_covered,
               "coverage: the writer's tiles must cover the columns of the slot exactly once")
MONOLAYER_RULE(whole_words, tile_and_word_bytes,
               "whole_words: a tile of a tagged slot must write whole words of 4 bytes")
MONOLAYER_RULE(group_scope, number_and_wanted,
               "group_scope: who writes or reads a group slot must be by_group, read its own part, "
               "and have tiles and parts that agree")
MONOLAYER_RULE(peers_tagged, transport_and_tagged, "peers_tagged: between GPUs only tagged words travel")
MONOLAYER_RULE(mailbox_buffers, buffers, "mailbox_buffers: a slot between GPUs needs two buffers")
MONOLAYER_RULE(mailbox_read, readers,
               "mailbox_read: a kind that writes a slot between GPUs must read it in the same layer")
MONOLAYER_RULE(mailbox_upstream, next_write_in_kind,
               "mailbox_upstream: every tile that reads a reduction must be an ancestor of every "
               "word of the next one")
MONOLAYER_RULE(reuse, buffers,
               "reuse: a reader of the slot is not upstream of the write that takes its buffer "
               "again (wanted 0: no number of buffers helps)")
MONOLAYER_RULE(use_order, next_write_in_kind,
               "use_order: units of the slot's next use can arrive before all units of this one")
MONOLAYER_RULE(fan_out, bytes_and_limit,
               "fan_out: bytes x readers of a slot exceed fan_out_limit at max_rows: fold the slot "
               "first, or raise the limit")
MONOLAYER_RULE(tagged_size, bytes_and_limit,
               "tagged_size: a tagged slot of more than 64 KiB should be counted")
// clang-format on
#undef MONOLAYER_RULE

}  // namespace refused

constexpr const char* rule_words(rule r) {
  switch (r) {
#define MONOLAYER_X(name) \
  case rule::name:        \
    return refused::name##_words;
    MONOLAYER_RULES(MONOLAYER_X)
#undef MONOLAYER_X
    case rule::none:
      break;
  }
  return "";
}

namespace proofs {

constexpr const char* name_or_nothing(const char* name) { return name == nullptr ? "" : name; }
constexpr const char* kind_name(const program_info& p, const defect& d) {
  return d.kind < 0 ? "" : name_or_nothing(p.kinds[d.kind].name);
}
constexpr const char* stage_name(const program_info& p, const defect& d) {
  return d.stage < 0 ? "" : name_or_nothing(p.kinds[d.kind].stages[d.stage].name);
}
constexpr const char* slot_name(const program_info& p, const defect& d) {
  return d.slot < 0 ? "" : name_or_nothing(p.slots[d.slot].name);
}
constexpr int length_with_end(const char* s) {
  int n = 0;
  while (s[n] != 0) ++n;
  return n + 1;
}
template <int N>
constexpr refused::text<N> copied(const char* s) {
  refused::text<N> t{};
  for (int i = 0; i < N; ++i) t.chars[i] = s[i];
  return t;
}

/// One constant evaluation a rule: clang and nvcc limit the steps of each.
template <class P, rule R>
inline constexpr defect defect_of = find_defect(P::info, R);

template <class P, rule R>
constexpr bool holds() {
  constexpr defect d = defect_of<P, R>;
  if constexpr (!d) {
    return true;
  } else {
    constexpr const char* kind = kind_name(P::info, d);
    constexpr const char* stage = stage_name(P::info, d);
    constexpr const char* slot = slot_name(P::info, d);
    using k = refused::in_kind<d.kind, copied<length_with_end(kind)>(kind)>;
    using st = refused::in_stage<d.stage, copied<length_with_end(stage)>(stage)>;
    using s = refused::of_slot<d.slot, copied<length_with_end(slot)>(slot)>;
#define MONOLAYER_X(name)        \
  if constexpr (R == rule::name) \
    return refused::name<k, st, s, typename refused::name##_numbers<d.seen, d.wanted>::type>::value;
    MONOLAYER_RULES(MONOLAYER_X)
#undef MONOLAYER_X
    return false;
  }
}

#define MONOLAYER_X(name) good = holds<P, rule::name>() && good;
template <class P>
constexpr bool shapes_hold() {
  bool good = true;
  MONOLAYER_SHAPE_RULES(MONOLAYER_X)
  return good;
}
template <class P>
constexpr bool wiring_holds() {
  bool good = true;
  MONOLAYER_WIRING_RULES(MONOLAYER_X)
  return good;
}
template <class P>
constexpr bool order_holds() {
  bool good = true;
  MONOLAYER_ORDER_RULES(MONOLAYER_X)
  return good;
}
#undef MONOLAYER_X

template <class P>
constexpr bool all_hold() {
#if defined(MONOLAYER_SKIP_PROOFS) || defined(__CUDA_ARCH__) || defined(__HIP_DEVICE_COMPILE__)
  return true;
#else
  if constexpr (!shapes_hold<P>()) {
    return false;
  } else if constexpr (!wiring_holds<P>()) {
    return false;
  } else {
    return order_holds<P>();
  }
#endif
}

}  // namespace proofs

/// Whether P::info obeys every rule; each one that fails is an error with its own words.
template <class P>
struct proven {
  static constexpr bool value = proofs::all_hold<P>();
};

/// A block's LDS: lds_budget<need, have>::value.
template <long long Need, long long Have>
struct lds_budget {
  static_assert(Need <= Have, "lds_budget: a block needs more LDS than the target has");
  static constexpr bool value = Need <= Have;
};

}  // namespace monolayer
