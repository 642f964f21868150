// A layer of one's own from the library's parts, on the simulator: see docs/custom_layer.md, which goes
// through the files in custom_layer/. Decodes a few steps of several requests on two simulated machines, in
// two grids each, and compares every row with double precision and with the bits of the other grid.
//   ./custom_layer [seed]      exit status 0 if all agree
#include <cstdio>
#include <cstdlib>

#include "custom_layer/simulated.hpp"
#include "monolayer/host/describe.hpp"

namespace {

using namespace custom_layer;
using C = small_config;
using P = program<C>;

constexpr int requests = 3, steps = 6;
// Of what the layers add, against double precision rounded in the same places. Once a sum falls on the other side of such a
// rounding, values after it differ by a unit in their last place: 8e-3 if all did.
constexpr double error_limit = 6e-3;

/// Requests start one after another, and change rows from step to step.
std::vector<token_row> rows_of_step(int step) {
  std::vector<token_row> rows(C::max_rows, {-1, 0});
  for (int r = 0; r < requests; ++r)
    if (step >= r) rows[std::size_t((r + step) % C::max_rows)] = {r, step - r};
  return rows;
}

struct decoded {
  std::vector<std::vector<u16>> out;  // by step: [max_rows][hidden]
  double error = 0;
  bool good = true;
};

template <class T>
decoded decode(const model<C>& m, const std::vector<std::vector<u16>>& inputs, int blocks, u64 seed) {
  decoded all;
  simulated<T, C> machine(m, requests, blocks, seed);
  std::vector<reference<C>> expected(requests, reference<C>{m});
  double wrong = 0, added = 0;
  int values = 0, other_bits = 0;
  for (int step = 0; step < steps && all.good; ++step) {
    const std::vector<token_row> rows = rows_of_step(step);
    const std::vector<u16>& in = inputs[std::size_t(step)];
    if (const sim::report r = machine.step(rows, in); !r.ok) {
      std::printf("%s: step %d: %s\n", T::name, step, r.text.c_str());
      all.good = false;
    }
    for (int r = 1; r < C::ranks; ++r)
      all.good = all.good && std::equal(machine.output(0), machine.output(0) + C::max_rows * C::hidden,
                                        machine.output(r));
    all.out.emplace_back(machine.output(0), machine.output(0) + C::max_rows * C::hidden);
    for (std::size_t row = 0; row < rows.size(); ++row) {
      if (rows[row].request < 0) continue;
      std::vector<double> h(C::hidden);
      for (std::size_t c = 0; c < h.size(); ++c) h[c] = value(in[row * C::hidden + c]);
      const std::vector<double> want = expected[std::size_t(rows[row].request)].token(h);
      for (std::size_t c = 0; c < h.size(); ++c) {
        const double got = value(all.out.back()[row * C::hidden + c]);
        wrong += (got - want[c]) * (got - want[c]);
        added += (want[c] - h[c]) * (want[c] - h[c]);
        ++values;
        other_bits += got != want[c];
      }
    }
  }
  all.error = std::sqrt(wrong / added);
  long limited = 0;
  for (const reference<C>& r : expected) limited += r.limited;
  all.good = all.good && all.error < error_limit && limited > 0;
  std::printf(
      "%s, %d blocks a rank: %d of %d values have other bits than double precision gives, error %.1e (limit "
      "%.0e); "
      "%ld activations limited%s\n",
      T::name, blocks, other_bits, values, all.error, error_limit, limited, all.good ? "" : ": WRONG");
  return all;
}

template <class T>
bool check(const model<C>& m, const std::vector<std::vector<u16>>& inputs, u64 seed) {
  using sizes = plan<T, P>;
  std::printf(
      "\n%s: scratch %llu bytes, mailbox %llu, LDS %u with %d rows and 2 ring slots; %u ring slots at 1 "
      "row\n",
      T::name, static_cast<unsigned long long>(sizes::slots_bytes + sizes::arrivals_bytes),
      static_cast<unsigned long long>(sizes::mailbox_bytes), sizes::lds_needed, sizes::max_rows,
      sizes::ring_slots(1));
  const decoded small = decode<T>(m, inputs, 2, seed), large = decode<T>(m, inputs, 5, seed + 1);
  const bool same = small.out == large.out;
  std::printf("%s: %s bits in both grids\n", T::name, same ? "the same" : "OTHER");
  return small.good && large.good && same;
}

}  // namespace

int main(int argc, char** argv) {
  const u64 seed = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1;
  std::printf("%s", describe(P::info).c_str());
  model<C> m({P::conv, P::mlp, P::conv, P::mlp}, seed);
  std::vector<std::vector<u16>> inputs;
  for (int i = 0; i < steps; ++i) inputs.push_back(m.vector(C::max_rows * C::hidden, 1, 0));
  const bool wide = check<sim::gfx950>(m, inputs, seed), narrow = check<sim::sm90>(m, inputs, seed);
  std::printf("\ncustom_layer: %s\n", wide && narrow ? "all agree" : "FAILED");
  return wide && narrow ? 0 : 1;
}
