// Makes malloc keep freed memory while a plan is searched for.
#pragma once

namespace spillway {

// While an object lives, malloc keeps freed memory for later allocations. A search makes and drops plans of up to hundreds of
// MiB, and the kernel clears new memory page by page: a third of the time of a large search. The memory is returned at the end;
// from then on malloc keeps up to some 16 MiB, which libraries take and free at every call. Only one object may live at a time.
// Does nothing where malloc is not glibc's.
class FreedMemoryKept {
 public:
  FreedMemoryKept();
  ~FreedMemoryKept();
  FreedMemoryKept(const FreedMemoryKept&) = delete;
  FreedMemoryKept& operator=(const FreedMemoryKept&) = delete;
};

}  // namespace spillway
