// Where each slot's payload and arrivals lie in the scratch that the caller provides. Constexpr, one formula for host
// and device. Offsets are 64-bit.
#pragma once

#include "monolayer/arch/target.hpp"
#include "monolayer/core/graph.hpp"

namespace monolayer {

MONOLAYER_HOST_DEVICE constexpr u64 align_up(u64 n, u64 to) { return (n + to - 1) / to * to; }

/// Bytes of one buffer of a slot: [max_rows][columns]; a tagged slot holds 8 bytes for every 4 bytes of data.
MONOLAYER_HOST_DEVICE constexpr u64 slot_row_bytes(const slot_info& s) {
  const u64 data = u64(s.columns) * element_bytes(s.type);
  return s.transport == transport::tagged ? 2 * data : data;
}

template <class Program, arrival_kind Arrivals>
struct slot_layout {
  static constexpr program_info info = Program::info;

  /// Peers' slots lie in the mailbox, all others in the local scratch.
  MONOLAYER_HOST_DEVICE static constexpr bool in_mailbox(int slot) { return info.slots[slot].scope == scope::peers; }

  MONOLAYER_HOST_DEVICE static constexpr u64 buffer_bytes(int slot) {
    const slot_info& s = info.slots[slot];
    return align_up(slot_row_bytes(s) * info.max_rows * (in_mailbox(slot) ? info.ranks : 1), 256);
  }
  MONOLAYER_HOST_DEVICE static constexpr u64 payload_offset(int slot) {
    u64 at = 0;
    for (int i = 0; i < slot; ++i)
      if (in_mailbox(i) == in_mailbox(slot)) at += buffer_bytes(i) * info.slots[i].buffers;
    return at;
  }
  MONOLAYER_HOST_DEVICE static constexpr u64 total(bool mailbox) {
    u64 at = 0;
    for (int i = 0; i < info.slot_count; ++i)
      if (in_mailbox(i) == mailbox) at += buffer_bytes(i) * info.slots[i].buffers;
    return at < 256 ? 256 : at;
  }
  static constexpr u64 payload_bytes = total(false);
  static constexpr u64 mailbox_bytes = total(true);

  /// A counter has a 128-byte line of its own; words of one part are contiguous, and each buffer has its own words.
  MONOLAYER_HOST_DEVICE static constexpr u64 part_stride(int slot) {
    return Arrivals == arrival_kind::counter ? 128 : align_up(u64(info.slots[slot].units) * 4, 128);
  }
  MONOLAYER_HOST_DEVICE static constexpr u64 arrival_span(int slot) {
    const slot_info& s = info.slots[slot];
    if (s.transport == transport::tagged) return 0;
    return part_stride(slot) * s.parts * (Arrivals == arrival_kind::counter ? 1 : s.buffers);
  }
  MONOLAYER_HOST_DEVICE static constexpr u64 arrival_offset(int slot) {
    u64 at = 0;
    for (int i = 0; i < slot; ++i) at += arrival_span(i);
    return at;
  }
  static constexpr u64 arrival_bytes = [] {
    u64 at = 0;
    for (int i = 0; i < info.slot_count; ++i) at += arrival_span(i);
    return at < 128 ? u64(128) : at;
  }();
};

}  // namespace monolayer
