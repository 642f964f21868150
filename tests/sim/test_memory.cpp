// Allocations, kinds of memory, outputs, LDS.
#include "sim/run.hpp"

using namespace sim_test;

namespace {

/// One lane of block 0 does something; what kind of error it is.
template <class T, class F>
sim::report one_lane(sim::machine& m, F f) {
  m.launch<T>(0, 1, 4096, [=] {
    if (thread<T>() == 0) f();
  });
  return m.run();
}
template <class T, class F>
sim::error kind_of(sim::memory kind, std::size_t bytes, F f) {
  sim::machine m;
  u8* p = m.allocate_array<u8>(0, bytes, "thing", kind, sim::fill::zero);
  return one_lane<T>(m, [=] { f(p); }).kind;
}

}  // namespace

TEMPLATE_TEST_CASE("Bounds and alignment", "", sim::gfx950, sim::sm90) {
  using T = TestType;
  using sim::error, sim::memory;
  CHECK(kind_of<T>(memory::plain, 64, [](u8* p) { T::load16(p + 48); }) == error::none);
  CHECK(kind_of<T>(memory::plain, 64, [](u8* p) { T::load16(p + 64); }) == error::bounds);
  CHECK(kind_of<T>(memory::plain, 60, [](u8* p) { T::load16(p + 48); }) == error::bounds);
  CHECK(kind_of<T>(memory::plain, 64, [](u8* p) { T::load4(p - 4); }) == error::bounds);
  CHECK(kind_of<T>(memory::plain, 64, [](u8* p) { T::load8(p + 4); }) == error::bounds);
  CHECK(kind_of<T>(memory::plain, 64, [](u8*) { T::load4(nullptr); }) == error::bounds);
  CHECK(kind_of<T>(memory::output, 64, [](u8* p) { T::store2(p + 64, 1); }) == error::bounds);
  CHECK(kind_of<T>(memory::slot, 64, [](u8* p) { T::slot_store16(p + 8, {}); }) == error::bounds);
  CHECK(kind_of<T>(memory::slot, 64, [](u8* p) { T::tagged_load2(p + 8); }) == error::bounds);

  sim::machine m;
  u8* p = m.allocate_array<u8>(0, 4096, "buffers");
  m.annotate(p + 256, 64, "slot qa buffer 1", memory::slot);
  const sim::report r = one_lane<T>(m, [=] { T::load4(p + 260); });
  CHECK(r.kind == error::access);
  CHECK(r.text.find("'slot qa buffer 1' + 4") != std::string::npos);
}

TEMPLATE_TEST_CASE("Each kind of memory has its operations", "", sim::gfx950, sim::sm90) {
  using T = TestType;
  using sim::error, sim::memory;
  CHECK(kind_of<T>(memory::plain, 64, [](u8* p) { T::store4(p, 1); }) == error::access);
  CHECK(kind_of<T>(memory::plain, 64, [](u8* p) { T::slot_load4(p); }) == error::access);
  CHECK(kind_of<T>(memory::plain, 64, [](u8* p) { T::poll4(p); }) == error::access);
  CHECK(kind_of<T>(memory::slot, 64, [](u8* p) { T::load4(p); }) == error::access);
  CHECK(kind_of<T>(memory::slot, 64, [](u8* p) { T::store4(p, 1); }) == error::access);
  CHECK(kind_of<T>(memory::slot, 64, [](u8* p) { T::tagged_store(p, 1); }) == error::none);
  CHECK(kind_of<T>(memory::slot, 64, [](u8* p) { T::tagged_store_peer(p, 1); }) == error::access);
  CHECK(kind_of<T>(memory::mailbox, 64, [](u8* p) { T::tagged_store_peer(p, 1); }) == error::none);
  CHECK(kind_of<T>(memory::mailbox, 64, [](u8* p) { T::slot_load4(p); }) == error::access);
  CHECK(kind_of<T>(memory::control, 64, [](u8* p) { T::fetch_add(p, 1); }) == error::none);
  CHECK(kind_of<T>(memory::output, 64, [](u8* p) { T::fetch_add(p, 1); }) == error::access);
}

TEMPLATE_TEST_CASE("Another rank's slots and weights are out of reach, its mailbox is not", "", sim::gfx950,
                   sim::sm90) {
  using T = TestType;
  for (int what = 0; what < 4; ++what) {
    sim::machine m({.ranks = 2});
    u8* plain = m.allocate_array<u8>(1, 64, "weights");
    u8* slot = m.allocate_array<u8>(1, 64, "slot", sim::memory::slot);
    u8* mailbox = m.allocate_array<u8>(1, 64, "mailbox", sim::memory::mailbox, sim::fill::zero);
    const sim::report r = one_lane<T>(m, [=] {
      if (what == 0) T::load4(plain);
      if (what == 1) T::slot_store4(slot, 1);
      if (what == 2) T::tagged_load2(mailbox);
      if (what == 3) T::tagged_store_peer(mailbox, u64{7} << 32 | 5);
    });
    CHECK(r.kind == (what == 3 ? sim::error::none : sim::error::access));
    if (what == 3) CHECK(*reinterpret_cast<u64*>(mailbox) == (u64{7} << 32 | 5));
  }
}

TEMPLATE_TEST_CASE("An output is not read in the launch that stores it", "", sim::gfx950, sim::sm90) {
  using T = TestType;
  sim::machine m;
  u32* cache = m.allocate_array<u32>(0, 64, "cache", sim::memory::output, sim::fill::zero);
  const auto write = [=](u32 at) {
    return [=] {
      if (thread<T>() == 0) T::store4(cache + at, at);
    };
  };
  const auto read = [=](u32 at) {
    return [=] {
      if (thread<T>() == 0) T::load4(cache + at);
    };
  };
  m.launch<T>(0, 1, 0, write(3));
  m.launch<T>(0, 1, 0, read(3));
  m.launch<T>(0, 1, 0, [=] { write(4)(), read(5)(); });
  REQUIRE(m.run().ok);
  CHECK(cache[3] == 3);
  m.launch<T>(0, 1, 0, [=] { write(6)(), read(6)(); });
  CHECK(m.run().kind == sim::error::output_read);
  sim::machine two;
  u32* out = two.allocate_array<u32>(0, 64, "out", sim::memory::output);
  two.launch<T>(0, 2, 0, [=] {
    if (thread<T>() == 0) T::store4(out, 1);
  });
  CHECK(two.run().kind == sim::error::race);
}

TEMPLATE_TEST_CASE("LDS", "", sim::gfx950, sim::sm90) {
  using T = TestType;
  const auto kind = [](auto f) {
    return run_once<T>(
               1,
               [=] {
                 if (thread<T>() == 0) f();
               },
               {}, 4096)
        .kind;
  };
  CHECK(kind([] { T::lds_store16(4080, {}), T::lds_load16(4080); }) == sim::error::none);
  CHECK(kind([] { T::lds_store16(4096, {}); }) == sim::error::lds);
  CHECK(kind([] { T::lds_store16(8, {}); }) == sim::error::lds);
  CHECK(kind([] { T::lds_load4(64); }) == sim::error::lds);
  CHECK(kind([] { T::lds_store2(64, 1), T::lds_load4(64); }) == sim::error::lds);
  CHECK(kind([] { T::lds_store2(64, 1), T::lds_store2(66, 1), T::lds_load4(64); }) == sim::error::none);
  CHECK(kind([] { T::lds_flag_load(64); }) == sim::error::lds);

  // LDS does not keep what an earlier launch wrote.
  sim::machine m;
  m.launch<T>(0, 1, 4096, [] {
    if (thread<T>() == 0) T::lds_store4(64, 1);
  });
  REQUIRE(m.run().ok);
  m.launch<T>(0, 1, 4096, [] {
    if (thread<T>() == 0) T::lds_load4(64);
  });
  CHECK(m.run().kind == sim::error::lds);

  // Neighbouring half words and bytes belong to different lanes and waves.
  CHECK(over_seeds(20, [](u64 s) {
          return run_once<T>(
              1,
              [] {
                auto group = begin_block<T>();
                if (producer<T>()) return;
                T::lds_store2(1024 + 2 * static_cast<u32>(thread<T>()), static_cast<u16>(thread<T>()));
                T::lds_store1(8192 + static_cast<u32>(thread<T>()), static_cast<u8>(thread<T>()));
                group.sync();
                const u32 pair = T::lds_load4(1024 + 4 * static_cast<u32>(thread<T>() / 2));
                if (pair != static_cast<u32>(thread<T>() & ~1) * 0x10001 + 0x10000)
                  throw std::runtime_error("wrong");
              },
              {.seed = s});
        }).ok == 20);

  // The consumer group's words must be zeroed where the target counts in LDS.
  const sim::error unzeroed = run_once<T>(1, [] {
                                if (!producer<T>()) typename T::consumer_group(0).sync();
                              }).kind;
  CHECK(unzeroed == (counts<T> ? sim::error::none : sim::error::lds));
}

TEMPLATE_TEST_CASE("LDS flags order what was stored before them", "", sim::gfx950, sim::sm90) {
  using T = TestType;
  const auto body = [](bool flag) {
    return [=] {
      begin_block<T>();
      if (T::wave() == 0 && T::lane() == 0) T::lds_flag_store(64, 0);
      T::block_barrier();
      if (T::wave() == 1) {
        T::lds_store4(128 + 4 * static_cast<u32>(T::lane()), 5);
        T::wave_sync();
        if (T::lane() == 0) T::lds_flag_store(64, 1);
      } else if (producer<T>()) {
        while (flag && T::lds_flag_load(64) != 1) T::pause();
        T::wave_sync();
        if (T::lds_load4(128 + 4 * static_cast<u32>(T::lane())) != 5) throw std::runtime_error("wrong");
      }
    };
  };
  CHECK(over_seeds(50, [&](u64 s) { return run_once<T>(1, body(true), {.seed = s}); }).ok == 50);
  CHECK(over_seeds(50, [&](u64 s) { return run_once<T>(1, body(false), {.seed = s}); })[sim::error::lds] ==
        50);
}
