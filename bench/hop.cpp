// bench/hop: what one hop costs, from the last work of a stage's tiles to the first of the stage that reads them all.
//
// A launch runs a long chain of small stages in one span. Every block reads the whole payload; a tile writes 16 columns.
// Each chain also runs without its waits: the rest is what waiting for one another costs. All numbers are slopes between
// two lengths of span, so the launch itself is not in them. Results are checked: a chain that only copies must end with a
// known permutation of its start, bit for bit.
//   counted: payload, then one arrival a tile     tagged: 8-byte words of data and epoch
//   direct: a tile reads the 32 bytes a row it needs     copy: every block brings all rows into LDS     norm: and RMSNorm
//   exchange: between ranks on this GPU, each a launch of its own: words pushed to all ranks, polled, summed
//   full: as between two layers: exchange, residual published, waited for by all blocks, staged (copy or norm)
#define MONOLAYER_SKIP_PROOFS  // the chains without waits would not pass
#include "common.hpp"
#include "monolayer/device/inputs.hpp"
#include "monolayer/device/mailbox.hpp"

namespace bench {

using T = device_target;

enum class staging { direct, copy, norm, tagged };
constexpr int links = 4;  // stages a layer

/// Groups of 8 columns move each hop: 5 g + 1 modulo a power-of-two or 3 * 2^n count is a permutation.
MONOLAYER_HOST_DEVICE constexpr int source_group(int group, int groups) { return (group * 5 + 1) % groups; }

// ---- one GPU

template <int Columns, staging S, int From, bool Wait>
struct chain_input {
  static constexpr int number = From + 1;
  template <class Block>
  MONOLAYER_DEVICE static bool prepare(Block& b) {
    if (b.staged == number) return true;
    using view_type = slot_view<T, typename Block::program, From>;
    constexpr bool earlier = From == links - 1;
    const auto view = view_type::use(b, b.template clock<From>().uses - (earlier ? 1 : 0));
    if constexpr (S == staging::tagged) {
      const slot_clock c = b.template clock<From>();
      const u32 tag = earlier ? c.tag : b.tag();
      const bool wait = Wait && (!earlier || c.in_span != 0);
      constexpr int pairs = Columns / 4, at_once = 4;  // a pair: two words, four columns
      const int total = b.live * pairs;
      MONOLAYER_NO_UNROLL
      for (int first = Block::thread(); first < total; first += Block::threads * at_once) {
        auto pair_at = [&](int i) { return first + i * Block::threads < total ? first + i * Block::threads : first; };
        auto address_of = [&](int i) { return view.at(b.row(pair_at(i) / pairs), pair_at(i) % pairs * 2); };
        u32x4 v[at_once];
        if (wait) {
          wait_tagged(b, v, address_of, tag, b.params->local_deadline_ns, {failure::slot_wait, u32(From), 0, 0, 0});
        } else {
          MONOLAYER_UNROLL
          for (int i = 0; i < at_once; ++i) v[i] = T::tagged_load2(address_of(i));
        }
        MONOLAYER_UNROLL
        for (int i = 0; i < at_once; ++i) {
          const lds_address to = Block::staged_row(pair_at(i) / pairs, Columns * 2) + u32(pair_at(i) % pairs) * 8;
          T::lds_store4(to, v[i].v[0]);
          T::lds_store4(to + 4, v[i].v[2]);
        }
      }
    } else if constexpr (S != staging::direct) {
      auto load = [&](int row, int column) { return view.load8(row, column); };
      if constexpr (S == staging::copy)
        stage_rows<Columns, Columns>(b, load);
      else if (!stage_normed_rows<Columns>(b, norm_shape::of<Columns, Columns>(1e-5f), layer_data<T>(b.entry(), 0), load))
        return false;
    }
    if (S != staging::direct && !b.sync()) return false;
    b.staged = number;
    return true;
  }
};

template <int Columns, staging S, int To, bool Wait>
struct chain_stage {
  static constexpr int from = (To + links - 1) % links;
  using input = chain_input<Columns, S, from, Wait>;
  using weights = void;

  template <class Block>
  MONOLAYER_DEVICE static bool run_tile(Block& b, int tile) {
    using program = typename Block::program;
    const auto out = slot_view<T, program, To>::current(b);
    for (int i = Block::thread(); i < b.live * 2; i += Block::threads) {
      const int j = i / 2, row = b.row(j), group = tile * 2 + i % 2;
      const int source = source_group(group, Columns / 8) * 8;
      u32x4 v;
      if constexpr (S == staging::direct) {
        using view_type = slot_view<T, program, from>;
        v = view_type::use(b, b.template clock<from>().uses - (from == links - 1 ? 1 : 0)).load8(row, source);
      } else {
        v = T::lds_load16(Block::staged_row(j, Columns * 2) + u32(source) * 2);
      }
      if constexpr (S == staging::norm && T::activation_shift != 0) {
        constexpr float factor = bits_to_float(u32(127 - T::activation_shift) << 23);
        for (u32& pair : v.v) pair = pack_bf16(mul(low_bf16(pair), factor), mul(high_bf16(pair), factor));
      }
      if constexpr (S == staging::tagged)
        for (int k = 0; k < 4; ++k) out.store_tagged(row, group * 4 + k, bits_to_float(v.v[k]), b.tag());
      else
        out.store8(row, group * 8, v);
    }
    return true;
  }
};

template <int Columns, staging S>
struct chain {
  using codes = code_list<chain_stage<Columns, S, 0, true>, chain_stage<Columns, S, 1, true>,
                          chain_stage<Columns, S, 2, true>, chain_stage<Columns, S, 3, true>,
                          chain_stage<Columns, S, 0, false>, chain_stage<Columns, S, 1, false>,
                          chain_stage<Columns, S, 2, false>, chain_stage<Columns, S, 3, false>>;
  static constexpr program_info make_info() {
    program_info p{};
    p.max_rows = 8;
    p.slot_count = links;
    p.kind_count = 2;
    for (int i = 0; i < links; ++i) {
      slot_info& s = p.slots[i];
      s.type = S == staging::tagged ? element::f32 : element::bf16;
      s.columns = S == staging::tagged ? Columns / 2 : Columns;
      s.transport = S == staging::tagged ? transport::tagged : transport::counted;
      s.units = S == staging::tagged ? 0 : Columns / 16;
    }
    for (int k = 0; k < 2; ++k) {
      p.kinds[k].stage_count = links;
      for (int i = 0; i < links; ++i) {
        stage_info& s = p.kinds[k].stages[i];
        s.code = k * links + i;
        s.tiles = Columns / 16;
        s.tile_columns = S == staging::tagged ? 8 : 16;
        s.writes = i;
        if (k == 0) {
          s.reads[0].slot = (i + links - 1) % links;
          s.reads[0].earlier = i == 0;
        }
      }
    }
    return p;
  }
  static constexpr program_info info = make_info();
  static constexpr int experts = 16;
  static constexpr u32 largest_chunk = 1024;
  static constexpr int fewest_units_per_chunk = 8;
  static constexpr u32 staged_bytes_per_row = Columns * 2 + staged_row_pad;
};

// ---- between ranks

/// Pushes the columns of a tile: from the scratch that this block's reduce of the same tile filled, or from staged rows.
template <int Columns, int Tiles, int Box, int Scratch, class Input>
struct push_stage {
  using input = Input;
  using weights = void;
  template <class Block>
  MONOLAYER_DEVICE static bool run_tile(Block& b, int tile) {
    constexpr int width = Columns / Tiles;
    const auto out = mailbox_view<Block, Box>::current(b);
    for (int i = Block::thread(); i < b.live * width / 2; i += Block::threads) {
      const int j = i / (width / 2), column = tile * width + i % (width / 2) * 2;
      u32 pair;
      if constexpr (Scratch >= 0)
        pair = T::slot_load4(slot_view<T, typename Block::program, Scratch < 0 ? 0 : Scratch>::use(b, 0).at(b.row(j), column));
      else
        pair = T::lds_load4(Block::staged_row(j, Columns * 2) + u32(column) * 2);
      out.push(b, b.row(j), column, pair);
    }
    return true;
  }
};

/// Sums over the ranks, divided by their number, into scratch or published as the residual stream.
template <int Columns, int Tiles, int Box, int To>
struct reduce_stage {
  using input = inputs::none;
  using weights = void;
  template <class Block>
  MONOLAYER_DEVICE static bool run_tile(Block& b, int tile) {
    constexpr int width = Columns / Tiles;
    const auto sums = mailbox_view<Block, Box>::current(b);
    const auto out = slot_view<T, typename Block::program, To>::current(b);
    for (int i = Block::thread(); i < b.live * width / 8; i += Block::threads) {
      const int row = b.row(i / (width / 8)), column = tile * width + i % (width / 8) * 8;
      float total[8];
      sums.sum8(b, row, column, total);
      u32x4 y;
      for (int k = 0; k < 4; ++k)
        y.v[k] = pack_bf16(mul(total[2 * k], 1.0f / Block::info.ranks), mul(total[2 * k + 1], 1.0f / Block::info.ranks));
      out.store8(row, column, y);
    }
    return true;
  }
};

/// Each tile's scratch is one block's in all stages of the first kind, so only that block's barriers order its accesses.
template <int Columns, int Ranks, int Tiles>
struct exchange {
  enum slot_id { box0, box1, scratch, hidden, slot_count };
  template <bool Norm>
  struct staged_hidden {
    template <class Block>
    MONOLAYER_DEVICE static bool prepare(Block& b) {
      if (b.staged == 1) return true;
      const auto stream = inputs::residual_stream<hidden, Block>::newest(b);
      auto load = [&](int row, int column) { return stream.load8(row, column); };
      if constexpr (!Norm)
        stage_rows<Columns, Columns>(b, load);
      else if (!stage_normed_rows<Columns>(b, norm_shape::of<Columns, Columns>(1e-5f), layer_data<T>(b.entry(), 0), load))
        return false;
      if (!b.sync()) return false;
      b.staged = 1;
      return true;
    }
  };
  template <int Box, int Scratch, class Input>
  using push = push_stage<Columns, Tiles, Box, Scratch, Input>;
  template <int Box, int To>
  using reduce = reduce_stage<Columns, Tiles, Box, To>;
  using codes = code_list<push<box0, scratch, inputs::none>, reduce<box0, scratch>, push<box1, scratch, inputs::none>,
                          reduce<box1, scratch>, push<box0, -1, staged_hidden<false>>, push<box0, -1, staged_hidden<true>>,
                          reduce<box0, hidden>>;
  static constexpr program_info make_info() {
    program_info p{};
    p.max_rows = 8;
    p.ranks = Ranks;
    p.slot_count = slot_count;
    for (int s : {box0, box1}) {
      p.slots[s].type = element::bf16;
      p.slots[s].columns = Columns;
      p.slots[s].parts = Tiles;
      p.slots[s].scope = scope::peers;
      p.slots[s].transport = transport::tagged;
      p.slots[s].buffers = 2;
    }
    p.slots[scratch].type = p.slots[hidden].type = element::bf16;
    p.slots[scratch].columns = p.slots[hidden].columns = Columns;
    p.slots[hidden].units = Tiles;
    p.slots[hidden].buffers = 2;
    p.kind_count = 3;
    const int writes[3][4] = {{box0, -1, box1, -1}, {box0, hidden}, {box0, hidden}};
    const int codes[3][4] = {{0, 1, 2, 3}, {4, 6}, {5, 6}};
    for (int k = 0; k < 3; ++k) {
      p.kinds[k].stage_count = k == 0 ? 4 : 2;
      for (int i = 0; i < p.kinds[k].stage_count; ++i) {
        stage_info& s = p.kinds[k].stages[i];
        s.code = codes[k][i];
        s.tiles = Tiles;
        s.tile_columns = Columns / Tiles;
        s.writes = writes[k][i];
        if (k != 0 && i == 0) {
          s.reads[0].slot = hidden;
          s.reads[0].earlier = true;
        }
      }
    }
    return p;
  }
  static constexpr program_info info = make_info();
  static constexpr int experts = 16;
  static constexpr u32 largest_chunk = 1024;
  static constexpr int fewest_units_per_chunk = 8;
  static constexpr u32 staged_bytes_per_row = Columns * 2 + staged_row_pad;
};

// ---- the bare barrier: one counter, all blocks

struct barrier_watch : two_seconds {
  MONOLAYER_DEVICE bool give_up() { return passed<T>(); }
};
__global__ void __launch_bounds__((T::consumer_waves + 1) * T::wave_size, 1)
    barrier_kernel(u32* counter, u32* stopped, u32 base, int rounds) {
  barrier_watch w;
  for (int i = 0; i < rounds; ++i) {
    T::block_barrier();
    if (threadIdx.x == 0) {
      T::fetch_add(counter, 1);
      const u32 target = base + u32(i + 1) * gridDim.x;
      while (i32(T::poll4(counter) - target) < 0)
        if (w.give_up()) {
          T::store4(stopped, 1);
          break;
        }
    }
    T::block_barrier();
  }
}

double barrier_us(hipStream_t stream, int blocks) {
  u32* words = device_array<u32>(64);
  CHECK(hipFuncSetAttribute(reinterpret_cast<const void*>(&barrier_kernel), hipFuncAttributeMaxDynamicSharedMemorySize,
                            int(T::lds_bytes)));
  u32 base = 0;
  auto run = [&](int rounds) {
    hipEvent_t begin, end;
    CHECK(hipEventCreate(&begin));
    CHECK(hipEventCreate(&end));
    CHECK(hipEventRecord(begin, stream));
    barrier_kernel<<<blocks, (T::consumer_waves + 1) * T::wave_size, T::lds_bytes, stream>>>(words, words + 32, base,
                                                                                             rounds);
    CHECK(hipGetLastError());
    CHECK(hipEventRecord(end, stream));
    CHECK(hipStreamSynchronize(stream));
    base += u32(rounds * blocks);
    float ms = 0;
    CHECK(hipEventElapsedTime(&ms, begin, end));
    CHECK(hipEventDestroy(begin));
    CHECK(hipEventDestroy(end));
    return double(ms) * 1e3;
  };
  run(100);
  std::vector<double> slopes;
  for (int i = 0; i < 5; ++i) {
    const double first = run(1000);
    slopes.push_back((run(3000) - first) / 2000);
  }
  std::sort(slopes.begin(), slopes.end());
  return fetch(words + 32, 1)[0] == 0 ? slopes[2] : NAN;
}

// ---- running the chains

verdict verify;
constexpr int short_span = 100, long_span = 300;

/// Median slope over 5 pairs of launches: us a layer.
template <class Run>
double slope(Run run) {
  std::vector<double> us;
  run(short_span);
  for (int i = 0; i < 5; ++i) {
    const double first = run(short_span);
    us.push_back((run(long_span) - first) / (long_span - short_span));
  }
  std::sort(us.begin(), us.end());
  return us[2];
}

struct chain_times {
  double wait[6] = {}, free[6] = {};  // us a hop by payload; 0: not measured
};
struct payload {
  int columns, rows, kb;
};
constexpr payload payloads[] = {{2048, 1, 4}, {2048, 2, 8}, {2048, 4, 16}, {4096, 4, 32}, {4096, 8, 64}, {6144, 8, 96}};

template <int Columns, staging S>
void measure(hipStream_t stream, int blocks, chain_times& times, const char* name) {
  using program = chain<Columns, S>;
  using memory = slot_layout<program, T::arrivals>;
  check(prepare_device<T, program>().why());
  launch_params p = scratch_params<T, program>();
  const std::vector<u16> ones(Columns, 0x3f80);
  std::vector<layer_entry> entries(2 * long_span);
  for (int i = 0; i < 2 * long_span; ++i) {
    entries[std::size_t(i)].kind = i < long_span ? 0 : 1;
    entries[std::size_t(i)].data[0] = i == 0 ? static_cast<const void*>(device_array(ones)) : entries[0].data[0];
  }
  layer_entry* layers = device_array(entries);
  p.row_slots = device_array(std::vector<long long>(8, 0));
  hipEvent_t begin, end;
  CHECK(hipEventCreate(&begin));
  CHECK(hipEventCreate(&end));
  auto run = [&](int kind, int layers_of_span, int rows) {
    p.layers = layers + kind * long_span;
    p.layer_count = layers_of_span;
    p.rows = rows;
    CHECK(hipEventRecord(begin, stream));
    check(launch<T, program>(p, blocks, stream));
    CHECK(hipEventRecord(end, stream));
    CHECK(hipStreamSynchronize(stream));
    float ms = 0;
    CHECK(hipEventElapsedTime(&ms, begin, end));
    return double(ms) * 1e3;
  };
  for (int i = 0; i < 6; ++i) {
    const payload& q = payloads[i];
    if (q.columns != Columns) continue;
    // Result first: the last slot holds the start; after one span the permuted start.
    const std::size_t count = std::size_t(q.rows) * Columns;
    const std::vector<u16> start = random_bf16(count, 3 + u64(i), S == staging::norm ? 3.0 : 1.0);
    constexpr bool tagged = S == staging::tagged;
    constexpr u64 last_at = memory::payload_offset(links - 1);
    u8* last = p.slots + last_at;
    std::vector<u32> words(count / 2 * (tagged ? 2 : 1));
    for (std::size_t w = 0; w < count / 2; ++w) std::memcpy(&words[tagged ? 2 * w : w], &start[2 * w], 4);
    CHECK(hipMemcpy(last, words.data(), words.size() * 4, hipMemcpyHostToDevice));
    run(0, short_span, q.rows);
    if (!verify(healthy(p.state, name), std::string(name) + ": the chain ran")) return;
    words = fetch(reinterpret_cast<const u32*>(last), words.size());
    std::vector<u16> out(count), want = start;
    for (std::size_t w = 0; w < count / 2; ++w) std::memcpy(&out[2 * w], &words[tagged ? 2 * w : w], 4);
    std::vector<double> scale(std::size_t(q.rows), 1.0);
    for (int r = 0; r < q.rows; ++r) {
      u16* row = want.data() + std::size_t(r) * Columns;
      for (int hop = 0; hop < short_span * links; ++hop) {
        const std::vector<u16> before(row, row + Columns);
        for (int c = 0; c < Columns; ++c) row[c] = before[std::size_t(source_group(c / 8, Columns / 8) * 8 + c % 8)];
      }
      double squares = 0;
      for (int c = 0; c < Columns; ++c) squares += bf16_value(row[c]) * bf16_value(row[c]);
      if (S == staging::norm) scale[std::size_t(r)] = 1 / std::sqrt(squares / Columns);
    }
    int wrong = 0;
    for (std::size_t c = 0; c < count; ++c) {
      const double w = bf16_value(want[c]) * scale[c / Columns], o = bf16_value(out[c]);
      wrong += S == staging::norm ? !(std::fabs(o - w) <= 0.02 * std::fabs(w)) : out[c] != want[c];
    }
    if (!verify(wrong == 0, text("%s %d KB: %d of %d values wrong after %d hops", name, q.kb, wrong, int(count),
                                 short_span * links)))
      continue;
    const double wait = slope([&](int n) { return run(0, n, q.rows); }) / links;
    const double free = slope([&](int n) { return run(1, n, q.rows); }) / links;
    if (!verify(healthy(p.state, name), std::string(name) + ": all launches ran")) return;
    times.wait[i] = wait;
    times.free[i] = free;
  }
}

template <staging S>
void measure_all(hipStream_t stream, int blocks, const char* name, bool without = true) {
  chain_times t;
  measure<2048, S>(stream, blocks, t, name);
  measure<4096, S>(stream, blocks, t, name);
  measure<6144, S>(stream, blocks, t, name);
  auto line = [&](const char* what, auto value) {
    std::printf("%-16s %-14s", name, what);
    for (int i = 0; i < 6; ++i) std::printf(t.wait[i] > 0 ? " %7.2f" : "       -", value(i));
    std::printf("\n");
  };
  line("us a hop", [&](int i) { return t.wait[i]; });
  if (without) {
    line("without waits", [&](int i) { return t.free[i]; });
    line("difference", [&](int i) { return t.wait[i] - t.free[i]; });
  }
  std::fflush(stdout);
}

/// Ranks on one GPU, a stream each.
template <int Columns, int Ranks, int Tiles>
void measure_exchange(double (&us)[3][6]) {
  using program = exchange<Columns, Ranks, Tiles>;
  using memory = slot_layout<program, T::arrivals>;
  constexpr u64 scratch_at = memory::payload_offset(program::scratch), hidden_at = memory::payload_offset(program::hidden);
  constexpr u64 hidden_bytes = memory::buffer_bytes(program::hidden);
  constexpr int blocks = 128 / Ranks;  // divides the tiles: a tile has one owner in all stages
  check(prepare_device<T, program>().why());
  launch_params p[Ranks];
  hipStream_t streams[Ranks];
  const std::vector<u16> ones(Columns, 0x3f80);
  const u16* weight = device_array(ones);
  std::vector<layer_entry> entries(3 * long_span);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    entries[i].kind = i / long_span;
    entries[i].data[0] = weight;
  }
  layer_entry* layers = device_array(entries);
  const long long* row_slots = device_array(std::vector<long long>(8, 0));
  for (int r = 0; r < Ranks; ++r) {
    p[r] = scratch_params<T, program>(r);
    p[r].row_slots = row_slots;
    p[r].input = device_array<u16>(std::size_t(8) * Columns);
    CHECK(hipStreamCreateWithFlags(&streams[r], hipStreamNonBlocking));
  }
  for (int r = 0; r < Ranks; ++r)
    for (int o = 0; o < Ranks; ++o) {
      p[r].mailbox[o] = p[o].mailbox[o];
      p[r].peer_state[o] = p[o].state;
    }
  CHECK(hipDeviceSynchronize());
  auto run = [&](int kind, int count, int rows) {
    const auto begin = std::chrono::steady_clock::now();
    for (int r = 0; r < Ranks; ++r) {
      p[r].layers = layers + kind * long_span;
      p[r].layer_count = count;
      p[r].rows = rows;
      check(launch<T, program>(p[r], blocks, streams[r]));
    }
    CHECK(hipDeviceSynchronize());
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
  };
  auto all_healthy = [&](const char* what) {
    bool good = true;
    for (int r = 0; r < Ranks; ++r) good &= healthy(p[r].state, what);
    return verify(good, text("%s, %d ranks, %d tiles, %d columns: the launches ran", what, Ranks, Tiles, Columns));
  };
  for (int i = 0; i < 6; ++i) {
    const payload& q = payloads[i];
    if (q.columns != Columns) continue;
    const std::size_t count = std::size_t(q.rows) * Columns;
    // Rank r starts with its own small integers; every exchange gives their mean, exact in bf16.
    std::vector<double> mean(count, 0.0);
    for (int r = 0; r < Ranks; ++r) {
      std::vector<u16> start(count);
      for (std::size_t c = 0; c < count; ++c) {
        const int v = int((c * 7 + std::size_t(r) * 5 + std::size_t(i)) % 23) - 11;
        start[c] = from_float<bf16>(float(v)).bits;
        mean[c] += double(v) / Ranks;
      }
      CHECK(hipMemcpy(p[r].slots + scratch_at, start.data(), count * 2, hipMemcpyHostToDevice));
      CHECK(hipMemcpy(const_cast<void*>(p[r].input), start.data(), count * 2, hipMemcpyHostToDevice));
    }
    for (int kind = 0; kind < 3; ++kind) {
      const char* name = kind == 0 ? "exchange" : kind == 1 ? "full, copy" : "full, norm";
      run(kind, short_span, q.rows);
      if (!all_healthy(name)) return;
      int wrong = 0;
      for (int r = 0; r < Ranks && kind < 2; ++r) {
        const u8* at = p[r].slots + (kind == 0 ? scratch_at : hidden_at);
        if (kind == 1) {  // the buffer of the newest use
          const u32 uses = fetch(p[r].state, 1)[0].uses[program::hidden];
          at += u64((uses - 1) % 2) * hidden_bytes;
        }
        const std::vector<u16> out = fetch(reinterpret_cast<const u16*>(at), count);
        for (std::size_t c = 0; c < count; ++c) wrong += bf16_value(out[c]) != mean[c];
      }
      if (!verify(wrong == 0,
                  text("%s, %d ranks, %d tiles, %d KB: %d values wrong", name, Ranks, Tiles, q.kb, wrong)))
        continue;
      const double layer = slope([&](int n) { return run(kind, n, q.rows); });
      if (!all_healthy(name)) return;
      us[kind][i] = kind == 0 ? layer / 2 : layer;
    }
  }
}

template <int Ranks, int Tiles>
void measure_ranks(const char* label) {
  double us[3][6] = {};
  measure_exchange<2048, Ranks, Tiles>(us);
  measure_exchange<4096, Ranks, Tiles>(us);
  measure_exchange<6144, Ranks, Tiles>(us);
  const char* names[3] = {"exchange", "full, copy", "full, norm"};
  for (int kind = 0; kind < 3; ++kind) {
    std::printf("%-16s %-14s", label, names[kind]);
    for (double v : us[kind]) std::printf(v > 0 ? " %7.2f" : "       -", v);
    std::printf("\n");
  }
  std::fflush(stdout);
}

}  // namespace bench

int main() {
  using namespace bench;
  start_watchdog(60);
  setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  hipStream_t stream;
  CHECK(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
  const int blocks = compute_units();
  std::printf("hop: %s, %d blocks, slopes between spans of %d and %d layers of %d stages\n", T::name, blocks, short_span,
              long_span, links);
  const double barrier = barrier_us(stream, blocks);
  verify(std::isfinite(barrier), "the barrier ended");
  std::printf("bare barrier of %d blocks of %d threads (one counter): %.2f us\n", blocks,
              (T::consumer_waves + 1) * T::wave_size, barrier);
  std::printf("%-16s %-14s", "payload KB", "");
  for (const payload& q : payloads) std::printf(" %7d", q.kb);
  std::printf("\n");
  measure_all<staging::direct>(stream, blocks, "counted direct");
  measure_all<staging::copy>(stream, blocks, "counted copy");
  measure_all<staging::norm>(stream, blocks, "counted norm");
  measure_all<staging::tagged>(stream, blocks, "tagged copy");
  // A tile a block, as 128 of a GPU's 132 blocks have it; then the tiles that a layer has, several a block.
  measure_ranks<1, 128>("1 rank x 128");
  measure_ranks<2, 64>("2 ranks x 64");
  measure_ranks<4, 32>("4 ranks x 32");
  measure_ranks<2, 128>("2 ranks, 2 tiles");
  measure_ranks<4, 128>("4 ranks, 4 tiles");
  return verify.finish();
}
