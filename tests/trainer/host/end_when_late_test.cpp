#include "trainer/host/end_when_late.h"

#include <gtest/gtest.h>

namespace spillway {
namespace {

using std::chrono::milliseconds;

TEST(EndWhenLate, EndsTheProcessWithTheErrorsWordsAndCode) {
  EXPECT_EXIT(
      {
        const EndWhenLate watch(milliseconds(1), InputError("nobody came", "Wait longer."));
        std::this_thread::sleep_for(std::chrono::seconds(60));
      },
      testing::ExitedWithCode(kExitInput), "^error: nobody came\nWait longer.\n$");
}

TEST(EndWhenLate, IsQuietWhereTheCallReturnsInTime) {
  const auto began = std::chrono::steady_clock::now();
  {
    const EndWhenLate watch(std::chrono::hours(1), IoError("late"));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(30));
}

}  // namespace
}  // namespace spillway
