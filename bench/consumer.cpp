// bench/consumer: how fast the matrix loop eats weights of each format, beside a stream of the same bytes.
//
// One stage of many tiles, rows staged once; weights lie in a pool far larger than the caches. Each shape runs at two
// sizes: the slope is the net bandwidth, the rest the cost of a launch with its staging. A sample of tiles is compared
// with float64 before any time is printed.
//   ./consumer [format]      mxfp4, fp8_block, fp8_channel, bf16
#define MONOLAYER_SKIP_PROOFS  // nothing reads what the one stage writes
#include "common.hpp"
#include "monolayer/stages/projections.hpp"

namespace bench {

using T = device_target;
#if defined(__CUDACC__)
constexpr int planned_blocks = 132;  // H100, H200
#elif defined(MONOLAYER_BENCH_GFX942)
constexpr int planned_blocks = 304;
#else
constexpr int planned_blocks = 256;
#endif
/// Results are kept of the last tiles only, so that storing them costs no bandwidth; tiles that share a place are one
/// block's and follow one another.
constexpr int kept_tiles = planned_blocks * 8, kept_features = kept_tiles * 16;
constexpr double planned_bytes = 138e6;
constexpr u64 pool_bytes = u64(12) * 145'000'000;

/// The caller's rows as they are, times 2^activation_shift.
template <int K, int PaddedK>
struct given_rows {
  template <class Block>
  MONOLAYER_DEVICE static bool prepare(Block& b) {
    if (b.staged != 0) return true;
    const u8* rows = layer_data<T>(b.entry(), 1);
    stage_rows<K, PaddedK>(
        b, [&](int row, int column) { return shifted<T>(T::load16(rows + (u64(row) * K + u64(column)) * 2)); });
    if (!b.sync()) return false;
    b.staged = 1;
    return true;
  }
};

template <class F, int K, int Tiles>
struct multiply_stage : stages::plain_stream<weight_tile<F, K>, 0> {
  using tile_type = weight_tile<F, K>;
  using input = given_rows<K, tile_type::padded_k>;
  static constexpr bool combines = true;

  using projects = tile_type;

  template <class Block>
  MONOLAYER_DEVICE static void put(Block& b, int tile, int feature, int column, bool valid, const float* y) {
    u8* out = static_cast<u8*>(b.entry().output);
    if (valid)
      T::store4(out + (u64(b.row(column)) * kept_features + u64(tile % kept_tiles * 16 + feature)) * 4, float_to_bits(y[0]));
  }
};

template <class F, int K, int Tiles>
struct multiply_program {
  using stage = multiply_stage<F, K, Tiles>;
  using codes = code_list<stage>;
  static constexpr program_info make_info() {
    program_info p{};
    p.max_rows = 8;
    p.kind_count = 1;
    p.kinds[0].name = "multiply";
    p.kinds[0].stage_count = 1;
    p.kinds[0].stages[0].name = "multiply";
    p.kinds[0].stages[0].tiles = Tiles;
    p.kinds[0].stages[0].tile_columns = 16;
    p.kinds[0].stages[0].streamed = 1;
    return p;
  }
  static constexpr program_info info = make_info();
  static constexpr int experts = 16;
  static constexpr u32 largest_chunk = stage::weights::chunk_bytes;
  static constexpr int fewest_units_per_chunk = stage::weights::units_per_chunk;
  static constexpr u32 staged_bytes_per_row = stage::tile_type::padded_k * 2 + staged_row_pad;
};

struct context {
  hipStream_t stream;
  u8* pool;
  int blocks;
  verdict verify;
};

/// One size: launches over the pool in turn.
template <class F, int K, int Tiles>
struct one_size {
  using program = multiply_program<F, K, Tiles>;
  using tile_type = weight_tile<F, K>;
  static constexpr u64 bytes = u64(Tiles) * tile_type::bytes;
  static constexpr int kept = Tiles < kept_tiles ? Tiles : kept_tiles;
  static constexpr int count = int(pool_bytes / bytes) < 12 ? int(pool_bytes / bytes) : 12;

  context& c;
  launch_params p = scratch_params<T, program>();
  layer_entry* entries;
  u8* x;
  float* out = device_array<float>(std::size_t(8) * kept_features);
  long long* row_slots = device_array(std::vector<long long>(8, 0));
  std::vector<u16> x_bits = random_bf16(std::size_t(8) * K, 5);

  explicit one_size(context& in) : c(in) {
    check(prepare_device<T, program>().why());
    x = device_array<u8>(x_bits.size() * 2);
    CHECK(hipMemcpy(x, x_bits.data(), x_bits.size() * 2, hipMemcpyHostToDevice));
    std::vector<layer_entry> all(count);
    for (int i = 0; i < count; ++i) {
      all[i].data[0] = c.pool + u64(i) * bytes;
      all[i].data[1] = x;
      all[i].output = out;
    }
    entries = device_array(all);
    p.row_slots = row_slots;
    p.layer_count = 1;
  }
  ~one_size() {
    for (void* at : {static_cast<void*>(p.state), static_cast<void*>(p.slots), static_cast<void*>(p.arrivals),
                     static_cast<void*>(p.mailbox[0]), static_cast<void*>(entries), static_cast<void*>(x),
                     static_cast<void*>(out), static_cast<void*>(row_slots)})
      CHECK(hipFree(at));
  }
  void enqueue(int i, int rows) {
    p.layers = entries + i % count;
    p.rows = rows;
    check(launch<T, program>(p, c.blocks, c.stream));
  }
  /// Relative error of a sample of tiles of the first buffer, of all rows; infinite if an output was not written.
  double error(int rows) {
    CHECK(hipMemset(out, 0xff, std::size_t(8) * kept_features * 4));
    enqueue(0, rows);
    CHECK(hipStreamSynchronize(c.stream));
    if (!healthy(p.state, "consumer")) return INFINITY;
    const std::vector<float> y = fetch(out, std::size_t(8) * kept_features);
    for (int r = 0; r < 8; ++r)
      for (int f = 0; f < kept * 16; ++f)
        if (std::isnan(y[std::size_t(r) * kept_features + f]) != (r >= rows)) return INFINITY;
    std::vector<double> got, want, w(std::size_t(16) * tile_type::padded_k);
    for (int sample = 0; sample < 16; ++sample) {
      const int tile = Tiles - 1 - (sample == 0 ? 0 : int(random_bits(9, u64(sample)) % kept));
      const std::vector<u8> packed = fetch(c.pool + u64(tile) * tile_type::bytes, tile_type::bytes);
      decode_subtile<T, tile_type>(packed.data(), 0, w.data());
      for (int r = 0; r < rows; ++r)
        for (int f = 0; f < 16; ++f) {
          double sum = 0;
          for (int k = 0; k < K; ++k)
            sum += w[std::size_t(f) * tile_type::padded_k + k] * bf16_value(x_bits[std::size_t(r) * K + k]);
          want.push_back(sum);
          got.push_back(double(y[std::size_t(r) * kept_features + tile % kept_tiles * 16 + f]));
        }
    }
    return relative_error(got, want);
  }
  timing time(int rows) {
    const timing t = time_graph(c.stream, count, 7, [&](int i) { enqueue(i, rows); });
    return c.verify(healthy(p.state, "consumer"), "a launch failed") ? t : timing{};
  }
};

template <class F, int K>
void shape(context& c, const char* name) {
  using tile_type = weight_tile<F, K>;
  constexpr int per_block = int(planned_bytes / planned_blocks / double(tile_type::bytes) + 0.5);
  using small = one_size<F, K, per_block * planned_blocks>;
  using large = one_size<F, K, 3 * per_block * planned_blocks>;
  fill_weights<T, tile_type>(c.pool, small::bytes * u64(small::count), 77 + K, unit_gain<F>(K));
  CHECK(hipStreamSynchronize(nullptr));
  small s(c);
  large l(c);
  auto stream_of = [&](u64 bytes, u32 chunk, int count) {
    return time_stream<T>(c.stream, c.pool, bytes, bytes - bytes % (u64(c.blocks) * chunk), chunk, c.blocks, count, 7);
  };
  const floor_result f1 = stream_of(small::bytes, floor_chunk, small::count);
  const floor_result f3 = stream_of(large::bytes, floor_chunk, large::count);
  const floor_result own = stream_of(small::bytes, tile_type::chunk_bytes, small::count);
  c.verify(f1.good && f3.good && own.good, std::string(name) + ": the stream's xor");
  const kernel_facts k = facts_of_kernel<T, typename small::program>();
  for (int rows : {1, 2, 8}) {
    const double e1 = s.error(rows), e3 = l.error(rows);
    const double worst = std::max(e1, e3);
    if (!c.verify(worst < 2e-5, text("%s K %d rows %d: error %.2e, limit 2e-5", name, K, rows, worst))) continue;
    const timing t1 = s.time(rows), t3 = l.time(rows);
    if (t1.us == 0 || t3.us == 0) continue;
    const double net = double(large::bytes - small::bytes) / (t3.us - t1.us) * 1e-6;
    const double floor_net = double(f3.bytes - f1.bytes) / (f3.time.us - f1.time.us) * 1e-6;
    auto share = [](u64 bytes, const timing& t, const floor_result& f) { return 100 * double(bytes) / t.us / (double(f.bytes) / f.time.us); };
    std::printf("%-11s %5d %4d %6.1f %7.2f %5.2f %5.0f%% %7.2f %5.2f %5.0f%% %6.2f %6.2f %6.2f %7.1f %8.1e %4d%s\n", name, K, rows,
                double(small::bytes) * 1e-6, t1.us, double(small::bytes) / t1.us * 1e-6, share(small::bytes, t1, f1), t3.us,
                double(large::bytes) / t3.us * 1e-6, share(large::bytes, t3, f3), net, floor_net, own.tb_s(),
                t1.us - double(small::bytes) / net * 1e-6, worst, k.registers, k.local_bytes != 0 ? " local memory" : "");
    std::fflush(stdout);
  }
}

template <class F>
void format(context& c, const char* name, const char* only) {
  if (only != nullptr && std::strcmp(only, name) != 0) return;
  shape<F, 6144>(c, name);
  shape<F, 2048>(c, name);
  shape<F, 512>(c, name);
}

}  // namespace bench

int main(int argc, char** argv) {
  using namespace bench;
  start_watchdog(120);
  const char* only = argc > 1 ? argv[1] : nullptr;
  context c{};
  CHECK(hipStreamCreateWithFlags(&c.stream, hipStreamNonBlocking));
  c.pool = device_array<u8>(pool_bytes);
  c.blocks = planned_blocks;
  if (compute_units() < planned_blocks) {
    std::printf("FAIL: %d compute units, written for %d\n", compute_units(), planned_blocks);
    return 1;
  }
  std::printf("consumer: %s, %d blocks; us of a launch, median of 7 graph replays of launches over a pool of 1.7 GB\n"
              "  floor: share of the stream (the same ring, %u-byte chunks, only xored) at the same bytes\n"
              "  net: TB/s of the slope between the two sizes, st.net the stream's; own: the stream in the format's own chunks,\n"
              "  TB/s at the first size; launch: us that the slope leaves of the first size\n",
              T::name, c.blocks, floor_chunk);
  std::printf("%-11s %5s %4s %6s %7s %5s %6s %7s %5s %6s %6s %6s %6s %7s %8s %4s\n", "format", "K", "rows", "MB", "us", "TB/s",
              "floor", "us x3", "TB/s", "floor", "net", "st.net", "own", "launch", "error", "regs");
  format<mxfp4>(c, "mxfp4", only);
  format<fp8_block<128, 128>>(c, "fp8_block", only);
  format<fp8_channel>(c, "fp8_channel", only);
  format<bf16_weights>(c, "bf16", only);
  return c.verify.finish();
}
