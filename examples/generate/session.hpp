// Whole layers of a checkpoint on a backend: memory of all ranks, packed weights, one request's paged caches,
// launches. A backend (sim_backend.hpp, gpu_backend.hpp) allocates, copies and launches, and keeps its first
// error in `why`.
#pragma once

#include <algorithm>
#include <numeric>

#include "checkpoint/host_model.hpp"
#include "generate/configs.hpp"
#include "generate/runner.hpp"
#include "generate/stage_weights.hpp"

namespace monolayer::examples {

enum class memory_use { constant, output, slots, mailbox, state };

template <class Backend, class T, class C>
class session : public runner {
 public:
  static result<std::unique_ptr<runner>> make(const glm5_checkpoint& checkpoint, const run_options& how) {
    auto made = std::unique_ptr<session>(new session(checkpoint, how));
    if (status s = made->allocate(checkpoint); !s) return s;
    return std::unique_ptr<runner>(std::move(made));
  }

  result<std::vector<u16>> run(int first, std::span<const u16> rows) override {
    return run(first, rows, kinds_);
  }

  result<std::vector<layer_picks>> picks(int position, std::span<const u16> row) override {
    std::vector<layer_picks> all(kinds_.size());
    for (std::size_t i = 0; i < kinds_.size(); ++i) {
      const bool routed = !host::is_dense(kinds_[i]), indexer = host::has_indexer(kinds_[i]);
      if (!routed && !indexer) continue;
      // The slots hold what the newest layer chose.
      if (auto out = run(position, row, std::span(kinds_).first(i + 1)); !out) return out.why();
      if (indexer) all[i].tokens = picked_tokens(position);
      if (routed) all[i].experts = chosen_experts(biases_[i]);
    }
    if (!backend_.why) return backend_.why;
    return all;
  }

  std::vector<stage_line> stages() const override {
    std::vector<stage_line> lines;
    for (u64 kind : kinds_)
      for (int i = 0; i < P::info.kinds[kind].stage_count; ++i) {
        const stage_info& stage = P::info.kinds[kind].stages[i];
        auto line = std::find_if(lines.begin(), lines.end(),
                                 [&](const stage_line& l) { return l.name == stage.name; });
        if (line == lines.end()) line = lines.insert(lines.end(), stage_line{.name = stage.name});
        ++line->layers;
        line->tiles = std::max(line->tiles, stage.tiles);
        line->routed = stage.routed;
        line->weight_bytes += stage_weight_bytes<T, C>(kind, stage);
        line->reads = 0;
        for (const slot_read& r : stage.reads) line->reads += r.slot >= 0;
        line->waits = backend_.waits(stage.name);
      }
    return lines;
  }
  std::string text() const override {
    return std::to_string(C::ranks) + (C::ranks == 1 ? " rank of " : " ranks of ") + std::to_string(blocks_) +
           (blocks_ == 1 ? " block on " : " blocks on ") + backend_.text();
  }
  bool counts_waits() const override { return Backend::counts_waits; }

 private:
  using P = glm5<C>;
  using host = glm5_host<T, C>;
  using sizes = plan<T, P>;
  using kv = typename C::kv_cache;
  using keys = typename C::index_cache;
  static constexpr std::size_t hidden = C::hidden, max_rows = C::max_rows;
  static constexpr u32 page_tokens = 64;  // of a page of the caches
  static_assert(page_tokens % keys::block_size_multiple == 0);

  struct rank_data {
    rank_memory memory;
    layer_entry* layers = nullptr;
    u16 *input = nullptr, *output = nullptr;
    long long *row_slots = nullptr, *positions = nullptr;
    int *block_table = nullptr, *requests = nullptr;
    float* rope = nullptr;
  };

  session(const glm5_checkpoint& checkpoint, const run_options& how)
      : backend_(C::ranks, how),
        tokens_(how.tokens),
        pages_(int(align_up(u64(how.tokens), page_tokens) / page_tokens)) {
    const glm5_model_config& c = checkpoint.config();
    for (std::size_t i = 0; i < std::size_t(c.layers); ++i)
      kinds_.push_back(c.moe[i] ? (c.indexer[i] ? P::moe : P::moe_listed)
                                : (c.indexer[i] ? P::dense : P::dense_listed));
    // An engine's pages lie anywhere; these lie backwards, with one that is nobody's in front.
    for (int page = pages_; page > 0; --page) table_.push_back(page);
  }

  result<std::vector<u16>> run(int first, std::span<const u16> rows, std::span<const u64> kinds) {
    const std::size_t count = rows.size() / hidden;
    std::vector<long long> positions(count), slots(count);
    std::iota(positions.begin(), positions.end(), first);
    for (std::size_t i = 0; i < count; ++i) slots[i] = slot_of(int(positions[i]));
    for (rank_data& d : of_) {
      backend_.write(d.input, rows.data(), rows.size_bytes());
      backend_.write(d.positions, positions.data(), count * 8);
      backend_.write(d.row_slots, slots.data(), count * 8);
    }
    for (int r = 0; r < C::ranks && backend_.why; ++r) {
      const rank_data& d = of_[r];
      span_arguments a;
      a.layers = d.layers;
      a.kinds = kinds;
      a.input = d.input;
      a.output = d.output;
      a.row_slots = d.row_slots;
      a.batch = batch(d);
      a.rows = int(count);
      a.rank = r;
      a.blocks = blocks_;
      a.local_deadline_ns = Backend::local_deadline_ns;
      a.peer_deadline_ns = Backend::peer_deadline_ns;
      const auto params = bind<T, P>(d.memory, a);
      if (!params) return params.why();
      backend_.template launch<T, P>(params.value(), blocks_);
    }
    if (backend_.why) backend_.finish(kinds);
    if (!backend_.why) return backend_.why;
    return collect(rows.size());
  }

  // ---- what row 0 of the newest launch left in slots of rank 0
  std::vector<u32> words(int slot, std::size_t count) {
    std::vector<u32> w(count);
    using memory = slot_layout<P, T::arrivals>;
    backend_.read(w.data(), static_cast<u8*>(of_[0].memory.slots) + memory::payload_offset(slot), count * 4);
    return w;
  }
  std::vector<int> picked_tokens(int position) {
    const std::vector<u32> row = words(P::picks, P::picks_columns);
    std::vector<int> tokens;
    for (int t = 0; t <= position; ++t)
      if (std::find(row.begin(), row.begin() + row[C::index_topk], u32(slot_of(t))) !=
          row.begin() + row[C::index_topk])
        tokens.push_back(t);
    return tokens;
  }
  std::vector<int> chosen_experts(const std::vector<float>& bias) {
    const std::vector<u32> row =
        words(P::logits, 2 * C::router_splits * P::padded_experts);  // a value, its tag
    std::vector<int> order(C::experts);
    std::vector<u32> key(C::experts);
    for (int e = 0; e < C::experts; ++e) {
      float logit = 0;
      for (int split = 0; split < C::router_splits; ++split)
        logit += bits_to_float(row[std::size_t(2 * (split * P::padded_experts + e))]);
      order[std::size_t(e)] = e;
      key[std::size_t(e)] = P::router_key(sigmoid(logit), bias[std::size_t(e)]);
    }
    std::stable_sort(order.begin(), order.end(),
                     [&](int a, int b) { return key[std::size_t(a)] > key[std::size_t(b)]; });
    order.resize(C::top_k);
    std::sort(order.begin(), order.end());
    return order;
  }

  static constexpr u64 kv_page = page_tokens * kv::bytes;
  static constexpr u64 key_page = align_up(keys::page_bytes(page_tokens), keys::alignment);
  long long slot_of(int token) const {
    return (long long)(table_[std::size_t(token) / page_tokens]) * page_tokens + token % int(page_tokens);
  }
  batch_view batch(const rank_data& d) const {
    return {.positions = d.positions,
            .block_table = d.block_table,
            .block_table_stride = pages_,
            .requests = d.requests,
            .list_starts = nullptr,
            .list = nullptr,
            .rope = d.rope,
            .rope_positions = u64(tokens_),
            .cache_slots = u64(pages_ + 1) * page_tokens,
            .kv_block_stride = kv_page,
            .kv_row_stride = kv::bytes,
            .index_block_stride = key_page,
            .block_size = page_tokens,
            .reserved = 0};
  }

  /// All ranks have computed the same bits, or something is wrong.
  result<std::vector<u16>> collect(std::size_t values) {
    std::vector<u16> out(values), other(values);
    for (int r = 0; r < C::ranks; ++r) {
      device_state state;
      backend_.read(&state, of_[r].memory.state[r], sizeof state);
      backend_.read(r == 0 ? out.data() : other.data(), of_[r].output, values * 2);
      const std::string rank = "rank " + std::to_string(r);
      if (!backend_.why) return backend_.why;
      if (const failure_record& f = state.failed; f.word != 0)
        return error(error_code::device_failure, rank,
                     "failure " + std::to_string(f.word) + " in layer " + std::to_string(f.layer) +
                         ", stage " + std::to_string(f.stage) + ", tile " + std::to_string(f.tile) +
                         ", slot " + std::to_string(f.slot),
                     "a launch that ends");
      if (state.bad_entries != 0)
        return error(error_code::bad_value, rank, std::to_string(state.bad_entries) + " entries left out",
                     "none");
      if (r != 0 && other != out)
        return error(error_code::mismatch, rank, "other bits than rank 0's", "the same bits on all ranks");
    }
    return out;
  }

  template <class V>
  V* put(int rank, const V* data, std::size_t count, const char* name,
         memory_use use = memory_use::constant) {
    void* at = backend_.allocate(rank, count * sizeof(V), name, use);
    if (data != nullptr && at != nullptr) backend_.write(at, data, count * sizeof(V));
    return static_cast<V*>(at);
  }

  status allocate(const glm5_checkpoint& checkpoint) {
    const std::vector<float> rope = rope_table(u64(tokens_), checkpoint.config().rope_theta);
    const std::vector<int> zeros(max_rows);
    std::vector<layer_entry> entries[C::ranks];
    for (int r = 0; r < C::ranks; ++r) {
      rank_data& d = of_[r];
      rank_memory& m = d.memory;
      m.slots = put<u8>(r, nullptr, m.slots_bytes = sizes::slots_bytes, "slots", memory_use::slots);
      m.arrivals =
          put<u8>(r, nullptr, m.arrivals_bytes = sizes::arrivals_bytes, "arrivals", memory_use::state);
      m.mailbox[r] =
          put<u8>(r, nullptr, m.mailbox_bytes = sizes::mailbox_bytes, "mailbox", memory_use::mailbox);
      m.state[r] = put<u8>(r, nullptr, m.state_bytes = sizes::state_bytes, "state", memory_use::state);
      d.input = put<u16>(r, nullptr, max_rows * hidden, "input");
      d.output = put<u16>(r, nullptr, max_rows * hidden, "output", memory_use::output);
      d.row_slots = put<long long>(r, nullptr, max_rows, "row_slots");
      d.positions = put<long long>(r, nullptr, max_rows, "positions");
      d.requests = put(r, zeros.data(), zeros.size(), "requests");  // all rows are of request 0
      d.block_table = put(r, table_.data(), table_.size(), "block_table");
      d.rope = put(r, rope.data(), rope.size(), "rope");
      d.layers = put<layer_entry>(r, nullptr, kinds_.size(), "layers");
    }
    for (int r = 0; r < C::ranks; ++r)
      for (int other = 0; other < C::ranks; ++other) {
        of_[r].memory.mailbox[other] = of_[other].memory.mailbox[other];
        of_[r].memory.state[other] = of_[other].memory.state[other];
      }
    // A layer at a time, so that the host holds one layer's packed weights at most.
    for (int i = 0; i < int(kinds_.size()) && backend_.why; ++i) {
      const auto tensors = checkpoint.layer(i);
      if (!tensors) return tensors.why();
      const float* bias = tensors.value().router_bias;
      biases_.emplace_back(bias, bias == nullptr ? bias : bias + C::experts);
      for (int r = 0; r < C::ranks && backend_.why; ++r) {
        const auto entry = load(kinds_[std::size_t(i)], tensors.value(), r);
        if (!entry) return entry.why();
        entries[r].push_back(entry.value());
      }
    }
    for (int r = 0; r < C::ranks && backend_.why; ++r) {
      backend_.write(of_[r].layers, entries[r].data(), entries[r].size() * sizeof(layer_entry));
      backend_.template prepare<T, P>(of_[r].memory, r);
    }
    if (!backend_.why) return backend_.why;
    const auto blocks = backend_.blocks(C::ranks, sizes::max_blocks);
    if (!blocks) return blocks.why();
    blocks_ = blocks.value();
    return {};
  }

  result<layer_entry> load(u64 kind, const glm5_tensors& tensors, int rank) {
    const auto packed = host::pack_layer(kind, tensors, rank);
    if (!packed) return packed.why();
    bound_glm5<C> b;
    for (int id = 0; id < P::data_count; ++id)
      if (const packed_matrix& m = packed.value()[std::size_t(id)]; !m.bytes.empty())
        b.data[std::size_t(id)] = {m.header, put(rank, m.bytes.data(), m.bytes.size(), host::name_of(id))};
    b.kv_cache = put<u8>(rank, nullptr, kv_page * u64(pages_ + 1), "kv_cache", memory_use::output);
    if (host::has_indexer(kind))
      b.index_cache = put<u8>(rank, nullptr, key_page * u64(pages_ + 1), "index_cache", memory_use::output);
    if (!backend_.why) return backend_.why;
    return bind_glm5<T, C>(kind, b, rank);
  }

  Backend backend_;
  int tokens_, pages_, blocks_ = 0;
  std::vector<int> table_;
  std::vector<u64> kinds_;                  // by layer
  std::vector<std::vector<float>> biases_;  // the same: of routers
  rank_data of_[C::ranks];
};

/// The lines of a list of configs.hpp on one target.
template <class Backend, class T, class... Configs>
void add_models(std::vector<compiled_model>& to, model_list<Configs...>, const char* target) {
  (to.push_back({geometry_of<Configs>(), formats_of<Configs>(), Configs::ranks, Configs::max_rows,
                 Configs::max_context, Configs::kv_cache::element_bytes == 1, target,
                 &session<Backend, T, Configs>::make}),
   ...);
}

}  // namespace monolayer::examples
