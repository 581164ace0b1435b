#include "memory/freed_memory.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/memory/process_bytes.h"

namespace spillway {
namespace {

TEST(FreedMemory, IsKeptAndGivenBackAtTheEnd) {
  if (!kCountsResidentBytes) GTEST_SKIP() << "a sanitizer has a malloc of its own";
  const Bytes before = process_bytes("VmRSS:"), bytes = 64 * kMiB;
  {
    const FreedMemoryKept kept;
    std::vector<char>(static_cast<std::size_t>(bytes), 'a');
    EXPECT_GE(process_bytes("VmRSS:"), before + bytes - kMiB);
  }
  EXPECT_LE(process_bytes("VmRSS:"), before + kMiB);
  std::vector<char>(static_cast<std::size_t>(bytes), 'a');
  EXPECT_LE(process_bytes("VmRSS:"), before + kMiB);
}

}  // namespace
}  // namespace spillway
