#include "tests/simt/shared_memory.h"

#include <fmt/core.h>

#include <algorithm>

namespace spillway::simt {
namespace {

constexpr std::size_t kShadowed = 2, kCopyBytes = 16;
constexpr std::int32_t kManyLanes = -2, kManyWarps = -3;

std::string who(const LaneTime& now, const Site& at) { return fmt::format("thread {} at {}", now.thread, text_of(at)); }

}  // namespace

void SharedMemory::begin(std::size_t bytes) {
  bytes_ = bytes;
  content_.assign(bytes, std::byte{0xff});  // NaN in every format
  shadows_.assign((bytes + kShadowed - 1) / kShadowed, {});
  for (auto& of_thread : shown_) of_thread.clear();
}

void SharedMemory::check_place(const LaneTime& now, std::uint32_t byte, std::size_t bytes, const Site& at) const {
  if (byte + bytes > bytes_)
    throw Error(fmt::format("{} names bytes {} to {} of {} of shared memory", who(now, at), byte, byte + bytes, bytes_));
  if (byte % bytes != 0)
    throw Error(fmt::format("{} takes {} bytes of shared memory from byte {} on: not aligned", who(now, at), bytes, byte));
}

bool SharedMemory::races_with_write(const Shadow& shadow, const LaneTime& now) {
  if (shadow.writer < 0 || shadow.writer == now.thread || shadow.write_epoch != now.block_epoch) return false;
  return shadow.writer / 32 != now.warp() || shadow.write_warp_epoch == now.warp_epoch;
}

bool SharedMemory::races_with_reads(const Shadow& shadow, const LaneTime& now) {
  if (shadow.reader == -1 || shadow.reader == now.thread || shadow.read_epoch != now.block_epoch) return false;
  return shadow.reader == kManyWarps || shadow.reader_warp != now.warp() || shadow.read_warp_epoch == now.warp_epoch;
}

void SharedMemory::check_write(const Shadow& shadow, const LaneTime& now, std::uint32_t byte, const Site& at) const {
  if (races_with_write(shadow, now))
    throw Error(fmt::format("race: {} writes byte {} of shared memory that thread {} wrote at line {}, without a barrier between",
                            who(now, at), byte, shadow.writer, shadow.write_line));
  if (races_with_reads(shadow, now))
    throw Error(fmt::format("race: {} writes byte {} of shared memory that others read at line {}, without a barrier between",
                            who(now, at), byte, shadow.read_line));
}

void SharedMemory::note_write(Shadow& shadow, const LaneTime& now, const Site& at) {
  shadow.writer = now.thread, shadow.write_epoch = now.block_epoch, shadow.write_warp_epoch = now.warp_epoch;
  shadow.write_line = at.line();
  shadow.is_written = true;
  const auto thread = static_cast<std::size_t>(now.thread);
  shadow.shown = thread < shown_.size() ? static_cast<std::uint32_t>(shown_[thread].size()) : 0;
}

void SharedMemory::note_read(Shadow& shadow, const LaneTime& now, const Site& at) {
  const bool is_new = shadow.reader == -1 || shadow.read_epoch != now.block_epoch;
  if (is_new) {
    shadow.reader = now.thread;
  } else if (shadow.reader_warp != now.warp() || shadow.reader == kManyWarps) {
    shadow.reader = kManyWarps;
  } else if (shadow.reader != now.thread && shadow.read_warp_epoch == now.warp_epoch) {
    shadow.reader = kManyLanes;
  } else {
    shadow.reader = now.thread;
  }
  shadow.reader_warp = now.warp(), shadow.read_epoch = now.block_epoch, shadow.read_warp_epoch = now.warp_epoch;
  shadow.read_line = at.line();
}

std::byte* SharedMemory::access(const LaneTime& now, std::uint32_t byte, std::size_t bytes, bool writes, const Site& at) {
  check_place(now, byte, bytes, at);
  const std::size_t first = byte / kShadowed, last = (byte + bytes - 1) / kShadowed;
  for (std::size_t i = first; i <= last; ++i) {
    Shadow& shadow = shadows_[i];
    const auto at_byte = static_cast<std::uint32_t>(i * kShadowed);
    if (shadow.copies > 0)
      throw Error(fmt::format("{} touches byte {} of shared memory: the copy begun at line {} was not waited for", who(now, at),
                              at_byte, shadow.write_line));
    if (writes) {
      check_write(shadow, now, at_byte, at);
      note_write(shadow, now, at);
      continue;
    }
    if (!shadow.is_written)
      throw Error(fmt::format("{} reads byte {} of shared memory before it is written", who(now, at), at_byte));
    if (races_with_write(shadow, now))
      throw Error(
          fmt::format("race: {} reads byte {} of shared memory that thread {} wrote at line {}, without a barrier between",
                      who(now, at), at_byte, shadow.writer, shadow.write_line));
    note_read(shadow, now, at);
  }
  return content_.data() + byte;
}

void SharedMemory::begin_copy(const LaneTime& now, std::uint32_t byte, const Site& at) {
  check_place(now, byte, kCopyBytes, at);
  for (std::size_t i = byte / kShadowed; i < (byte + kCopyBytes) / kShadowed; ++i) {
    Shadow& shadow = shadows_[i];
    const auto at_byte = static_cast<std::uint32_t>(i * kShadowed);
    if (shadow.copies > 0)
      throw Error(fmt::format("{} copies to byte {} of shared memory twice at a time", who(now, at), at_byte));
    check_write(shadow, now, at_byte, at);
    ++shadow.copies;
    shadow.write_line = at.line();
  }
}

std::byte* SharedMemory::end_copy(const LaneTime& now, std::uint32_t byte, const Site& at) {
  for (std::size_t i = byte / kShadowed; i < (byte + kCopyBytes) / kShadowed; ++i) {
    --shadows_[i].copies;
    note_write(shadows_[i], now, at);
  }
  return content_.data() + byte;
}

void SharedMemory::show_to_products(const LaneTime& now) {
  const auto thread = static_cast<std::size_t>(now.thread);
  if (shown_.size() <= thread) shown_.resize(thread + 1);
  shown_[thread].push_back(now.block_epoch);
}

const std::byte* SharedMemory::read_for_product(const LaneTime& now, std::uint32_t byte, std::size_t bytes, const Site& at) {
  const std::byte* const there = access(now, byte, bytes, false, at);
  for (std::size_t i = byte / kShadowed; i < (byte + bytes) / kShadowed; ++i) {
    const Shadow& shadow = shadows_[i];
    const auto writer = static_cast<std::size_t>(shadow.writer);
    if (writer >= shown_.size() || shown_[writer].size() <= shadow.shown || shown_[writer][shadow.shown] >= now.block_epoch)
      throw Error(
          fmt::format("a product at {} reads byte {} of shared memory that thread {} wrote at line {} and has not shown to "
                      "products, with a barrier behind that",
                      text_of(at), i * kShadowed, shadow.writer, shadow.write_line));
  }
  return there;
}

}  // namespace spillway::simt
