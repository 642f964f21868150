// The simulated targets: what device code calls. Each function looks up the running lane and asks its
// machine.
#pragma once

#include <cstring>

#include "monolayer/arch/sim/machine.hpp"
#include "monolayer/arch/sim/widen.hpp"
#include "monolayer/arch/target.hpp"
#include "monolayer/arch/wave_layouts.hpp"

namespace monolayer::sim {

namespace detail {

inline engine& machine_now() { return *current.machine; }

/// The waits of a polling loop: tries, asks the watch, pauses. Lanes ask at different times and may see a flag change
/// between them; they leave together, as those of the real rings do.
template <class W>
bool ring_loop(op what, u64 u0, u64 u1, u64 u2, W* watch) {
  for (;;) {
    wave& w = *current.of;
    machine_now().rendezvous(what, u0, u1, u2);
    if (w.result) return true;
    const u32 turn = w.turn;
    const bool stop = watch && watch->give_up();
    const bool paused = w.turn != turn;  // give_up() may have paused itself
    if (watch) {
      if (stop) w.flags |= u64{1} << current.lane;
      machine_now().rendezvous(op::ballot);
      if (w.result) return false;
      w.current = what;  // that is what a pause is for
    }
    if (!paused) machine_now().pause();
  }
}
struct never {
  bool give_up() { return false; }
};

class simulated_ring {
 public:
  explicit simulated_ring(ring_geometry shape) : shape_(shape) {}
  static void init(ring_geometry g) {
    machine_now().rendezvous(op::ring_init, g.control | u64{g.slots} << 32, g.slot_bytes | u64{g.count} << 32,
                             g.cap);
  }
  template <class W>
  bool push(const void* source, u32 bytes, W& watch) {
    return ring_loop(op::ring_push, shape_.control, reinterpret_cast<u64>(source), bytes, &watch);
  }
  void flush() { machine_now().rendezvous(op::ring_flush, shape_.control); }
  void drain() { ring_loop<never>(op::ring_drain, shape_.control, 0, 0, nullptr); }
  template <class W>
  bool wait_full(u32 n, W& watch) {
    return ring_loop(op::ring_wait, shape_.control, n, 0, &watch);
  }
  lds_address slot(u32 n) const { return shape_.slots + n % shape_.count * shape_.slot_bytes; }
  void release(u32 n, u32 credits) { machine_now().rendezvous(op::ring_release, shape_.control, n, credits); }

 private:
  ring_geometry shape_;
};

/// The part that all simulated targets share; Layout is the real machine's.
template <class Layout>
struct simulated : Layout {
  static constexpr bool simulator = true;

  static constexpr bool few_scalars = false;
  static const void* opaque(const void* p) { return p; }
  static int opaque(int x) { return x; }
  static int park(int x) { return x; }
  static int lane() { return current.lane; }
  static int wave() { return current.of->index; }
  static int block() { return current.of->block->index; }
  static int blocks() { return current.of->block->of->blocks; }
  static int group_of_block(int block) {
    const options& o = machine_now().opt;
    return o.group_of ? o.group_of(block) : block % o.groups;
  }

  static void mma(const fragment_a<Layout::lane_rows>& a, const fragment_b& b, fragment_d& d) {
    detail::wave& w = *current.of;
    const int l = current.lane;
    std::memcpy(w.a[l], a.v, sizeof a.v);
    std::memcpy(w.b[l], b.v, sizeof b.v);
    std::memcpy(w.d[l], d.v, sizeof d.v);
    machine_now().rendezvous(op::mma);
    std::memcpy(d.v, w.d[l], sizeof d.v);
  }
  static constexpr u32 arrange_e2m1x8(u32 codes) { return codes; }
  static constexpr u64 arrange_e4m3x8(u64 codes) { return codes; }

  static u32 shuffle_xor(u32 word, int mask) {
    detail::wave& w = *current.of;
    const int l = current.lane;
    w.word[l] = word;
    machine_now().rendezvous(op::shuffle, static_cast<u32>(mask));
    return w.a[l][0];
  }
  static u64 ballot(bool flag) {
    detail::wave& w = *current.of;
    if (flag) w.flags |= u64{1} << current.lane;
    machine_now().rendezvous(op::ballot);
    return w.result;
  }
  static u32 wave_max(u32 word) { return reduce(op::max, word); }
  static u32 wave_min(u32 word) { return reduce(op::min, word); }
  static void wave_sync() { machine_now().rendezvous(op::wave_sync); }

  static u32 lds_load4(lds_address at) { return lds_load<u32>(at); }
  static u32x2 lds_load8(lds_address at) { return lds_load<u32x2>(at); }
  static u32x4 lds_load16(lds_address at) { return lds_load<u32x4>(at); }
  static void lds_store1(lds_address at, u8 v) { machine_now().lds_store(at, &v, 1); }
  static void lds_store2(lds_address at, u16 v) { machine_now().lds_store(at, &v, 2); }
  static void lds_store4(lds_address at, u32 v) { machine_now().lds_store(at, &v, 4); }
  static void lds_store16(lds_address at, u32x4 v) { machine_now().lds_store(at, &v, 16); }
  static u32 lds_fetch_add(lds_address at, u32 v) { return machine_now().lds_fetch_add(at, v); }
  static void lds_flag_store(lds_address at, u32 v) { machine_now().lds_flag_store(at, v); }
  static u32 lds_flag_load(lds_address at) { return machine_now().lds_flag_load(at); }
  static u32 lds_flag_load_own(lds_address at) { return machine_now().lds_flag_load(at); }

  static u32 load4(const void* at) { return load<u32>(at); }
  static u32x2 load8(const void* at) { return load<u32x2>(at); }
  static u32x4 load16(const void* at) { return load<u32x4>(at); }
  static void store2(void* at, u16 v) { machine_now().store(at, &v, 2); }
  static void store4(void* at, u32 v) { machine_now().store(at, &v, 4); }
  static void store16(void* at, u32x4 v) { machine_now().store(at, &v, 16); }

  static u32 slot_load4(const void* at) { return slot_load<u32>(at); }
  static u32x4 slot_load16(const void* at) { return slot_load<u32x4>(at); }
  static void slot_store2(void* at, u16 v) { machine_now().slot_store(at, &v, 2); }
  static void slot_store4(void* at, u32 v) { machine_now().slot_store(at, &v, 4); }
  static void slot_store16(void* at, u32x4 v) { machine_now().slot_store(at, &v, 16); }
  static void drain_stores() { machine_now().rendezvous(op::drain); }

  static void arrive(void* at, u32 v) { machine_now().arrive(at, v, false); }
  static void arrive_system(void* at, u32 v) { machine_now().arrive(at, v, true); }
  static u32 poll4(const void* at) {
    u32 v;
    machine_now().poll(&v, at, 4);
    return v;
  }
  static u32x4 poll16(const void* at) {
    u32x4 v;
    machine_now().poll(&v, at, 16);
    return v;
  }
  static void tagged_store(void* at, u64 word) { machine_now().tagged_store(at, word, false); }
  static void tagged_store_peer(void* at, u64 word) { machine_now().tagged_store(at, word, true); }
  static u32x4 tagged_load2(const void* at) {
    u32x4 v;
    machine_now().tagged_load(&v, at);
    return v;
  }
  static u32 fetch_add(void* at, u32 v) { return machine_now().fetch_add(at, v); }
  static u32 compare_exchange(void* at, u32 expected, u32 v) {
    return machine_now().compare_exchange(at, expected, v);
  }

  static u64 clock_ns() { return machine_now().clock_ns; }
  static void pause() { machine_now().pause(); }
  static void trace(u32 layer, u32 stage, u32 tile) { machine_now().trace(layer, stage, tile); }
  static void block_barrier() { machine_now().rendezvous(op::block_barrier); }

  static constexpr u32 ring_control_bytes(u32 count) { return 16 * count; }
  using ring = simulated_ring;

  /// The simulator keeps the count itself; it only checks that the words were zeroed where the target needs
  /// them.
  class consumer_group {
   public:
    static constexpr u32 lds_bytes = Layout::arrivals == arrival_kind::words ? 16 : 0;
    explicit consumer_group(lds_address at) : at_(at) {}
    void sync() { machine_now().rendezvous(op::group_sync, at_); }

   private:
    lds_address at_;
  };

 private:
  static u32 reduce(op what, u32 word) {
    detail::wave& w = *current.of;
    w.word[current.lane] = word;
    machine_now().rendezvous(what);
    return static_cast<u32>(w.result);
  }
  template <class V>
  static V lds_load(lds_address at) {
    V v;
    machine_now().lds_load(&v, at, sizeof v);
    return v;
  }
  template <class V>
  static V load(const void* at) {
    V v;
    machine_now().load(&v, at, sizeof v);
    return v;
  }
  template <class V>
  static V slot_load(const void* at) {
    V v;
    machine_now().slot_load(&v, at, sizeof v);
    return v;
  }
};

}  // namespace detail

struct gfx950 : detail::simulated<wave64_layout> {
  static constexpr const char* name = "sim::gfx950";
  static constexpr u32 lds_bytes = 163840;
  static constexpr u32 in_flight_bytes = 40960;
  static constexpr int mxfp4_largest_scale = 252;
  static fragment_b widen_e2m1x8(u32 codes, u32 scale) { return detail::widen_e2m1x8(codes, scale, 0); }
  static fragment_b widen_e4m3x8(u32x2 codes) { return detail::widen_e4m3x8(codes); }
  static detail::traits sim_traits() { return {wave_size, consumer_waves, columns, true, true, name}; }
};

struct sm90 : detail::simulated<wave32_layout> {
  static constexpr const char* name = "sim::sm90";
  static constexpr u32 lds_bytes = 232448;
  static constexpr u32 in_flight_bytes = 65536;
  static constexpr int mxfp4_largest_scale = 252;
  /// The codes times 2^-126, as the real target places their bits.
  static fragment_b widen_e2m1x8(u32 codes, u32) { return detail::widen_e2m1x8(codes, 1, 0); }
  /// The codes times 2^-120.
  static fragment_b widen_e4m3x8(u32x2 codes) { return detail::place_e4m3x8(codes); }
  static detail::traits sim_traits() { return {wave_size, consumer_waves, columns, false, false, name}; }
};

static_assert(target<gfx950> && target<sm90>);

}  // namespace monolayer::sim
