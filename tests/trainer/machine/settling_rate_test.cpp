// The time at which a drive's rate counts as settled, and the windows that decide it.
#include "trainer/machine/settling_rate.h"

#include <gtest/gtest.h>

namespace spillway {
namespace {

constexpr SettlingRule kRule{.window_s = 1, .agreeing = 3, .spread = 0.05, .least_s = 4, .most_s = 12};

// Reports windows of one second, with these bytes, until the rate is over.
SettlingRate told(const std::vector<double>& bytes, const SettlingRule& rule = kRule) {
  SettlingRate rate(rule);
  for (const double each : bytes) {
    if (rate.over()) break;
    rate.add(each, 1);
  }
  return rate;
}

TEST(SettlingRate, TheRateIsThatOfTheSettledWindows) {
  const SettlingRate rate = told({800, 790, 300, 150, 102, 100, 98, 7, 7, 7});
  EXPECT_TRUE(rate.over());
  EXPECT_EQ(rate.windows(), 7);
  EXPECT_NEAR(rate.value(), 100, 1e-9) << "the mean of all is 334";
  EXPECT_EQ(rate.most(), 800);
  EXPECT_EQ(rate.least(), 98);
}

TEST(SettlingRate, WindowsOfUnequalLengthCountByTheirTime) {
  SettlingRate rate(kRule);
  rate.add(100, 1), rate.add(300, 3), rate.add(104, 1);
  EXPECT_NEAR(rate.value(), 504.0 / 5, 1e-9);
}

TEST(SettlingRate, ACacheThatTakesAllAtFirstIsWaitedFor) {
  SettlingRate rate(kRule);
  for (int i = 0; i < 3; ++i) rate.add(800, 1);
  EXPECT_TRUE(rate.settled());
  EXPECT_FALSE(rate.over()) << "four seconds at least";
  for (const double each : {120.0, 100.0, 101.0, 99.0}) {
    EXPECT_FALSE(rate.over());
    rate.add(each, 1);
  }
  EXPECT_TRUE(rate.over());
  EXPECT_NEAR(rate.value(), 100, 1e-9);
}

TEST(SettlingRate, OneThatNeverSettlesIsOverAllTheSame) {
  std::vector<double> bytes;
  for (int i = 0; i < 40; ++i) bytes.push_back(i < 4 ? 1000 + 200 * i : i % 2 == 0 ? 100 : 200);
  const SettlingRate rate = told(bytes);
  EXPECT_EQ(rate.windows(), 12);
  EXPECT_FALSE(rate.settled());
  EXPECT_NEAR(rate.value(), 150, 1e-9) << "of the later half";
}

TEST(SettlingRate, SlowWindowsAreFew) {
  SettlingRate rate(kRule);
  rate.add(500, 15);  // a drive that is stuck
  EXPECT_TRUE(rate.over());
  EXPECT_NEAR(rate.value(), 500.0 / 15, 1e-9);
}

// The faster direction goes on after the other one has ended, at another rate, which does not count for both.
TEST(BothSettled, ItIsOverForBothAtOnceWhateverOneDoesAloneAfterwards) {
  BothSettled both;
  SettlingRate reads(kRule), writes(kRule);
  for (int i = 0; i < 4; ++i) {
    writes.add(50, 1);
    EXPECT_FALSE(both.over(1, writes)) << "the reads have not settled";
    reads.add(100, 1);
    EXPECT_EQ(both.over(0, reads), i == 3);
  }
  EXPECT_TRUE(both.over(1, writes));
  reads.add(200, 1);  // alone
  ASSERT_FALSE(reads.over());
  EXPECT_TRUE(both.over(0, reads));
}

TEST(BothSettled, NobodyWaitsForOneThatIsGone) {
  BothSettled both;
  SettlingRate reads(kRule);
  for (int i = 0; i < 4; ++i) reads.add(100, 1);
  EXPECT_FALSE(both.over(0, reads));
  both.gone(1);
  EXPECT_TRUE(both.over(0, reads));
}

}  // namespace
}  // namespace spillway
