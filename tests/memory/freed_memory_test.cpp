#include "memory/base/freed_memory.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/memory/process_bytes.h"

namespace spillway {
namespace {

// Is read, so that no compiler leaves it out.
void take_and_free(Bytes bytes) {
  const std::vector<char> taken(static_cast<std::size_t>(bytes), 'a');
  const volatile char* const data = taken.data();
  EXPECT_EQ(data[bytes / 2], 'a');
}

TEST(FreedMemory, IsKeptAndGivenBackAtTheEnd) {
  if (!kCountsResidentBytes) GTEST_SKIP() << "a sanitizer has a malloc of its own";
  const Bytes before = process_bytes("VmRSS:"), bytes = 64 * kMiB;
  {
    const FreedMemoryKept kept;
    take_and_free(bytes);
    EXPECT_GE(process_bytes("VmRSS:"), before + bytes - kMiB);
  }
  EXPECT_LE(process_bytes("VmRSS:"), before + kMiB);
  take_and_free(bytes);
  EXPECT_LE(process_bytes("VmRSS:"), before + kMiB);
}

}  // namespace
}  // namespace spillway
