// A rig's layers, launched one at a time, against the float64 reference on the same inputs.
#pragma once

#include <cmath>

#include "slices/picks.hpp"
#include "slices/rig.hpp"

namespace monolayer::test {

struct accuracy {
  double worst_a = 0, worst_b = 0;  // ||out - ref|| / ||ref||
  int rows = 0, sure_rows = 0;      // rows routed; those whose margin decides the picks
};

/// Runs every layer as a launch of its own and compares it; requires the bounds of the project.
template <class R>
accuracy against_reference(const R& r, const setup& how, double bound = 2e-3) {
  typename R::live l(r, how);
  const auto& g = r.source.g;
  constexpr int ranks = R::ranks;
  accuracy worst;
  std::vector<int> at;  // live rows
  for (std::size_t i = 0; i < l.how.rows.size(); ++i)
    if (l.how.rows[i] >= 0) at.push_back(int(i));
  auto live_rows = [&](const u16* bits, int columns) {
    reference::batch b(int(at.size()), columns);
    for (std::size_t i = 0; i < at.size(); ++i)
      for (int c = 0; c < columns; ++c) b(int(i), c) = reference::bf16_decode(bits[std::size_t(at[i]) * columns + c]);
    return b;
  };
  bool written = false;
  for (std::size_t i = 0; i < r.source.layers.size(); ++i) {
    const auto& layer = r.source.layers[i];
    std::vector<u16> stream(std::size_t(g.hidden) * l.how.rows.size());
    l.backend.read(stream.data(), written ? l.s.of[0].output : l.s.of[0].input, stream.size() * 2);
    const reference::batch input = live_rows(stream.data(), g.hidden);
    l.launch({int(i), 1});
    const outcome o = l.collect(l.backend.run());
    MUST_RUN(o);
    if (layer.kind == A) {
      const auto ref = reference::slice_a(g, *layer.a, input);
      reference::batch q(int(at.size()), g.q_rows());
      const int columns = g.q_rows() / ranks;
      for (int rank = 0; rank < ranks; ++rank) {
        const reference::batch part = live_rows(o.q[rank][i].data(), columns);
        for (int row = 0; row < q.rows; ++row) std::copy_n(part.row(row), columns, q.row(row) + rank * columns);
      }
      const double error = reference::relative_l2(q, ref.q);
      CHECK(error <= bound);
      worst.worst_a = std::max(worst.worst_a, error);
    } else {
      reference::pick_table picks;
      for (int row : at)
        picks.push_back(picks_of(o.logits[0].data() + std::size_t(row) * g.experts, layer.b->bias, g.experts, g.top_k));
      for (int rank = 1; rank < ranks; ++rank) CHECK(o.logits[rank] == o.logits[0]);
      const auto own = reference::slice_b(g, *layer.b, input, ranks);
      for (std::size_t row = 0; row < at.size(); ++row) {
        ++worst.rows;
        if (own.margin[row] <= 1e-3) continue;
        ++worst.sure_rows;
        auto seen = picks[row], wanted = own.picks[row];
        std::sort(seen.begin(), seen.end()), std::sort(wanted.begin(), wanted.end());
        CHECK(seen == wanted);
      }
      const auto ref = reference::slice_b(g, *layer.b, input, ranks, &picks);
      const double error = reference::relative_l2(live_rows(o.out[0].data(), g.hidden), ref.out);
      CHECK(error <= bound);
      worst.worst_b = std::max(worst.worst_b, error);
      for (int rank = 1; rank < ranks; ++rank) CHECK(o.out[rank] == o.out[0]);
      written = true;
    }
  }
  return worst;
}

}  // namespace monolayer::test
