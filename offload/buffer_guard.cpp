#include "offload/buffer_guard.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

namespace spillway {
namespace {

constexpr Bytes kGranule = 8;  // the sanitizer's granularity

void release(std::span<std::byte> device, Bytes begin, Bytes bytes) {
  std::byte* const first = device.data() + begin;
#ifndef NDEBUG
  if (bytes > 0) std::memset(first, 0xff, static_cast<std::size_t>(bytes));
#endif
  poison(first, bytes);
}

struct Use {
  int op;
  Bytes begin, end;
};

// The uses of each buffer on the device that is not resident, by the buffer's index.
std::map<int, std::vector<Use>> uses_by_buffer(const Program& program, const Plan& plan) {
  std::map<int, std::vector<Use>> uses;
  for (int op = 0; op < static_cast<int>(program.ops.size()); ++op) {
    for (const Operand& operand : program.ops[op].operands) {
      if (operand.buffer < 0 || operand.bytes == 0) continue;
      const Buffer& buffer = buffer_of(plan, program, operand.buffer);
      if (buffer.resident || buffer.tier != Tier::device) continue;
      const Bytes begin = buffer.offset + operand.begin, end = begin + operand.bytes;
      uses[operand.buffer].push_back({op, begin / kGranule * kGranule, round_up(end, kGranule)});
    }
  }
  return uses;
}

}  // namespace

BufferGuard::BufferGuard(const Program& program, const Plan& plan, std::span<std::byte> device)
    : device_(device), ranges_of_(program.ops.size()) {
  std::vector<std::pair<Bytes, Bytes>> found;
  std::vector<int> users;
  for (const auto& [buffer, uses] : uses_by_buffer(program, plan)) {
    std::vector<Bytes> cuts;
    for (const Use& use : uses) cuts.insert(cuts.end(), {use.begin, use.end});
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    const int first = static_cast<int>(found.size());
    for (std::size_t i = 0; i + 1 < cuts.size(); ++i) found.emplace_back(cuts[i], cuts[i + 1] - cuts[i]);
    users.resize(found.size());
    const auto index_of = [&](Bytes cut) {
      return first + static_cast<int>(std::lower_bound(cuts.begin(), cuts.end(), cut) - cuts.begin());
    };
    for (const Use& use : uses) {
      std::vector<int>& mine = ranges_of_[use.op];
      for (int range = index_of(use.begin); range < index_of(use.end); ++range) {
        // An operation may have the same bytes as two operands.
        if (std::find(mine.begin(), mine.end(), range) != mine.end()) continue;
        mine.push_back(range);
        ++users[range];
      }
    }
  }
  ranges_ = std::vector<Range>(found.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    ranges_[i].begin = found[i].first;
    ranges_[i].bytes = found[i].second;
    ranges_[i].users = users[i];
    ranges_[i].left = users[i];
  }
}

void BufferGuard::begin(int op) const {
  // Every user does this, not the first alone: it changes nothing where another did it before.
  for (const int range : ranges_of_[op]) unpoison(device_.data() + ranges_[range].begin, ranges_[range].bytes);
}

void BufferGuard::end(int op) {
  for (const int index : ranges_of_[op]) {
    Range& range = ranges_[index];
    if (range.left.fetch_sub(1, std::memory_order_acq_rel) > 1) continue;
    // Reset for the next passage, whose first user waits for this operation.
    range.left.store(range.users, std::memory_order_relaxed);
    release(device_, range.begin, range.bytes);
  }
}

void BufferGuard::release_all(const Plan& plan, std::span<std::byte> device) {
  std::map<Bytes, Bytes> kept;
  for (const Buffer& buffer : plan.resident) {
    // A buffer without bytes has no place of its own: another one lies at its offset.
    if (buffer.tier == Tier::device && buffer.bytes > 0) kept[buffer.offset] = buffer.bytes * buffer.slots;
  }
  Bytes at = 0;
  for (const auto& [offset, bytes] : kept) {
    release(device, at, offset - at);
    at = offset + bytes;
  }
  release(device, at, std::ssize(device) - at);
}

}  // namespace spillway
