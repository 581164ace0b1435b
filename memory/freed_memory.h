// What malloc does with memory that is freed, while a plan is searched for.
#pragma once

namespace spillway {

// While one lives, freed memory is kept for what is allocated next. A search makes and drops plans of up to hundreds of MiB, and
// memory that comes anew from the kernel is cleared page by page: a third of the time of a large search. Given back at the end;
// from then on malloc keeps up to some 16 MiB, which libraries take and free at every call. One at a time; does nothing where
// malloc is not glibc's.
class FreedMemoryKept {
 public:
  FreedMemoryKept();
  ~FreedMemoryKept();
  FreedMemoryKept(const FreedMemoryKept&) = delete;
  FreedMemoryKept& operator=(const FreedMemoryKept&) = delete;
};

}  // namespace spillway
