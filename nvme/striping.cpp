#include "nvme/striping.h"

#include <algorithm>

#include "memory/base/error.h"

namespace spillway {
namespace {

Bytes unit_of(std::span<const Bytes> caps, Bytes stripe_bytes) { return caps.size() == 1 ? kExtentAlignment : stripe_bytes; }

}  // namespace

Bytes StripeMap::capacity(std::span<const Bytes> caps, Bytes stripe_bytes) {
  const Bytes unit = unit_of(caps, stripe_bytes);
  Bytes total = 0;
  for (Bytes cap : caps) total += cap / unit * unit;
  return total;
}

StripeMap::StripeMap(std::span<const Bytes> caps, Bytes stripe_bytes, Bytes bytes)
    : stripe_bytes_(stripe_bytes), bytes_(bytes), file_bytes_(caps.size(), 0) {
  SPILLWAY_CHECK(stripe_bytes > 0 && stripe_bytes % kExtentAlignment == 0, "stripe of {} bytes", stripe_bytes);
  SPILLWAY_CHECK(bytes > 0 && bytes % kExtentAlignment == 0, "store of {} bytes", bytes);
  SPILLWAY_CHECK(bytes <= capacity(caps, stripe_bytes), "store of {} bytes in {} bytes", bytes, capacity(caps, stripe_bytes));
  const Bytes unit = unit_of(caps, stripe_bytes);
  Bytes level = 0;
  for (Bytes begin = 0; begin < bytes;) {
    Zone zone{.begin = begin, .end = 0, .level = level, .files = {}};
    Bytes next_level = 0;
    for (std::size_t f = 0; f < caps.size(); ++f) {
      const Bytes cap = caps[f] / unit * unit;
      if (cap <= level) continue;
      next_level = zone.files.empty() ? cap : std::min(next_level, cap);
      zone.files.push_back(static_cast<int>(f));
    }
    const auto files = static_cast<Bytes>(zone.files.size());
    zone.end = std::min(bytes, begin + (next_level - level) * files);
    const Bytes units = round_up(zone.end - begin, unit) / unit;
    for (Bytes i = 0; i < files; ++i) {
      file_bytes_[static_cast<std::size_t>(zone.files[static_cast<std::size_t>(i)])] =
          level + (units / files + (i < units % files ? 1 : 0)) * unit;
    }
    begin = zone.end;
    level = next_level;
    zones_.push_back(std::move(zone));
  }
}

StripeMap::Place StripeMap::place(Bytes offset) const {
  SPILLWAY_CHECK(offset >= 0 && offset < bytes_, "offset {} in a store of {} bytes", offset, bytes_);
  std::size_t z = 0;
  while (offset >= zones_[z].end) ++z;
  const Zone& zone = zones_[z];
  const Bytes inside = offset - zone.begin;
  const auto files = static_cast<Bytes>(zone.files.size());
  if (files == 1) return {zone.files[0], zone.level + inside, zone.end - offset};
  const Bytes stripe = inside / stripe_bytes_;
  const Bytes within = inside % stripe_bytes_;
  return {zone.files[static_cast<std::size_t>(stripe % files)], zone.level + stripe / files * stripe_bytes_ + within,
          std::min(stripe_bytes_ - within, zone.end - offset)};
}

}  // namespace spillway
