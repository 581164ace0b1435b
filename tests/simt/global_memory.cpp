#include "tests/simt/global_memory.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <shared_mutex>

namespace spillway::simt {
namespace {

constexpr std::size_t kAlignment = 256;

struct Allocations {
  std::shared_mutex mutex;
  std::map<std::uintptr_t, GlobalRange> by_end;
};
Allocations& allocations() {
  static Allocations all;
  return all;
}

}  // namespace

std::byte* allocate(std::size_t bytes) {
  auto* memory = static_cast<std::byte*>(::operator new(std::max<std::size_t>(bytes, 1), std::align_val_t(kAlignment)));
  std::memset(memory, 0xff, bytes);  // NaN in every format
  begin_allocation(memory, bytes, memory);
  return memory;
}

void release(std::byte* memory) {
  end_allocation(memory);
  ::operator delete(memory, std::align_val_t(kAlignment));
}

void begin_allocation(std::byte* named, std::size_t bytes, std::byte* there) {
  const auto begin = reinterpret_cast<std::uintptr_t>(named);
  const std::size_t sectors = (bytes + kSectorBytes - 1) / kSectorBytes;
  Allocations& all = allocations();
  const std::lock_guard lock(all.mutex);
  all.by_end.emplace(begin + bytes,
                     GlobalRange{begin, begin + bytes, there - named, std::make_unique<std::atomic<std::uint32_t>[]>(sectors),
                                 std::make_unique<std::atomic<std::uint32_t>[]>(sectors)});
}

void end_allocation(std::byte* named) {
  Allocations& all = allocations();
  const std::lock_guard lock(all.mutex);
  std::erase_if(all.by_end, [&](const auto& entry) { return entry.second.begin == reinterpret_cast<std::uintptr_t>(named); });
}

std::shared_lock<std::shared_mutex> launch_under_way() { return std::shared_lock(allocations().mutex); }

GlobalRange* allocation_of(std::uintptr_t address, std::size_t bytes) {
  auto& by_end = allocations().by_end;
  const auto found = by_end.lower_bound(address + bytes);
  return found == by_end.end() || address < found->second.begin ? nullptr : &found->second;
}

}  // namespace spillway::simt
