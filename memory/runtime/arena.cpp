#include "memory/runtime/arena.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "memory/base/error.h"
#include "memory/base/types.h"
#include "memory/runtime/poison.h"

namespace spillway {
namespace {

constexpr Bytes kHugePage = 2 * kMiB;

std::size_t size(Bytes bytes) { return static_cast<std::size_t>(bytes); }

// Bytes that are mapped: whole huge pages, to the last one. Only where all pages of a registered buffer have one size does the
// kernel see it as the few pieces that it is; else it counts a piece for each small page, and cuts requests at that number.
Bytes mapped(Bytes bytes) { return round_up(bytes, bytes < kHugePage ? Bytes{sysconf(_SC_PAGESIZE)} : kHugePage); }

// Backs pages. Kernels before 5.14 know no MADV_POPULATE_WRITE: there each page is touched, by writing its own contents back.
void back_pages(std::byte* begin, Bytes bytes) {
#ifdef MADV_POPULATE_WRITE
  if (madvise(begin, size(bytes), MADV_POPULATE_WRITE) == 0) return;
#endif
  for (Bytes at = 0; at < bytes; at += kExtentAlignment) {
    volatile std::byte* place = begin + at;
    *place = *place;
  }
}

// "--device-memory, --host-memory"
std::string budget_flags() {
  std::string flags;
  for (const auto& [name, tier] : Names<Tier>::all) {
    if (in_memory(tier)) flags += fmt::format("{}--{}-memory", flags.empty() ? "" : ", ", name);
  }
  return flags;
}

}  // namespace

void prefault(const ThreadPool& pool, std::byte* begin, Bytes bytes) {
  constexpr Bytes kTask = 16 * kHugePage;
  pool.parallel_for((bytes + kTask - 1) / kTask, [&](std::int64_t task, int) {
    const Bytes at = task * kTask;
    back_pages(begin + at, std::min(kTask, bytes - at));
  });
}

Arena::Arena(Bytes bytes, std::string name) : bytes_(bytes), name_(std::move(name)) {
  SPILLWAY_CHECK(bytes >= 0, "arena {} of {} bytes", name_, bytes);
  if (bytes == 0) return;
  // 2 MiB more than needed, to move the base to a multiple of 2 MiB; the rest is returned at once.
  const Bytes used = mapped(bytes);
  const Bytes reserved = used + kHugePage;
  void* map = mmap(nullptr, size(reserved), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (map == MAP_FAILED) {
    throw BudgetError(
        fmt::format("{}: {} bytes of memory could not be reserved: {}", name_, bytes, std::strerror(errno)),
        fmt::format("Give the tier a smaller budget ({}), or end what else uses the machine's memory.", budget_flags()));
  }
  auto* first = static_cast<std::byte*>(map);
  const auto address = reinterpret_cast<std::uintptr_t>(map);
  const Bytes before = round_up(static_cast<Bytes>(address), kHugePage) - static_cast<Bytes>(address);
  data_ = first + before;
  if (before > 0) munmap(first, size(before));
  if (reserved > before + used) munmap(data_ + used, size(reserved - before - used));
  // The call fails where the system has no huge pages; small ones work, too, and are slower.
  madvise(data_, size(used), MADV_HUGEPAGE);
}

Arena::~Arena() { release(); }

Arena::Arena(Arena&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)), name_(std::move(other.name_)) {}

Arena& Arena::operator=(Arena&& other) noexcept {
  if (this != &other) {
    release();
    data_ = std::exchange(other.data_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
    name_ = std::move(other.name_);
  }
  return *this;
}

void Arena::release() noexcept {
  if (data_ == nullptr) return;
  spillway::unpoison(data_, bytes_);  // the addresses will be another mapping's
  if (munmap(data_, size(mapped(bytes_))) != 0) {
    fmt::print(stderr, "warning: {}: {} bytes could not be returned to the system: {}\n", name_, bytes_, std::strerror(errno));
  }
  data_ = nullptr;
}

void Arena::check_range(Bytes offset, Bytes bytes) const {
  SPILLWAY_CHECK(offset >= 0 && bytes >= 0 && offset <= bytes_ && bytes <= bytes_ - offset, "{}: bytes {} to {} of {}", name_,
                 offset, offset + bytes, bytes_);
}

std::byte* Arena::at(Bytes offset) const {
  check_range(offset, 0);
  return data_ + offset;
}

void Arena::poison(Bytes offset, Bytes bytes) const {
  check_range(offset, bytes);
  spillway::poison(data_ + offset, bytes);
}

void Arena::unpoison(Bytes offset, Bytes bytes) const {
  check_range(offset, bytes);
  spillway::unpoison(data_ + offset, bytes);
}

}  // namespace spillway
