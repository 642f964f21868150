// Checks every promise of include/monolayer/arch/sm90.hpp on a real H100 or H200. Needs the GPU to itself
// (blocks wait for one another). Prints a line a check; exit status 0 if all hold.
//   nvcc -std=c++20 -O3 -gencode arch=compute_90a,code=sm_90a --expt-relaxed-constexpr -fmad=false -I include
//        tests/gpu/test_sm90_target.cu -o test_sm90_target
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "monolayer/arch/hip_on_cuda.hpp"
#include "monolayer/arch/sm90.hpp"

namespace {

using namespace monolayer;
using T = sm90;

constexpr int threads = 32 * (T::consumer_waves + 1);

// ---------------------------------------------------------------------------------------------------------------------
// Host side

int failures = 0;
int checks = 0;

void report(const char* what, bool good, const std::string& detail) {
  ++checks;
  failures += !good;
  std::printf("%s %s: %s\n", good ? "ok  " : "FAIL", what, detail.c_str());
  std::fflush(stdout);
}

std::string text(const char* format, auto... values) {
  char buffer[256];
  std::snprintf(buffer, sizeof buffer, format, values...);
  return buffer;
}

void require(hipError_t status, const char* what) {
  if (status == hipSuccess) return;
  std::printf("FAIL %s: %s\n", what, hipGetErrorString(status));
  std::exit(1);
}
#define REQUIRE(call) require((call), #call)

/// Device memory with a host copy.
template <class Value>
struct buffer {
  std::vector<Value> host;
  Value* device = nullptr;

  explicit buffer(std::size_t count, Value value = {}) : host(count, value) {
    REQUIRE(hipMalloc(&device, count * sizeof(Value)));
    send();
  }
  explicit buffer(const std::vector<Value>& values) : host(values) {
    REQUIRE(hipMalloc(&device, host.size() * sizeof(Value)));
    send();
  }
  buffer(const buffer&) = delete;
  ~buffer() { static_cast<void>(hipFree(device)); }
  void send() { REQUIRE(hipMemcpy(device, host.data(), host.size() * sizeof(Value), hipMemcpyHostToDevice)); }
  void fetch() {
    REQUIRE(hipMemcpy(host.data(), device, host.size() * sizeof(Value), hipMemcpyDeviceToHost));
  }
};

template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), int blocks, int block_threads, u32 lds, Arguments... arguments) {
  REQUIRE(hipFuncSetAttribute(kernel, hipFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(lds)));
  kernel<<<blocks, block_threads, lds>>>(arguments...);
  REQUIRE(hipGetLastError());
  REQUIRE(hipDeviceSynchronize());
}

u16 to_bf16(float value) {  // to nearest, ties to even; finite values
  u32 bits;
  std::memcpy(&bits, &value, 4);
  return static_cast<u16>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}
double from_bf16(u32 half) {
  const u32 bits = half << 16;
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}
double half_of(const fragment_b& fragment, int k) {
  return from_bf16(fragment.v[k / 2] >> (16 * (k % 2)) & 0xFFFF);
}
double from_e2m1(u32 code) {
  constexpr double magnitudes[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  return code & 8 ? -magnitudes[code & 7] : magnitudes[code & 7];
}
double from_e4m3(u32 code) {
  const int exponent = static_cast<int>(code >> 3 & 15), mantissa = static_cast<int>(code & 7);
  const double value = exponent ? std::ldexp(8 + mantissa, exponent - 10) : std::ldexp(mantissa, -9);
  return code & 0x80 ? -value : value;
}

MONOLAYER_HOST_DEVICE u32 mix(u32 a, u32 b = 0, u32 c = 0) {
  u32 x = a * 0x9E3779B1u ^ (b + 0x85EBCA6Bu) * 0xC2B2AE35u ^ (c + 0x27D4EB2Fu) * 0x165667B1u;
  x ^= x >> 15;
  x *= 0x2C1B3C6Du;
  x ^= x >> 12;
  x *= 0x297A2D39u;
  return x ^ x >> 15;
}

/// Ends a kernel's waits two seconds after the first failed poll.
struct deadline {
  u64 limit = 2'000'000'000;
  u64 start = 0;
  bool expired = false;
  MONOLAYER_DEVICE bool give_up() {
    T::pause();
    const u64 now = T::clock_ns();
    if (start == 0) start = now;
    expired = now - start > limit;
    return expired;
  }
};

// ---------------------------------------------------------------------------------------------------------------------
// The matrix step

/// d += a * b for many independent steps, one wave each.
__global__ void mma_kernel(const fragment_a<2>* a, const fragment_b* b, fragment_d* d, int steps) {
  const int step = T::block() * 8 + T::wave();
  if (step >= steps) return;
  const int at = step * 32 + T::lane();
  fragment_d sums = d[at];
  T::mma(a[at], b[at], sums);
  d[at] = sums;
}

struct matrices {
  u16 a[16][32], b[32][8];
  float d[16][8];
};

std::vector<matrices> multiply(const std::vector<matrices>& cases) {
  const int steps = static_cast<int>(cases.size());
  buffer<fragment_a<2>> a(cases.size() * 32);
  buffer<fragment_b> b(cases.size() * 32);
  buffer<fragment_d> d(cases.size() * 32);
  for (int step = 0; step < steps; ++step) {
    for (int lane = 0; lane < 32; ++lane) {
      const matrices& m = cases[step];
      const int at = step * 32 + lane;
      for (int i = 0; i < 4; ++i) {
        const int k = 8 * T::k_group(lane) + 2 * i;
        for (int h = 0; h < 2; ++h) {
          a.host[at].v[h][i] = m.a[T::a_row(lane, h)][k] | static_cast<u32>(m.a[T::a_row(lane, h)][k + 1])
                                                               << 16;
        }
        b.host[at].v[i] = m.b[k][T::b_column(lane)] | static_cast<u32>(m.b[k + 1][T::b_column(lane)]) << 16;
        d.host[at].v[i] = m.d[T::d_row(lane, i)][T::d_column(lane, i)];
      }
    }
  }
  a.send(), b.send(), d.send();
  launch(mma_kernel, (steps + 7) / 8, 256, 0, static_cast<const fragment_a<2>*>(a.device),
         static_cast<const fragment_b*>(b.device), d.device, steps);
  d.fetch();
  std::vector<matrices> results = cases;
  for (int step = 0; step < steps; ++step) {
    for (int lane = 0; lane < 32; ++lane) {
      for (int r = 0; r < 4; ++r) {
        results[step].d[T::d_row(lane, r)][T::d_column(lane, r)] = d.host[step * 32 + lane].v[r];
      }
    }
  }
  return results;
}

void test_mma() {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  const auto random_case = [&] {
    matrices m{};
    for (auto& row : m.a) {
      for (auto& x : row) x = to_bf16(normal(random));
    }
    for (auto& row : m.b) {
      for (auto& x : row) x = to_bf16(normal(random));
    }
    for (auto& row : m.d) {
      for (auto& x : row) x = normal(random);
    }
    return m;
  };

  {  // one k at a time: row r of A is r + 1 there and 0 elsewhere, B is 8 k + column + 1
    std::vector<matrices> cases;
    for (int k = 0; k < 32; ++k) {
      matrices m{};
      for (int r = 0; r < 16; ++r) m.a[r][k] = to_bf16(static_cast<float>(r + 1));
      for (int j = 0; j < 32; ++j) {
        for (int c = 0; c < 8; ++c) m.b[j][c] = to_bf16(static_cast<float>(8 * j + c + 1));
      }
      for (int r = 0; r < 16; ++r) {
        for (int c = 0; c < 8; ++c) m.d[r][c] = 0.5f * static_cast<float>(8 * r + c);
      }
      cases.push_back(m);
    }
    const auto results = multiply(cases);
    int wrong = 0;
    for (int k = 0; k < 32; ++k) {
      for (int r = 0; r < 16; ++r) {
        for (int c = 0; c < 8; ++c) {
          const float expected =
              static_cast<float>((r + 1) * (8 * k + c + 1)) + 0.5f * static_cast<float>(8 * r + c);
          wrong += results[k].d[r][c] != expected;
        }
      }
    }
    report("mma positions", wrong == 0, text("%d of 4096 (row, column, k) products wrong", wrong));
  }
  {  // random operands against double
    std::vector<matrices> cases;
    for (int i = 0; i < 512; ++i) cases.push_back(random_case());
    const auto results = multiply(cases);
    double worst = 0;
    for (std::size_t i = 0; i < cases.size(); ++i) {
      for (int r = 0; r < 16; ++r) {
        for (int c = 0; c < 8; ++c) {
          double sum = cases[i].d[r][c], size = std::fabs(sum);
          for (int k = 0; k < 32; ++k) {
            const double product = from_bf16(cases[i].a[r][k]) * from_bf16(cases[i].b[k][c]);
            sum += product;
            size += std::fabs(product);
          }
          worst = std::max(worst, std::fabs(results[i].d[r][c] - sum) / size);
        }
      }
    }
    report("mma sums", worst < 1e-6, text("largest error %.2e of the sum of magnitudes (limit 1e-6)", worst));
  }
  {  // a column's bits depend neither on the other columns nor on its own place
    int wrong = 0;
    for (int column = 0; column < 8; ++column) {
      std::vector<matrices> cases;
      for (int i = 0; i < 32; ++i) {
        const matrices m = random_case();
        matrices other = random_case();
        const int place = (column + i) % 8;
        std::memcpy(other.a, m.a, sizeof m.a);
        for (auto& row : other.b) {
          for (auto& x : row) x = i % 2 ? to_bf16(1e30f) : x;
        }
        for (int k = 0; k < 32; ++k) other.b[k][place] = m.b[k][column];
        for (int r = 0; r < 16; ++r) other.d[r][place] = m.d[r][column];
        cases.push_back(m);
        cases.push_back(other);
      }
      const auto results = multiply(cases);
      for (int i = 0; i < 32; ++i) {
        for (int r = 0; r < 16; ++r) {
          wrong +=
              std::memcmp(&results[2 * i].d[r][column], &results[2 * i + 1].d[r][(column + i) % 8], 4) != 0;
        }
      }
    }
    report("mma column independence", wrong == 0, text("%d of 4096 sums changed", wrong));
  }
  {  // subnormal operands count: 2^-130 * 2^100
    matrices m{};
    m.a[3][9] = 0x0008, m.b[9][5] = to_bf16(0x1p100f);
    const float got = multiply({m})[0].d[3][5];
    report("mma subnormals", got == 0x1p-30f, text("2^-130 * 2^100 = %a", got));
  }
}

// ---------------------------------------------------------------------------------------------------------------------
// Weights to bf16

__global__ void widen_e2m1_kernel(const u32* words, fragment_b* wide, int count) {
  const int i = T::block() * 256 + static_cast<int>(threadIdx.x);
  if (i < count) wide[i] = T::widen_e2m1x8(words[i], 0);
}
__global__ void widen_e4m3_kernel(const u32x2* words, fragment_b* wide, int count) {
  const int i = T::block() * 256 + static_cast<int>(threadIdx.x);
  if (i < count) wide[i] = T::widen_e4m3x8(words[i]);
}

void test_widen() {
  {
    // The scale is not applied here: it multiplies the sums (mxfp4_scales_sums).
    std::vector<u32> codes, words;
    for (u32 i = 0; i < 4096; ++i) {
      u32 word = 0;  // every code at every place, then random ones
      for (u32 k = 0; k < 8; ++k) word |= (i < 16 ? (i + 3 * k) % 16 : mix(i, k) % 16) << (4 * k);
      codes.push_back(word);
      words.push_back(T::arrange_e2m1x8(word));
    }
    const int count = static_cast<int>(words.size());
    buffer<u32> device_words(words);
    buffer<fragment_b> wide(words.size());
    launch(widen_e2m1_kernel, (count + 255) / 256, 256, 0, static_cast<const u32*>(device_words.device), wide.device,
           count);
    wide.fetch();
    int wrong = 0;
    for (int i = 0; i < count; ++i)
      for (int k = 0; k < 8; ++k)
        wrong += half_of(wide.host[i], k) != std::ldexp(from_e2m1(codes[i] >> (4 * k) & 15), -126);
    report("widen e2m1", wrong == 0, text("%d of %d wrong", wrong, 8 * count));
  }
  {
    std::vector<u64> codes;
    std::vector<u32x2> words;
    for (u32 i = 0; i < 1024; ++i) {
      u64 word = 0;
      for (u32 k = 0; k < 8; ++k) {
        u32 code = i < 256 ? (i + 37 * k) % 256 : mix(i, k) % 256;
        if ((code & 0x7F) == 0x7F) code ^= 1;
        word |= static_cast<u64>(code) << (8 * k);
      }
      codes.push_back(word);
      const u64 packed = T::arrange_e4m3x8(word);
      words.push_back({{static_cast<u32>(packed), static_cast<u32>(packed >> 32)}});
    }
    const int count = static_cast<int>(words.size());
    buffer<u32x2> device_words(words);
    buffer<fragment_b> wide(words.size());
    launch(widen_e4m3_kernel, (count + 255) / 256, 256, 0, static_cast<const u32x2*>(device_words.device),
           wide.device, count);
    wide.fetch();
    int wrong = 0;
    for (int i = 0; i < count; ++i) {
      for (int k = 0; k < 8; ++k) wrong += half_of(wide.host[i], k) != std::ldexp(from_e4m3(codes[i] >> (8 * k) & 255), -120);
    }
    report("widen e4m3", wrong == 0, text("%d of %d wrong", wrong, 8 * count));
  }
}

// ---------------------------------------------------------------------------------------------------------------------
// The ring

struct stream_plan {
  ring_geometry geometry;
  u32 chunks;
  u32 units;   // of a chunk: 1, 2, 4 or 8
  u32 spread;  // a chunk's first unit goes to wave (chunk * spread) % consumer_waves
  u32 seed;
  u32 slow;        // one unit in `slow` takes its wave some microseconds; 0: none
  u32 flush;       // one push in `flush` is followed by a flush; 0: none
  u32 data_bytes;  // of the source
};

MONOLAYER_HOST_DEVICE u32 chunk_bytes(const stream_plan& plan, u32 block, u32 chunk) {
  return 16 * (1 + mix(plan.seed, block, 2 * chunk) % (plan.geometry.slot_bytes / 16));
}
MONOLAYER_HOST_DEVICE u32 chunk_source(const stream_plan& plan, u32 block, u32 chunk) {
  return 16 * (mix(plan.seed, block, 2 * chunk + 1) % ((plan.data_bytes - plan.geometry.slot_bytes) / 16));
}

/// Streams `chunks` chunks of random sizes; sums word * (2 * index in its chunk + 1) of all of them.
__global__ void __launch_bounds__(threads, 1)
    ring_kernel(stream_plan plan, const u8* data, u32* sums, u32* stuck) {
  if (T::wave() == 3) T::ring::init(plan.geometry);
  T::block_barrier();
  typename T::ring ring(plan.geometry);
  deadline watch;
  const u32 block = static_cast<u32>(T::block());
  if (T::wave() == T::consumer_waves) {
    bool good = true;
    for (u32 chunk = 0; chunk < plan.chunks && good; ++chunk) {
      good = ring.push(data + chunk_source(plan, block, chunk), chunk_bytes(plan, block, chunk), watch);
      if (good && plan.flush != 0 && mix(plan.seed, chunk, 77) % plan.flush == 0) ring.flush();
    }
    ring.flush();
    ring.drain();
    if (!good && T::lane() == 0) T::fetch_add(stuck, 1);
  } else {
    u32 sum = 0;
    for (u32 chunk = 0; chunk < plan.chunks; ++chunk) {
      for (u32 unit = 0; unit < plan.units; ++unit) {
        if ((chunk * plan.spread + unit) % T::consumer_waves != static_cast<u32>(T::wave())) continue;
        if (!ring.wait_full(chunk, watch)) {
          if (T::lane() == 0) T::fetch_add(stuck, 1);
          goto out;
        }
        if (plan.slow != 0 && mix(plan.seed, chunk, unit + 1000) % plan.slow == 0) __nanosleep(5000);
        const u32 pieces = chunk_bytes(plan, block, chunk) / 16;
        const lds_address at = ring.slot(chunk);
        for (u32 i = unit * 32 + T::lane(); i < pieces; i += plan.units * 32) {
          const u32x4 quad = T::lds_load16(at + 16 * i);
          for (u32 j = 0; j < 4; ++j) sum += quad.v[j] * (2 * (4 * i + j) + 1);
        }
        ring.release(chunk, ring_credits / plan.units);
      }
    }
  out:
    T::fetch_add(sums + block, sum);
  }
  T::block_barrier();
}

void test_ring(int blocks) {
  constexpr u32 data_bytes = 4 << 20;
  std::vector<u32> words(data_bytes / 4);
  for (u32 i = 0; i < words.size(); ++i) words[i] = mix(i, 5);
  buffer<u32> data(words);
  struct shape {
    u32 count, cap, slot_bytes, chunks, units, spread, slow, flush;
  };
  const shape shapes[] = {
      {24, 8, 8192, 300, 8, 8, 0, 0},    // the usual one
      {24, 8, 8192, 150, 8, 8, 50, 7},   // waves that dawdle, flushes
      {27, 27, 8192, 300, 4, 4, 0, 0},   // no cap, an odd count
      {12, 5, 16384, 150, 2, 2, 40, 5},  //
      {4, 3, 8192, 200, 1, 1, 10, 0},    // waves skip four rounds of the ring between their chunks
      {2, 2, 8192, 200, 1, 5, 20, 0},    // both slots in one batch
      {2, 1, 4096, 200, 8, 8, 20, 3},    // one chunk in flight
      {3, 2, 1024, 400, 8, 3, 0, 2},     //
      {64, 64, 1024, 500, 1, 1, 30, 0},  // every slot that a ring may have
      {7, 4, 8192, 200, 1, 16, 20, 0},   // one wave takes everything
  };
  int number = 0;
  for (const shape& s : shapes) {
    const stream_plan plan{.geometry = {.control = 1024,
                                        .slots = 4096,
                                        .slot_bytes = s.slot_bytes,
                                        .count = s.count,
                                        .cap = s.cap},
                           .chunks = s.chunks,
                           .units = s.units,
                           .spread = s.spread,
                           .seed = mix(99, static_cast<u32>(number++)),
                           .slow = s.slow,
                           .flush = s.flush,
                           .data_bytes = data_bytes};
    buffer<u32> sums(blocks), stuck(1);
    launch(ring_kernel, blocks, threads, T::lds_bytes, plan, reinterpret_cast<const u8*>(data.device),
           sums.device, stuck.device);
    sums.fetch(), stuck.fetch();
    int wrong = 0;
    for (int block = 0; block < blocks; ++block) {
      u32 sum = 0;
      for (u32 chunk = 0; chunk < plan.chunks; ++chunk) {
        const u32* source = words.data() + chunk_source(plan, block, chunk) / 4;
        for (u32 i = 0; i < chunk_bytes(plan, block, chunk) / 4; ++i) sum += source[i] * (2 * i + 1);
      }
      wrong += sum != sums.host[block];
    }
    report("ring stream", wrong == 0 && stuck.host[0] == 0,
           text("%u slots of %u, cap %u, %u units: %d of %d blocks wrong, %u waves gave up", s.count,
                s.slot_bytes, s.cap, s.units, wrong, blocks, stuck.host[0]));
  }
}

/// Nobody releases: push must fail once no whole batch of slots is left, and all that was pushed lands; a
/// consumer then waits for a chunk that never comes.
__global__ void __launch_bounds__(threads, 1)
    ring_stop_kernel(ring_geometry geometry, const u8* data, u32* results) {
  if (T::wave() == 0) T::ring::init(geometry);
  T::block_barrier();
  typename T::ring ring(geometry);
  deadline watch{.limit = 1'000'000};
  if (T::wave() == T::consumer_waves) {
    u32 pushed = 0;
    while (pushed < 1000 && ring.push(data + pushed * 4096, 4096, watch)) ++pushed;
    ring.drain();
    if (T::lane() == 0) results[0] = pushed;
  } else if (T::wave() == 1) {
    const bool first = ring.wait_full(0, watch);
    watch.start = 0;
    const bool never = ring.wait_full(geometry.count + 1, watch);
    if (T::lane() == 0) results[1] = first, results[2] = never;
  }
  T::block_barrier();
}

void test_ring_stop() {
  buffer<u8> data(1 << 20);
  buffer<u32> results(3, 7);
  const ring_geometry geometry{.control = 0, .slots = 1024, .slot_bytes = 4096, .count = 6, .cap = 4};
  launch(ring_stop_kernel, 1, threads, T::lds_bytes, geometry, static_cast<const u8*>(data.device),
         results.device);
  results.fetch();
  report("ring gives up",
         results.host[0] == geometry.count && results.host[1] == 1 && results.host[2] == 0,
         text("%u chunks pushed into %u slots, first chunk %u, absent chunk %u", results.host[0],
              geometry.count, results.host[1], results.host[2]));
}

// ---------------------------------------------------------------------------------------------------------------------
// Between blocks

/// Each epoch every block publishes 8 KiB (16 bytes a thread), arrives, waits for all, and reads another
/// block's. Two buffers suffice: a block writes epoch e + 2 after all have arrived at e + 1, that is, have
/// read e.
__global__ void __launch_bounds__(threads, 1)
    arrival_kernel(u8* slots, u32* counter, u32 epochs, u32* wrong, u32* stuck, u64* longest) {
  if (T::wave() == T::consumer_waves) return;
  typename T::consumer_group group(0);
  constexpr u32 slot_bytes = 16 * 32 * T::consumer_waves;
  const u32 blocks = static_cast<u32>(T::blocks()), block = static_cast<u32>(T::block());
  const u32 thread = threadIdx.x;
  deadline watch;
  bool alive = true;
  const u64 start = T::clock_ns();
  for (u32 epoch = 1; epoch <= epochs && alive; ++epoch) {
    u8* const payload = slots + static_cast<u64>(epoch & 1) * blocks * slot_bytes;
    const u32 seed = mix(epoch, block, thread);
    u8* const own = payload + block * slot_bytes + 16 * thread;
    switch (epoch % 3) {
      case 0:
        T::slot_store16(own, {{seed, seed + 1, seed + 2, seed + 3}});
        break;
      case 1:
        for (u32 i = 0; i < 4; ++i) T::slot_store4(own + 4 * i, seed + i);
        break;
      default:
        for (u32 i = 0; i < 4; ++i) {
          T::slot_store2(own + 4 * i, static_cast<u16>(seed + i));
          T::slot_store2(own + 4 * i + 2, static_cast<u16>((seed + i) >> 16));
        }
    }
    T::drain_stores();
    group.sync();
    if (thread == 0) {
      T::arrive(counter, 3);
      bool lost = false;
      while (!lost && static_cast<int>(T::poll4(counter) - 3 * blocks * epoch) < 0) lost = watch.give_up();
      T::lds_flag_store(0, lost);
    }
    group.sync();
    alive = T::lds_flag_load(0) == 0;
    const u32 from = (block + mix(epoch) % blocks) % blocks;
    const u32 other_thread = (thread * 33 + 5) % (32 * T::consumer_waves);
    const u8* const at = payload + from * slot_bytes + 16 * other_thread;
    const u32 expected = mix(epoch, from, other_thread);
    const u32x4 got = T::slot_load16(at);
    const u32 last = T::slot_load4(at + 12);
    bool good = last == expected + 3;
    for (u32 i = 0; i < 4; ++i) good = good && got.v[i] == expected + i;
    if (!good) T::fetch_add(wrong, 1);
  }
  if (thread == 0) {
    if (!alive) T::fetch_add(stuck, 1);
    if (block == 0) *longest = T::clock_ns() - start;
  }
}

void test_arrivals(int blocks) {
  constexpr u32 epochs = 20000;
  buffer<u8> slots(static_cast<std::size_t>(2) * blocks * 16 * 32 * T::consumer_waves);
  buffer<u32> counter(32), wrong(1), stuck(1);
  buffer<u64> time(1);
  launch(arrival_kernel, blocks, threads, 1024u, slots.device, counter.device, epochs, wrong.device,
         stuck.device, time.device);
  wrong.fetch(), stuck.fetch(), time.fetch();
  report("arrivals", wrong.host[0] == 0 && stuck.host[0] == 0,
         text("%u epochs of %d blocks: %u wrong payloads, %u blocks gave up, %.2f us an epoch", epochs,
              blocks, wrong.host[0], stuck.host[0], static_cast<double>(time.host[0]) / 1e3 / epochs));
}

/// Each epoch every block writes 64 tagged words for either neighbour and waits for theirs. It writes epoch e
/// + 2 only after both have sent e + 1, that is, have read e.
__global__ void tagged_kernel(u8* mailboxes, u32 epochs, bool peer, u32* wrong, u32* stuck) {
  const u32 blocks = static_cast<u32>(T::blocks()), block = static_cast<u32>(T::block());
  const u32 side = threadIdx.x / 32, pair = threadIdx.x % 32;
  const u32 neighbour = (block + (side == 0 ? 1 : blocks - 1)) % blocks;
  deadline watch;
  for (u32 epoch = 1; epoch <= epochs; ++epoch) {
    const u32 tag = 0xFFFFFF00u + epoch;  // passes through 0 on the way
    const auto box = [&](u32 owner, u32 from_side) {
      return mailboxes + (((epoch & 1) * blocks + owner) * 2 + from_side) * 512 + 16 * pair;
    };
    for (u32 i = 0; i < 2; ++i) {
      const u64 word = static_cast<u64>(tag) << 32 | mix(epoch, block, 64 * side + 2 * pair + i);
      u8* const at = box(neighbour, 1 - side) + 8 * i;
      if (peer) {
        T::tagged_store_peer(at, word);
      } else {
        T::tagged_store(at, word);
      }
    }
    u32x4 got;
    while (true) {
      got = T::tagged_load2(box(block, side));
      if (got.v[1] == tag && got.v[3] == tag) break;
      if (watch.give_up()) {
        T::fetch_add(stuck, 1);
        return;
      }
    }
    for (u32 i = 0; i < 2; ++i) {
      if (got.v[2 * i] != mix(epoch, neighbour, 64 * (1 - side) + 2 * pair + i)) T::fetch_add(wrong, 1);
    }
    __syncthreads();
  }
}

void test_tagged(int blocks) {
  constexpr u32 epochs = 5000;
  for (const bool peer : {false, true}) {
    buffer<u8> mailboxes(static_cast<std::size_t>(2) * blocks * 2 * 512);
    buffer<u32> wrong(1), stuck(1);
    launch(tagged_kernel, blocks, 64, 0u, mailboxes.device, epochs, peer, wrong.device, stuck.device);
    wrong.fetch(), stuck.fetch();
    report(peer ? "tagged words, system scope" : "tagged words", wrong.host[0] == 0 && stuck.host[0] == 0,
           text("%u epochs of %d blocks: %u wrong words, %u lanes gave up", epochs, blocks, wrong.host[0],
                stuck.host[0]));
  }
}

/// fetch_add hands out each number once; compare_exchange has one winner; arrive_system's word carries what
/// came before.
__global__ void control_kernel(u32* next, u32* tickets, u32* claimed, u32* winners, u32* word, u32* wrong) {
  const u32 block = static_cast<u32>(T::block());
  T::fetch_add(tickets + T::fetch_add(next, 1), 1);
  if (T::compare_exchange(claimed, 0, block * 64 + threadIdx.x + 1) == 0) {
    T::fetch_add(winners, 1);
    T::slot_store4(word + 32, 0xABCD);
    T::arrive_system(word, 1);
  }
  deadline watch;
  while (T::poll4(word) != 1) {
    if (watch.give_up()) break;
  }
  if (T::slot_load4(word + 32) != 0xABCD || T::poll16(word).v[0] != 1) T::fetch_add(wrong, 1);
}

void test_control(int blocks) {
  const int lanes = 64 * blocks;
  buffer<u32> next(1), tickets(lanes), claimed(1), winners(1), word(64), wrong(1);
  launch(control_kernel, blocks, 64, 0u, next.device, tickets.device, claimed.device, winners.device,
         word.device, wrong.device);
  next.fetch(), tickets.fetch(), claimed.fetch(), winners.fetch(), wrong.fetch();
  const auto once = std::count(tickets.host.begin(), tickets.host.end(), 1u);
  report(
      "atomics",
      next.host[0] == static_cast<u32>(lanes) && once == lanes && winners.host[0] == 1 && wrong.host[0] == 0,
      text("%d of %d tickets once, %u winners, %u lanes without the winner's word", static_cast<int>(once),
           lanes, winners.host[0], wrong.host[0]));
}

// ---------------------------------------------------------------------------------------------------------------------
// Within a block

__global__ void __launch_bounds__(threads, 1)
    block_kernel(u32* wrong, const u8* source, u8* target_memory, u64* times) {
  const int lane = T::lane(), wave = T::wave();
  const auto check = [&](int which, bool good) {
    if (!good) T::fetch_add(wrong + which, 1);
  };
  // wave primitives
  const u32 own = mix(wave, lane), all_max = T::wave_max(own), all_min = T::wave_min(own);
  u32 largest = 0, smallest = ~0u, bits = 0;
  for (int i = 0; i < 32; ++i) {
    largest = max(largest, mix(wave, i));
    smallest = min(smallest, mix(wave, i));
    bits |= (mix(wave, i) & 1) << i;
  }
  check(0, all_max == largest && all_min == smallest);
  check(1, T::ballot(own & 1) == bits);
  for (int mask = 1; mask < 32; ++mask) check(2, T::shuffle_xor(own, mask) == mix(wave, lane ^ mask));
  // LDS of every width, up to its last byte
  const lds_address last = T::lds_bytes - 16 * threads + 16 * threadIdx.x;
  T::lds_store16(last, {{own, own + 1, own + 2, own + 3}});
  T::lds_store2(last + 6, 0x1234);
  T::lds_store1(last + 15, 0x56);
  T::lds_store4(last + 8, 99);
  T::block_barrier();
  const lds_address other = T::lds_bytes - 16 * threads + 16 * ((threadIdx.x + 77) % threads);
  const u32 theirs = mix((threadIdx.x + 77) % threads / 32, (threadIdx.x + 77) % threads % 32);
  const u32x4 quad = T::lds_load16(other);
  const u32x2 pair = T::lds_load8(other + 8);
  check(3, quad.v[0] == theirs && quad.v[1] == (((theirs + 1) & 0xFFFF) | 0x12340000u) && quad.v[2] == 99 &&
               quad.v[3] == (((theirs + 3) & 0xFFFFFFu) | 0x56000000u) && pair.v[0] == 99 &&
               pair.v[1] == quad.v[3] && T::lds_load4(other + 8) == 99);
  T::block_barrier();
  // flags: wave 5 writes, the others read behind its flag
  if (threadIdx.x == 0) T::lds_store4(0, 0);
  T::block_barrier();
  for (u32 round = 1; round <= 50; ++round) {
    if (wave == 5) {
      T::lds_store4(1024 + 4 * lane, mix(round, lane));
      T::wave_sync();
      if (lane == 0) T::lds_flag_store(0, round);
    } else {
      while (T::lds_flag_load(0) != round) T::pause();
      check(4, T::lds_load4(1024 + 4 * (31 - lane)) == mix(round, 31 - lane));
    }
    T::block_barrier();
  }
  // the consumers' barrier, while the producer wave stays away
  if (wave < T::consumer_waves) {
    typename T::consumer_group group(4096);
    for (u32 round = 0; round < 500; ++round) {
      if (mix(round, wave) % 8 == 0) __nanosleep(200);
      T::lds_store4(8192 + 4096 * (round & 1) + 4 * threadIdx.x, mix(round, threadIdx.x));
      group.sync();
      const u32 from = (threadIdx.x + 32 * (round % 16) + 32) % (32 * T::consumer_waves);
      check(5, T::lds_load4(8192 + 4096 * (round & 1) + 4 * from) == mix(round, from));
    }
  }
  // ordinary loads and stores
  const u8* const from = source + 16 * threadIdx.x;
  u8* const to = target_memory + 32 * threadIdx.x;
  T::store16(to, T::load16(from));
  const u32x2 eight = T::load8(from);
  T::store4(to + 16, eight.v[0]);
  T::store4(to + 20, T::load4(from + 4));
  T::store2(to + 24, static_cast<u16>(T::load4(from + 8)));
  T::store2(to + 26, static_cast<u16>(T::load4(from + 8) >> 16));
  T::store4(to + 28, eight.v[1]);
  if (threadIdx.x == 0) {
    times[0] = T::clock_ns();
    for (int i = 0; i < 100; ++i) __nanosleep(10000);
    times[1] = T::clock_ns();
    for (int i = 0; i < 1000; ++i) T::pause();
    times[2] = T::clock_ns();
  }
  check(6, T::group_of_block(T::block()) == 0 && T::blocks() == 1 && T::block() == 0);
  T::block_barrier();
}

void test_block() {
  buffer<u32> wrong(8);
  std::vector<u32> words(4 * threads);
  for (u32 i = 0; i < words.size(); ++i) words[i] = mix(i, 3);
  buffer<u32> source(words), copies(8 * threads);
  buffer<u64> times(3);
  launch(block_kernel, 1, threads, T::lds_bytes, wrong.device, reinterpret_cast<const u8*>(source.device),
         reinterpret_cast<u8*>(copies.device), times.device);
  wrong.fetch(), copies.fetch(), times.fetch();
  const char* const names[] = {"wave max and min", "ballot",           "shuffle",   "LDS accesses",
                               "LDS flags",        "consumer barrier", "identities"};
  for (int i = 0; i < 7; ++i) report(names[i], wrong.host[i] == 0, text("%u wrong", wrong.host[i]));
  int bad = 0;
  for (int i = 0; i < threads; ++i) {
    const u32* s = &words[4 * i];
    const u32 expected[8] = {s[0], s[1], s[2], s[3], s[0], s[1], s[2], s[1]};
    bad += std::memcmp(&copies.host[8 * i], expected, 32) != 0;
  }
  report("loads and stores", bad == 0, text("%d threads wrong", bad));
  const double slept = static_cast<double>(times.host[1] - times.host[0]) / 1e3;
  const double pause = static_cast<double>(times.host[2] - times.host[1]) / 1e3;
  report("clock and pause", slept > 100 && slept < 10000 && pause < 200,
         text("1000 us of sleep took %.0f us, a pause %.0f ns", slept, pause));
}

}  // namespace

int main() {
  int count = 0;
  if (hipGetDeviceCount(&count) != hipSuccess || count == 0) {
    std::puts("no GPU here");
    return 1;
  }
  hipDeviceProp_t properties;
  REQUIRE(hipGetDeviceProperties(&properties, 0));
  const int blocks = properties.multiProcessorCount;
  std::printf("%s, %d blocks\n", properties.name, blocks);
  test_mma();
  test_widen();
  test_block();
  test_ring(blocks);
  test_ring_stop();
  test_arrivals(blocks);
  test_tagged(blocks);
  test_control(blocks);
  std::printf("%d passed, %d failed\n", checks - failures, failures);
  return failures != 0;
}
