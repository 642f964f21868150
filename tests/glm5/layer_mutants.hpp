// Device code of whole layers with one thing wrong, beyond what slices/mutants.hpp has: the mistakes that
// caches and lists invite.
#pragma once

#include <string_view>

#include "glm5/span_rig.hpp"
#include "slices/mutants.hpp"

namespace monolayer::test {

enum class layer_mutation {
  none,
  row_from_cache,  // attention takes the row that its launch writes from the cache, not from slot own
  key_from_cache,  // scores take the key that its launch writes from the cache
  list_start,      // a list begins one entry late
  list_end,        // a list ends one entry late
  stale_picks,     // a sharing layer attends to the caller's list, not to the picks of its span
  empty_list,      // splits without tokens are divided by their sum, 0
  absent_entry,    // a list entry outside the caches is taken for slot 0
  absent_page,     // a page that the table doesn't name is taken for page 0
};
inline layer_mutation layer_active = layer_mutation::none;

/// P: the program that runs. The kinds of the launch must be told.
template <class Base, class P>
struct layer_mutant : mutant<Base> {
  using plain = mutant<Base>;
  inline static std::vector<u64> kinds;
  inline static u64 cache_slots = 0;

  static u32x2 load8(const void* at) {
    u32x2 v = plain::load8(at);
    const char* stage = layer_active == layer_mutation::row_from_cache   ? "attention"
                        : layer_active == layer_mutation::key_from_cache ? "scores"
                                                                         : nullptr;
    if (stage != nullptr && in(stage) && plain::is(at, "row_slots"))
      v = {{0x7fffffffu, 0}};  // no entry's slot
    return v;
  }
  static u32 load4(const void* at) {
    const u32 v = plain::load4(at);
    switch (layer_active) {
      case layer_mutation::list_start:
        return in("attention") && plain::is(at, "list_starts") ? v + 1 : v;
      case layer_mutation::list_end: {
        // Rows are asked in pairs (start, end) of ascending addresses: the second one is the end.
        if (!in("attention") || !plain::is(at, "list_starts")) return v;
        const void*& start = last_start()[{&self(), Base::lane()}];
        const bool end = start != nullptr && static_cast<const u8*>(at) == static_cast<const u8*>(start) + 4;
        start = end ? nullptr : at;
        return end ? v + 1 : v;
      }
      case layer_mutation::absent_entry:
        return in("attention") && v >= cache_slots && plain::is(at, "list") ? 0 : v;
      case layer_mutation::absent_page:
        return in("scores") && int(v) < 0 && plain::is(at, "block_table") ? 0 : v;
      default:
        return v;
    }
  }
  static u32x4 lds_load16(lds_address at) {
    u32x4 v = plain::lds_load16(at);
    if (layer_active == layer_mutation::stale_picks &&
        at == lds_layout<layer_mutant, P>::clocks + 16 * P::picks && in("attention"))
      v.v[2] = 0;  // "not in this span"
    return v;
  }
  static u32 slot_load4(const void* at) {
    const u32 v = plain::slot_load4(at);
    if (layer_active == layer_mutation::empty_list && in("v_up"))
      sums()[&self()][Base::lane()] = bits_to_float(v);
    return v;
  }
  static void lds_store4(lds_address at, u32 v) {
    if (layer_active == layer_mutation::empty_list && in("v_up") && v == 0) {
      // A lane has just loaded its split's sum; the weight that it stores is this sum's share of the total.
      float total = 0;
      for (const auto& [lane, sum] : sums()[&self()]) total += sum;
      if (total == 0) v = 0x7fc00000u;  // 0 / 0
    }
    plain::lds_store4(at, v);
  }
  static void reset(mutation now, layer_mutation layers_now, u64 epoch) {
    plain::reset(now, epoch);
    layer_active = layers_now;
    sums().clear(), last_start().clear();
  }

 private:
  static const sim::detail::wave& self() { return *sim::detail::current.of; }
  static bool in(std::string_view stage) {
    const auto& w = self();
    return w.layer < kinds.size() && P::info.kinds[kinds[w.layer]].stages[w.stage].name == stage;
  }
  static auto& sums() {
    static std::map<const void*, std::map<int, float>> of_wave;
    return of_wave;
  }
  static auto& last_start() {
    static std::map<std::pair<const void*, int>, const void*> of_lane;
    return of_lane;
  }
};

}  // namespace monolayer::test
