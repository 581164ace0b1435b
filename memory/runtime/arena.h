// One reservation in which a plan's buffers live at fixed offsets: private memory on huge pages where there are any.
// Not here: where buffers lie (packing.h), memory of an accelerator or pinned for it (runtime.h).
#pragma once

#include <cstddef>
#include <string>

#include "memory/base/parallel.h"
#include "memory/base/types.h"

namespace spillway {

// Has every page backed now, so that no page fault falls into a step. Keeps the contents.
void prefault(const ThreadPool& pool, std::byte* begin, Bytes bytes);

class Arena {
 public:
  // Reserves zeroed pages, which the system backs when they are first touched: at most `bytes` rounded up to 2 MiB, or to a page
  // where `bytes` is less than that. The base is a multiple of 2 MiB, so that all of it may lie on huge pages. `name` is for
  // messages.
  Arena(Bytes bytes, std::string name);
  ~Arena();
  Arena(Arena&& other) noexcept;
  Arena& operator=(Arena&& other) noexcept;

  std::byte* data() const noexcept { return data_; }
  std::byte* at(Bytes offset) const;  // offset in [0, bytes()]
  Bytes bytes() const noexcept { return bytes_; }
  const std::string& name() const noexcept { return name_; }

  void prefault(const ThreadPool& pool) const { spillway::prefault(pool, data_, bytes_); }

  // See poison.h.
  void poison(Bytes offset, Bytes bytes) const;
  void unpoison(Bytes offset, Bytes bytes) const;

 private:
  void check_range(Bytes offset, Bytes bytes) const;
  void release() noexcept;

  std::byte* data_ = nullptr;
  Bytes bytes_ = 0;
  std::string name_;
};

}  // namespace spillway
