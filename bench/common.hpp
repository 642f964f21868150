// What the benchmarks share: errors, timing by graph replays, packed weights made on the GPU and read back on the host,
// and the stream that every weight reader is measured against.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "monolayer/host/launch_hip.hpp"
#include "monolayer/device/rows.hpp"

namespace bench {

using namespace monolayer;

#if defined(__CUDACC__)
using device_target = sm90;
#elif defined(MONOLAYER_BENCH_GFX942)
using device_target = gfx942;
#else
using device_target = gfx950;
#endif

// ---- errors

inline void check(hipError_t e, const char* what, int line) {
  if (e == hipSuccess) return;
  std::printf("FAIL line %d, %s: %s\n", line, what, hipGetErrorString(e));
  std::fflush(stdout);
  std::_Exit(1);
}
#define CHECK(call) ::bench::check((call), #call, __LINE__)

inline void check(const status& s) {
  if (s) return;
  std::printf("FAIL %s\n", s.text().c_str());
  std::fflush(stdout);
  std::_Exit(1);
}
template <class V>
V check(result<V> r) {
  check(r.why());
  return std::move(r.value());
}

/// Checks of results that precede any time. A failed one makes the exit code 1 and its line's times '-'.
struct verdict {
  int passed = 0, failed = 0;
  bool operator()(bool good, const std::string& what) {
    ++(good ? passed : failed);
    if (!good) std::printf("FAIL %s\n", what.c_str());
    return good;
  }
  int finish() const {
    std::printf("%d passed, %d failed\n", passed, failed);
    return failed == 0 ? 0 : 1;
  }
};

/// Ends the process if it is still there after `seconds`: waits on the GPU have deadlines, but a defect may not.
inline void start_watchdog(int seconds) {
  std::thread([seconds] {
    std::this_thread::sleep_for(std::chrono::seconds(seconds));
    std::printf("FAIL: still running after %d s\n", seconds);
    std::fflush(stdout);
    std::_Exit(3);
  }).detach();
}

inline std::string text(const char* format, auto... values) {
  char buffer[512];
  std::snprintf(buffer, sizeof buffer, format, values...);
  return buffer;
}

// ---- memory

template <class V>
V* device_array(std::size_t count) {
  V* at = nullptr;
  CHECK(hipMalloc(reinterpret_cast<void**>(&at), count * sizeof(V)));
  CHECK(hipMemset(at, 0, count * sizeof(V)));
  return at;
}
template <class V>
V* device_array(const std::vector<V>& values) {
  V* at = device_array<V>(values.size());
  CHECK(hipMemcpy(at, values.data(), values.size() * sizeof(V), hipMemcpyHostToDevice));
  return at;
}
template <class V>
std::vector<V> fetch(const V* from, std::size_t count) {
  std::vector<V> v(count);
  CHECK(hipMemcpy(v.data(), from, count * sizeof(V), hipMemcpyDeviceToHost));
  return v;
}

// ---- time

struct timing {
  double us = 0, low = 0, high = 0;  // of one launch: median, least and most over the replays
};

/// enqueue(i) launches the i-th of `launches`; they become one graph.
template <class Enqueue>
timing time_graph(hipStream_t stream, int launches, int replays, Enqueue enqueue) {
  hipGraph_t graph;
  hipGraphExec_t executable;
  CHECK(hipStreamBeginCapture(stream, hipStreamCaptureModeThreadLocal));
  for (int i = 0; i < launches; ++i) enqueue(i);
  CHECK(hipStreamEndCapture(stream, &graph));
  CHECK(hipGraphInstantiate(&executable, graph, nullptr, nullptr, 0));
  hipEvent_t begin, end;
  CHECK(hipEventCreate(&begin));
  CHECK(hipEventCreate(&end));
  std::vector<double> us;
  for (int i = 0; i < replays + 2; ++i) {
    CHECK(hipEventRecord(begin, stream));
    CHECK(hipGraphLaunch(executable, stream));
    CHECK(hipEventRecord(end, stream));
    CHECK(hipStreamSynchronize(stream));
    float ms = 0;
    CHECK(hipEventElapsedTime(&ms, begin, end));
    if (i >= 2) us.push_back(double(ms) * 1e3 / launches);
  }
  CHECK(hipEventDestroy(begin));
  CHECK(hipEventDestroy(end));
  CHECK(hipGraphExecDestroy(executable));
  CHECK(hipGraphDestroy(graph));
  std::sort(us.begin(), us.end());
  return {us[us.size() / 2], us.front(), us.back()};
}

// ---- launching a program without a binding of its own

/// Scratch of one rank of program P, zeroed, and the parameters that name it.
template <class T, class P>
launch_params scratch_params(int rank = 0) {
  launch_params p{};
  p.state = device_array<device_state>(1);
  p.slots = device_array<u8>(plan<T, P>::slots_bytes);
  p.arrivals = device_array<u8>(plan<T, P>::arrivals_bytes);
  p.mailbox[rank] = device_array<u8>(plan<T, P>::mailbox_bytes);
  p.peer_state[rank] = p.state;
  p.local_deadline_ns = 200'000'000;
  p.peer_deadline_ns = 2'000'000'000;
  p.rank = rank;
  p.groups = 1;
  p.lds_bytes = T::lds_bytes;
  return p;
}

/// Whether a launch failed since the start, and who waited for what.
inline bool healthy(const device_state* state, const char* what) {
  const device_state s = fetch(state, 1)[0];
  if (s.failed.word == 0) return true;
  const failure_record& f = s.failed;
  std::printf("FAIL %s: failure %u, rank %u block %u layer %u stage %u tile %u, slot %u part %u, expected %u seen %u\n",
              what, f.word, f.rank, f.block, f.layer, f.stage, f.tile, f.slot, f.part, f.expected, f.seen);
  return false;
}

struct kernel_facts {
  int registers = 0, local_bytes = 0;
};
template <class T, class P>
kernel_facts facts_of_kernel() {
  hipFuncAttributes a{};
  CHECK(hipFuncGetAttributes(&a, reinterpret_cast<const void*>(&persistent_kernel<T, P>)));
  return {a.numRegs, int(a.localSizeBytes)};
}

// ---- staging rows as they are, as the library's inputs do it with a norm

/// load(row, column) returns 8 bf16. A sync() must follow.
template <int K, int PaddedK, class Block, class Load>
MONOLAYER_DEVICE void stage_rows(Block& b, Load load) {
  using T = typename Block::target;
  constexpr int pieces = PaddedK / 8, in_flight = 8;
  const int total = b.live * pieces;
  MONOLAYER_NO_UNROLL
  for (int first = Block::thread(); first < total; first += Block::threads * in_flight) {
    u32x4 v[in_flight];
    MONOLAYER_UNROLL
    for (int i = 0; i < in_flight; ++i) {
      const int piece = first + i * Block::threads, c = piece % pieces * 8;
      v[i] = piece < total && c < K ? load(b.row(piece / pieces), c) : u32x4{};
    }
    MONOLAYER_UNROLL
    for (int i = 0; i < in_flight; ++i) {
      const int piece = first + i * Block::threads;
      if (piece < total) T::lds_store16(Block::staged_row(piece / pieces, PaddedK * 2) + u32(piece % pieces) * 16u, v[i]);
    }
  }
}

// ---- random bits, the same on host and device

MONOLAYER_HOST_DEVICE u64 random_bits(u64 seed, u64 i) {
  u64 z = (i + 1) * 0x9E3779B97F4A7C15ull ^ seed * 0xD1342543DE82EF95ull;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

/// Random numbers of about normal distribution and deviation `size`, as bf16.
inline std::vector<u16> random_bf16(std::size_t count, u64 seed, double size = 1) {
  std::vector<u16> v(count);
  for (std::size_t i = 0; i < count; ++i) {
    double sum = 0;
    for (u64 k = 0; k < 3; ++k) {
      const u64 bits = random_bits(seed, 3 * i + k);
      for (int shift = 0; shift < 64; shift += 16) sum += double((bits >> shift) & 0xffff) / 65536 - 0.5;
    }
    v[i] = from_float<bf16>(float(size * sum)).bits;
  }
  return v;
}
inline double bf16_value(u16 bits) { return double(bits_to_float(u32(bits) << 16)); }
inline double bf16_round(double x) { return bf16_value(from_float<bf16>(float(x)).bits); }

// ---- packed weights: random and valid, made on the GPU; decoded on the host

/// How large they are: e8m0 bytes low .. high; f32 scales between 0.5 and 1.5 times `scale`; bf16 exponents low .. high.
struct weight_size {
  u32 low, high;
  float scale;
};
/// Sums over k columns of order one for inputs of order one.
template <class F>
weight_size unit_gain(int k) {
  const double deviation = 1 / std::sqrt(double(k));
  if constexpr (is_mxfp4<F>) {
    const int e = 127 + int(std::lround(std::log2(deviation / 2.93)));
    return {u32(e - 2), u32(e + 2), 0};
  } else if constexpr (F::piece_bytes == 8) {
    return {0, 0, float(deviation / 110)};
  } else {
    const int e = 127 + int(std::lround(std::log2(deviation)));
    return {u32(e - 2), u32(e + 1), 0};
  }
}

/// One thread an 8-byte word of a run of packed chunks.
template <class T, class Tile>
__global__ void fill_weights_kernel(u8* to, u64 words, u64 seed, weight_size size) {
  using F = typename Tile::format;
  const u64 step = u64(gridDim.x) * blockDim.x;
  for (u64 i = u64(blockIdx.x) * blockDim.x + threadIdx.x; i < words; i += step) {
    u64 bits = random_bits(seed, i);
    const u32 at = u32(i * 8 % Tile::chunk_bytes);
    if (at >= Tile::scales_at) {
      u64 scales = 0;
      if constexpr (is_mxfp4<F>) {
        for (int b = 0; b < 8; ++b)
          scales |= u64(size.low + u32(bits >> (8 * b) & 255) % (size.high - size.low + 1)) << (8 * b);
      } else {
        for (int b = 0; b < 2; ++b) {
          const float factor = 0.5f + float(u32(bits >> (32 * b)) >> 8) * 0x1p-24f;
          scales |= u64(float_to_bits(factor * size.scale)) << (32 * b);
        }
      }
      bits = scales;
    } else if constexpr (F::piece_bytes == 8) {
      for (int b = 0; b < 8; ++b)
        if ((bits >> (8 * b) & 0x7f) == 0x7f) bits ^= u64(1) << (8 * b);  // no NaN
      bits = T::arrange_e4m3x8(bits);
    } else if constexpr (F::piece_bytes == 16) {
      u64 halves = 0;
      for (int b = 0; b < 4; ++b) {
        const u32 h = u32(bits >> (16 * b)) & 0xffff;
        const u32 exponent = size.low + (h >> 7 & 0xff) % (size.high - size.low + 1);
        halves |= u64((h & 0x8000) | exponent << 7 | (h & 0x7f)) << (16 * b);
      }
      bits = halves;
    }
    *reinterpret_cast<u64*>(to + i * 8) = bits;
  }
}
template <class T, class Tile>
void fill_weights(u8* to, u64 bytes, u64 seed, weight_size size) {
  fill_weights_kernel<T, Tile><<<2048, 256>>>(to, bytes / 8, seed, size);
  CHECK(hipGetLastError());
}

/// Where each bit of an arranged word came from.
template <class T>
struct arrangement {
  u8 of_e2m1[32], of_e4m3[64];
  arrangement() {
    for (int bit = 0; bit < 32; ++bit)
      for (int to = 0; to < 32; ++to)
        if (T::arrange_e2m1x8(u32(1) << bit) >> to & 1) of_e2m1[to] = u8(bit);
    for (int bit = 0; bit < 64; ++bit)
      for (int to = 0; to < 64; ++to)
        if (T::arrange_e4m3x8(u64(1) << bit) >> to & 1) of_e4m3[to] = u8(bit);
  }
};

inline double e2m1_value(u32 code) {
  constexpr double magnitude[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  return code & 8 ? -magnitude[code & 7] : magnitude[code & 7];
}
inline double e4m3_value(u32 code) {
  const int e = int(code >> 3 & 15), m = int(code & 7);
  const double v = e != 0 ? std::ldexp(8 + m, e - 10) : std::ldexp(m, -9);
  return code & 0x80 ? -v : v;
}

/// One subtile of a packed tile as [16][padded_k] numbers.
template <class T, class Tile>
void decode_subtile(const u8* tile, int subtile, double* out) {
  using F = typename Tile::format;
  static const arrangement<T> arranged;
  for (int c = 0; c < Tile::chunks; ++c) {
    const u8* chunk = tile + u64(subtile * Tile::chunks + c) * Tile::chunk_bytes;
    const u8* scales = chunk + Tile::scales_at;
    for (int u = 0; u < Tile::units_per_chunk; ++u)
      for (int s = 0; s < steps_per_unit; ++s)
        for (int lane = 0; lane < T::wave_size; ++lane)
          for (int h = 0; h < T::lane_rows; ++h) {
            const int row = T::a_row(lane, h);
            const u8* piece = chunk + u32(u) * Tile::unit_bytes + piece_offset<T, F>(lane, s, h);
            double* to = out + u64(row) * Tile::padded_k + (c * Tile::units_per_chunk + u) * unit_k + s * step_k +
                         8 * T::k_group(lane);
            if constexpr (is_mxfp4<F>) {
              u32 word, codes = 0;
              std::memcpy(&word, piece, 4);
              for (int b = 0; b < 32; ++b) codes |= (word >> b & 1) << arranged.of_e2m1[b];
              const double scale = std::ldexp(1.0, int(scales[u * 64 + row * 4 + s]) - 127);
              for (int k = 0; k < 8; ++k) to[k] = e2m1_value(codes >> (4 * k) & 15) * scale;
            } else if constexpr (F::piece_bytes == 8) {
              u64 word, codes = 0;
              std::memcpy(&word, piece, 8);
              for (int b = 0; b < 64; ++b) codes |= (word >> b & 1) << arranged.of_e4m3[b];
              float scale;
              std::memcpy(&scale, scales + 4 * (F::chunk_scale_bytes != 0 ? row : u), 4);
              for (int k = 0; k < 8; ++k) to[k] = e4m3_value(u32(codes >> (8 * k) & 255)) * double(scale);
            } else {
              for (int k = 0; k < 8; ++k) {
                u16 half;
                std::memcpy(&half, piece + 2 * k, 2);
                to[k] = bf16_value(half);
              }
            }
          }
  }
}

/// f(begin, end) for shares of [0, count), on all of the host's cores.
template <class F>
void in_parallel(int count, F f) {
  const int n = std::clamp(int(std::thread::hardware_concurrency()), 1, 32);
  std::vector<std::thread> all;
  for (int i = 0; i < n; ++i)
    all.emplace_back([=] { f(int(long(count) * i / n), int(long(count) * (i + 1) / n)); });
  for (std::thread& t : all) t.join();
}

/// ||out - ref|| / ||ref||; infinite where anything is no number.
inline double relative_error(const std::vector<double>& out, const std::vector<double>& ref) {
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < ref.size(); ++i) {
    difference += (out[i] - ref[i]) * (out[i] - ref[i]);
    size += ref[i] * ref[i];
  }
  if (!std::isfinite(difference) || !std::isfinite(size) || size == 0) return INFINITY;
  return std::sqrt(difference / size);
}

// ---- the stream floor: the same bytes through the same ring, and only xored

struct two_seconds {
  u64 start = 0;
  u32 polls = 0;
  template <class T>
  MONOLAYER_DEVICE bool passed() {
    T::pause();
    if ((++polls & 63u) != 0) return false;
    const u64 now = T::clock_ns();
    if (start == 0) start = now;
    return now - start > 2'000'000'000ull;
  }
};
template <class T>
struct stream_watch : two_seconds {
  MONOLAYER_DEVICE bool give_up() { return this->template passed<T>(); }
};

inline constexpr u32 stream_fixed_bytes = 4096;
/// One issuing lane is fast enough for chunks of this size; smaller ones measure the producer.
inline constexpr u32 floor_chunk = 8704;

/// Each block streams `chunks` chunks of `bytes` from from + block * chunks * bytes. out[block * waves + wave]: the xor.
template <class T>
__global__ void __launch_bounds__((T::consumer_waves + 1) * T::wave_size, 1)
    stream_kernel(const u8* from, u32 chunks, u32 bytes, u32* out) {
  const u32 slot_bytes = (bytes + 127) / 128 * 128;
  u32 count = (T::lds_bytes - stream_fixed_bytes) / slot_bytes;
  if (count > 64) count = 64;
  u32 cap = T::in_flight_bytes / slot_bytes;
  const ring_geometry g{128, stream_fixed_bytes, slot_bytes, count, cap < 1 ? 1 : cap < count ? cap : count};
  if (T::wave() == T::consumer_waves) T::ring::init(g);
  T::block_barrier();
  typename T::ring ring(g);
  stream_watch<T> w;
  from += u64(T::block()) * chunks * bytes;
  if (T::wave() == T::consumer_waves) {
    const auto address_of = [&](u32 c) -> const void* { return from + u64(c) * bytes; };
    if constexpr (requires { ring.push_chunks(chunks, bytes, address_of, w); }) {
      ring.push_chunks(chunks, bytes, address_of, w);
    } else {
      for (u32 c = 0; c < chunks; ++c)
        if (!ring.push(address_of(c), bytes, w)) break;
    }
    ring.flush();
    ring.drain();
  } else {
    u32 sum = 0;
    for (u32 c = u32(T::wave()); c < chunks; c += T::consumer_waves) {
      if (!ring.wait_full(c, w)) break;
      const lds_address at = ring.slot(c);
      for (u32 i = u32(T::lane()) * 16; i < bytes; i += 16 * T::wave_size) {
        const u32x4 v = T::lds_load16(at + i);
        sum ^= v.v[0] ^ v.v[1] ^ v.v[2] ^ v.v[3];
      }
      ring.release(c, ring_credits);
    }
    for (int mask = T::wave_size / 2; mask > 0; mask /= 2) sum ^= T::shuffle_xor(sum, mask);
    if (T::lane() == 0) T::store4(out + T::block() * T::consumer_waves + T::wave(), sum);
  }
  T::block_barrier();
}

__global__ void xor_kernel(const u32* from, u64 words, u32* out) {
  u32 sum = 0;
  for (u64 i = u64(blockIdx.x) * blockDim.x + threadIdx.x; i < words; i += u64(gridDim.x) * blockDim.x) sum ^= from[i];
  atomicXor(out, sum);
}

/// Times the stream over at least `bytes` a launch, from pool + i * stride in launch i. The bytes really read come back.
struct floor_result {
  timing time;
  u64 bytes = 0;
  bool good = false;
  double tb_s() const { return double(bytes) / time.us * 1e-6; }
};
template <class T>
floor_result time_stream(hipStream_t stream, const u8* pool, u64 stride, u64 bytes, u32 chunk_bytes, int blocks,
                         int launches, int replays) {
  static u32* out = device_array<u32>(4096);
  CHECK(hipFuncSetAttribute(reinterpret_cast<const void*>(&stream_kernel<T>),
                            hipFuncAttributeMaxDynamicSharedMemorySize, int(T::lds_bytes)));
  const u32 chunks = u32((bytes + u64(blocks) * chunk_bytes - 1) / (u64(blocks) * chunk_bytes));
  floor_result r;
  r.bytes = u64(chunks) * u64(blocks) * chunk_bytes;
  auto enqueue = [&](int i) {
    stream_kernel<T><<<blocks, (T::consumer_waves + 1) * T::wave_size, T::lds_bytes, stream>>>(pool + u64(i) * stride,
                                                                                         chunks, chunk_bytes, out);
  };
  CHECK(hipMemset(out, 0, 4096 * 4));
  enqueue(0);
  CHECK(hipGetLastError());
  CHECK(hipStreamSynchronize(stream));
  u32 sum = 0;
  for (u32 v : fetch(out, std::size_t(blocks * T::consumer_waves))) sum ^= v;
  CHECK(hipMemset(out, 0, 4));
  xor_kernel<<<1024, 256, 0, stream>>>(reinterpret_cast<const u32*>(pool), r.bytes / 4, out);
  CHECK(hipStreamSynchronize(stream));
  r.good = fetch(out, 1)[0] == sum;
  r.time = time_graph(stream, launches, replays, enqueue);
  return r;
}

inline int compute_units() {
  int device = 0, units = 0;
  CHECK(hipGetDevice(&device));
  CHECK(hipDeviceGetAttribute(&units, hipDeviceAttributeMultiprocessorCount, device));
  return units;
}

}  // namespace bench
