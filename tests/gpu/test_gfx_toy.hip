// A small persistent kernel over the target concept, and one that tries a target's functions one by one.
// test_gfx_toy.py runs both in the interpreter and knows what must come out.
#include <hip/hip_runtime.h>

#include "monolayer/arch/gfx942.hpp"
#include "monolayer/arch/gfx950.hpp"

using namespace monolayer;

namespace toy {

// Each tile is 16 features x (chunks_per_tile * 1024) k of MXFP4, times 16 columns. A chunk: 8192 bytes of
// codes, lane by lane (wave w, lane l: 16 bytes at (w * 64 + l) * 16, four steps of 8 codes), then 512 scales
// [step][row]. The last chunk of a tile holds half of the steps only, so chunks differ in size.
constexpr u32 chunks_per_tile = 3, tiles = 4, workers = 2;
constexpr u32 codes_bytes = 8192, scales_bytes = 512, chunk_bytes = codes_bytes + scales_bytes;
constexpr u32 half_bytes = chunk_bytes / 2;
constexpr u32 tile_bytes = (chunks_per_tile - 1) * chunk_bytes + half_bytes;
constexpr u32 tile_k = (chunks_per_tile - 1) * 1024 + 512;

constexpr u32 flag_abort = 0, group_at = 16, control_at = 64, partial_at = 1024,
              slots_at = partial_at + 8 * 1024;
constexpr u32 slot_bytes = 9216, ring_count = 4, ring_cap = 3;

struct arguments {
  const u8* weights;  // [workers][tiles][tile_bytes]
  const u8* x;        // bf16 [16 columns][tile_k]
  u8* slot;           // f32 [workers][tiles][64 lanes][4]
  u8* words;          // arrivals, 128 bytes apart [workers][tiles]
  u8* tagged;         // 8-byte words [workers][tiles][64]
  u8* out;            // f32 [tiles][64 lanes][4], then u32 [tiles][64] sums of tagged data
  u8* control;        // [0] exits, [4] compare-exchange
  u32 epoch;
};

template <class T>
struct watch {
  MONOLAYER_DEVICE bool give_up() { return T::lds_flag_load(flag_abort) != 0; }
};

template <class T>
MONOLAYER_DEVICE void produce(const arguments& a, typename T::ring& ring) {
  watch<T> w;
  for (u32 tile = 0; tile < tiles; ++tile) {
    const u8* from = a.weights + (u32(T::block()) * tiles + tile) * tile_bytes;
    for (u32 c = 0; c < chunks_per_tile; ++c) {
      const u32 bytes = c + 1 < chunks_per_tile ? chunk_bytes : half_bytes;
      if (!ring.push(from, bytes, w)) break;
      from += bytes;
    }
  }
  ring.drain();
}

template <class T>
MONOLAYER_DEVICE void work(const arguments& a, typename T::ring& ring, typename T::consumer_group& group) {
  watch<T> w;
  const int lane = T::lane(), wave = T::wave();
  u32 n = 0;
  for (u32 tile = 0; tile < tiles; ++tile) {
    fragment_d d{};
    for (u32 c = 0; c < chunks_per_tile; ++c, ++n) {
      const int waves = c + 1 < chunks_per_tile ? 8 : 4;
      if (wave >= waves) continue;
      if (!ring.wait_full(n, w)) return;
      const lds_address chunk = ring.slot(n);
      const u32x4 codes = T::lds_load16(chunk + u32(wave * 64 + lane) * 16);
      for (int s = 0; s < 4; ++s) {
        const u32 step = u32(wave * 4 + s);
        const lds_address scale_at = chunk + u32(waves) * 1024 + step * 16 + u32(T::a_row(lane, 0));
        const u32 scale = T::lds_load4(scale_at & ~3u) >> (8 * (scale_at & 3u)) & 255u;
        fragment_a<T::lane_rows> left;
        const fragment_b wide = T::widen_e2m1x8(codes.v[s], scale);
        for (int i = 0; i < 4; ++i) left.v[0][i] = wide.v[i];
        const u32 k = c * 1024 + step * 32 + u32(T::k_group(lane)) * 8;
        const u32x4 x = T::load16(a.x + (u32(T::b_column(lane)) * tile_k + k) * 2);
        T::mma(left, fragment_b{{x.v[0], x.v[1], x.v[2], x.v[3]}}, d);
      }
      ring.release(n, ring_credits / u32(waves));
    }
    T::lds_store16(partial_at + u32(wave * 64 + lane) * 16, __builtin_bit_cast(u32x4, d));
    group.sync();
    const u32 place = u32(T::block()) * tiles + tile;
    if (wave == int(tile % 8)) {
      fragment_d sum{};
      for (int v = 0; v < 8; ++v) {
        const auto part = __builtin_bit_cast(fragment_d, T::lds_load16(partial_at + u32(v * 64 + lane) * 16));
        for (int r = 0; r < 4; ++r) sum.v[r] += part.v[r];
      }
      T::slot_store16(a.slot + (place * 64 + u32(lane)) * 16, __builtin_bit_cast(u32x4, sum));
      T::tagged_store(a.tagged + (place * 64 + u32(lane)) * 8,
                      u64(a.epoch) << 32 | u32(place * 1000 + u32(lane)));
    }
    T::drain_stores();
    group.sync();
    if (wave == 0 && lane == 0) T::arrive(a.words + place * 128, a.epoch);
  }
}

template <class T>
MONOLAYER_DEVICE void gather(const arguments& a, typename T::consumer_group& group) {
  const int lane = T::lane(), wave = T::wave();
  for (u32 tile = 0; tile < tiles; ++tile) {
    if (wave == 7) {  // the sync wave
      while (true) {
        const bool mine =
            lane >= int(workers) || T::poll4(a.words + (u32(lane) * tiles + tile) * 128) == a.epoch;
        if (T::ballot(mine) == ~u64(0)) break;
        T::pause();
      }
    }
    group.sync();
    if (wave == 0) {
      u32x4 parts[workers];
      for (u32 b = 0; b < workers; ++b)
        parts[b] = T::slot_load16(a.slot + ((b * tiles + tile) * 64 + u32(lane)) * 16);
      fragment_d sum{};
      for (u32 b = 0; b < workers; ++b) {
        const auto part = __builtin_bit_cast(fragment_d, parts[b]);
        for (int r = 0; r < 4; ++r) sum.v[r] += part.v[r];
      }
      T::store16(a.out + (tile * 64 + u32(lane)) * 16, __builtin_bit_cast(u32x4, sum));
    } else if (wave == 1 && lane < 32) {
      u32 sum[2] = {0, 0};
      for (u32 b = 0; b < workers; ++b) {
        u32x4 two;
        do {
          two = T::tagged_load2(a.tagged + ((b * tiles + tile) * 64 + u32(lane) * 2) * 8);
          if (two.v[1] != a.epoch || two.v[3] != a.epoch) T::pause();
        } while (two.v[1] != a.epoch || two.v[3] != a.epoch);
        sum[0] += two.v[0];
        sum[1] += two.v[2];
      }
      T::store4(a.out + tiles * 1024 + (tile * 64 + u32(lane) * 2) * 4, sum[0]);
      T::store4(a.out + tiles * 1024 + (tile * 64 + u32(lane) * 2 + 1) * 4, sum[1]);
    }
    group.sync();
  }
}

template <class T>
MONOLAYER_DEVICE void layer(const arguments& a) {
  const ring_geometry geometry{control_at, slots_at, slot_bytes, ring_count, ring_cap};
  if (T::wave() == 0) {
    T::ring::init(geometry);
    if (T::lane() == 0) {
      T::lds_store4(flag_abort, 0);
      T::lds_store4(group_at, 0);
    }
  }
  T::block_barrier();
  typename T::consumer_group group{group_at};
  if (T::block() < int(workers)) {
    typename T::ring ring{geometry};
    if (T::wave() == T::consumer_waves) {
      produce<T>(a, ring);
    } else {
      work<T>(a, ring, group);
    }
  } else if (T::wave() < T::consumer_waves) {
    gather<T>(a, group);
  }
  T::block_barrier();
  if (T::wave() == 0 && T::lane() == 0) {
    if (T::fetch_add(a.control, 1) + 1 == u32(T::blocks()))
      T::compare_exchange(a.control + 4, a.epoch, a.epoch + 1);
  }
}

// One wave. in: words as the cases want; out: [case][lane][4] words.
template <class T>
MONOLAYER_DEVICE void cases(const u8* in, u8* out) {
  const int lane = T::lane();
  u32 row = 0;
  const auto put = [&](u32 a, u32 b, u32 c, u32 d) {
    T::store16(out + (row++ * 64 + u32(lane)) * 16, u32x4{{a, b, c, d}});
  };
  const u32 word = T::load4(in + lane * 4);
  put(T::wave_max(word), T::wave_min(word), u32(T::ballot(word & 1)), u32(T::ballot(word & 1) >> 32));
  put(T::shuffle_xor(word, 1), T::shuffle_xor(word, 2), T::shuffle_xor(word, 8), T::shuffle_xor(word, 32));
  put(T::shuffle_xor(word, 4), T::shuffle_xor(word, 16), T::shuffle_xor(word, 63), u32(T::blocks()));
  for (int i = 0; i < 4; ++i) {  // e2m1: 8 codes a lane at 256 + i * 256, their scale in the lane number
    const fragment_b f = T::widen_e2m1x8(T::load4(in + 256 + i * 256 + lane * 4), u32(lane * 4 + i) % 253u);
    put(f.v[0], f.v[1], f.v[2], f.v[3]);
  }
  const fragment_b f = T::widen_e4m3x8(T::load8(in + 1280 + lane * 8));  // e4m3: 8 codes a lane
  put(f.v[0], f.v[1], f.v[2], f.v[3]);
  // LDS: bytes, halves, words, flags; the lanes read each other's
  const u32 at = 4096;
  T::lds_store1(at + u32(lane), u8(word));
  T::lds_store2(at + 64 + u32(lane) * 2, u16(word));
  T::lds_store4(at + 256 + u32(lane) * 4, word);
  T::wave_sync();
  const u32x2 two = T::lds_load8(at + 64 + u32(lane ^ 5) * 8 % 128);
  put(T::lds_load4(at + u32(lane % 16) * 4), two.v[0], two.v[1], T::lds_load4(at + 256 + u32(lane ^ 9) * 4));
  T::lds_store16(at + 1024 + u32(lane) * 16, u32x4{{word, word + 1, word + 2, word + 3}});
  T::lds_flag_store(at + 512, 77);
  const u32 flag = T::lds_flag_load(at + 512);
  const u32x4 four = T::lds_load16(at + 1024 + u32(lane ^ 1) * 16);
  put(four.v[0], four.v[3], flag, u32(T::group_of_block(3)));
  // slots: every width of store, then loads of this wave's own stores
  u8* slot = out + 65536;
  T::slot_store2(slot + lane * 2, u16(word));
  T::slot_store4(slot + 128 + lane * 4, word);
  T::slot_store16(slot + 512 + lane * 16, u32x4{{word, 1, 2, 3}});
  T::tagged_store_peer(slot + 2048 + lane * 8, u64(word) << 32 | u32(lane));
  T::drain_stores();
  const u32x4 s = T::slot_load16(slot + 512 + (lane ^ 3) * 16),
              t = T::tagged_load2(slot + 2048 + lane / 2 * 16);
  put(s.v[0], s.v[3], t.v[0], t.v[3]);
  const u32x4 p = T::poll16(slot + 128 + lane / 4 * 16);
  put(T::slot_load4(slot + lane / 2 * 4), T::poll4(slot + 128 + (lane ^ 7) * 4), p.v[0], p.v[3]);
  if (lane == 0) {
    T::arrive_system(slot + 4096, 5);
    T::store4(slot + 4100, T::fetch_add(slot + 4104, 3));
    T::store4(slot + 4108, T::compare_exchange(slot + 4112, 1, 9));
    T::store2(slot + 4116, 0x1234);
    const u64 before = T::clock_ns();
    T::pause();
    T::store4(slot + 4120, T::clock_ns() > before);
  }
  T::trace(0, 0, 0);
}

}  // namespace toy

#if defined(__gfx942__)
using machine = gfx942;
#else
using machine = gfx950;
#endif

extern "C" __global__ void __launch_bounds__(576) toy_layer(toy::arguments a) { toy::layer<machine>(a); }
extern "C" __global__ void __launch_bounds__(64) toy_cases(const u8* in, u8* out) {
  toy::cases<machine>(in, out);
}
