// One run of a model in the simulator, described by a setup: which rows, which spans, which machine. Rows carry ids, so
// the bits of a row can be compared between runs that place it elsewhere or among other rows.
#pragma once

#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <numeric>
#include <sstream>

#include "slices/sim_backend.hpp"

namespace monolayer::test {

/// The smallest layer that still has several tiles, experts, heads and waves at work: for tests over many seeds.
template <int TP>
struct tiny_slices : small_slices<TP> {
  static constexpr int hidden = 256;
  static constexpr int q_lora = 128;
  static constexpr int heads = 4 / TP;
  static constexpr int head_dim = 32;
  static constexpr int top_k = 2;
  static constexpr int expert_width = 64;
  static constexpr int reduce_columns = 16;
};
template <int TP>
struct fp8_channel_slices : small_slices<TP> {
  using attention_weights = fp8_channel;
  using expert_weights = fp8_channel;
};

struct span {
  int first, count;
};

struct setup {
  std::vector<int> rows;    // ids of the rows, -1: a dead row; empty: all max_rows rows
  std::vector<span> spans;  // the launches; empty: one over all layers
  int blocks = 3, groups = 1;
  int machine_groups = 0;  // 0: groups
  u32 ring_limit = 0;
  u64 seed = 1;
  u64 epoch = 0;  // of the newest layer before the first launch
  int repeats = 1;
  bool expect_readers = true;  // an own mailbox word must be read before it is overwritten
  std::vector<sim::fault> faults = {};
  bool deadlock_is_error = true;
  u64 local_deadline_ns = 200'000'000'000, peer_deadline_ns = 200'000'000'000;
};

inline setup with_rows(std::vector<int> rows) {
  setup s;
  s.rows = std::move(rows);
  return s;
}

struct outcome {
  sim::report report;
  std::vector<int> rows;
  std::vector<std::vector<u16>> out;             // by rank: [max_rows][hidden]
  std::vector<std::vector<std::vector<u16>>> q;  // by rank and layer: [max_rows][q_columns], empty for slice B
  std::vector<std::vector<float>> logits;        // by rank: [max_rows][experts], of the newest slice B
  std::vector<device_state> states;
};

inline constexpr u16 poison = 0x7fc1;

template <class T, class C, class Running = T, class Program = slices<C>>
struct rig {
  using program = slices<C>;
  using session_type = session<sim_backend, T, C, Running, Program>;
  static constexpr int ranks = C::ranks;

  model<T, C> source;
  reference::batch inputs;  // by row id

  explicit rig(const std::vector<u64>& kinds, u64 seed = 1, reference::layer_b_options how_b = {},
               reference::layer_a_options how_a = {}, double size = 1,
               const std::vector<int>& experts = {}, const std::function<void(reference::layer_b&)>& plant = {})
      : source(kinds, seed, how_b, how_a, experts, plant), inputs(reference::random_activations(C::max_rows, C::hidden, seed + 77, size)) {}

  /// The machine of a setup with everything allocated, for tests that launch by hand.
  struct live {
    const rig& of;
    setup how;
    sim_backend backend;
    session_type s;

    live(const rig& r, const setup& h) : of(r), how(h), backend(options_of(h)), s(backend, r.source) {
      if (how.rows.empty()) how.rows = all_rows();
      if (how.spans.empty()) how.spans = {{0, int(r.source.layers.size())}};
      if (how.expect_readers)
        for (int i = 0; i < ranks; ++i) backend.machine.expect_readers(s.of[i].memory.mailbox[i], s.of[i].memory.mailbox_bytes, 1);
      for (int i = 0; i < ranks; ++i) static_cast<device_state*>(s.of[i].memory.state[i])->epoch = how.epoch;
      for (const sim::fault& f : how.faults) backend.machine.inject(f);
      set_rows(how.rows);
    }
    void set_rows(const std::vector<int>& rows) {
      how.rows = rows;
      std::vector<u16> input(std::size_t(C::max_rows) * C::hidden, 0x7fc2);  // dead rows hold NaN
      std::vector<long long> slots(C::max_rows, -1);
      const std::vector<u16> bits = reference::to_bf16(of.inputs);
      for (std::size_t i = 0; i < rows.size(); ++i) {
        if (rows[i] < 0) continue;
        slots[i] = 100 + rows[i];
        std::copy_n(bits.begin() + std::ptrdiff_t(rows[i]) * C::hidden, C::hidden,
                    input.begin() + std::ptrdiff_t(i) * C::hidden);
      }
      s.set_rows(input, slots);
    }
    run_options options() const {
      return {how.blocks, how.groups, how.ring_limit, how.local_deadline_ns, how.peer_deadline_ns};
    }
    void launch(const span& part) { s.launch(int(how.rows.size()), part.first, part.count, options()); }
    /// Launches the spans and waits.
    sim::report run() {
      for (const span& part : how.spans) launch(part);
      return backend.run();
    }
    outcome collect(sim::report r) const {
      outcome o;
      o.report = std::move(r);
      o.rows = how.rows;
      for (int i = 0; i < ranks; ++i) {
        o.out.push_back(s.output(i));
        o.states.push_back(s.state(i));
        o.q.emplace_back();
        for (std::size_t l = 0; l < of.source.layers.size(); ++l)
          o.q.back().push_back(s.of[i].q[l] ? s.q(i, int(l)) : std::vector<u16>{});
        o.logits.push_back(logits(i));
      }
      return o;
    }
    /// Logits, as the sums of what the slot holds for each range of k.
    std::vector<float> logits(int rank) const {
      using memory = slot_layout<Program, Running::arrivals>;
      std::vector<float> v(std::size_t(C::max_rows) * C::experts);
      const u8* at = static_cast<const u8*>(s.of[rank].memory.slots) + memory::payload_offset(program::logits);
      for (int row = 0; row < C::max_rows; ++row)
        for (int e = 0; e < C::router_splits * C::experts; ++e, at += 8) {
          float part;
          std::memcpy(&part, at, 4);
          v[std::size_t(row) * C::experts + std::size_t(e % C::experts)] += part;
        }
      return v;
    }
    device_state& state(int rank) { return *static_cast<device_state*>(s.of[rank].memory.state[rank]); }

   private:
    static sim::options options_of(const setup& h) {
      sim::options o;
      o.ranks = ranks;
      o.seed = h.seed;
      o.groups = h.machine_groups ? h.machine_groups : h.groups;
      o.deadlock_is_error = h.deadlock_is_error;
      o.stage_name = [](u32, u32 stage) { return "stage " + std::to_string(stage); };
      return o;
    }
  };

  static std::vector<int> all_rows() {
    std::vector<int> v(C::max_rows);
    std::iota(v.begin(), v.end(), 0);
    return v;
  }
  outcome run(const setup& how) const {
    live l(*this, how);
    sim::report r;
    for (int i = 0; i < how.repeats; ++i) {
      if (i != 0) l.set_rows(l.how.rows);
      r = l.run();
      if (!r.ok) break;
    }
    return l.collect(std::move(r));
  }

  /// Empty if the live rows of `o` have the bits that `expected` has for their ids (on every rank), and its other rows
  /// were left alone. `layers`: whose q to compare; the stream's output counts where a slice B ran.
  std::string difference(const outcome& o, const outcome& expected, bool stream = true) const {
    std::ostringstream text;
    for (int r = 0; r < ranks; ++r) {
      for (int row = 0; row < C::max_rows; ++row) {
        const int id = row < int(o.rows.size()) ? o.rows[std::size_t(row)] : -1;
        auto compare = [&](const std::vector<u16>& got, const std::vector<u16>& want, int columns, const char* what) {
          for (int c = 0; c < columns; ++c) {
            const u16 g = got[std::size_t(row) * columns + c];
            u16 w = poison;
            if (id >= 0) {
              const auto at = std::find(expected.rows.begin(), expected.rows.end(), id);
              if (at == expected.rows.end()) throw std::runtime_error("no such row was expected");
              w = want[std::size_t(at - expected.rows.begin()) * columns + c];
            }
            if (g == w) continue;
            text << what << " of rank " << r << ", row " << row << " (id " << id << "), column " << c << ": " << std::hex
                 << g << " instead of " << w;
            return false;
          }
          return true;
        };
        if (stream && !compare(o.out[r], expected.out[r], C::hidden, "output")) return text.str();
        for (std::size_t l = 0; l < o.q[r].size(); ++l)
          if (!o.q[r][l].empty() && !compare(o.q[r][l], expected.q[r][l], program::q_columns, "q")) return text.str();
      }
      if (stream && o.out[r] != o.out[0]) return "the ranks' outputs differ";
    }
    return {};
  }
};

#define MUST_RUN(o)                \
  do {                             \
    INFO((o).report.text);         \
    REQUIRE((o).report.ok);        \
  } while (false)

inline constexpr u64 A = 0, B = 1;

}  // namespace monolayer::test
