#include "trainer/words/size.h"

#include <gtest/gtest.h>

#include "memory/base/error.h"
#include "tests/trainer/temporary_directory.h"

namespace spillway {
namespace {

TEST(Size, ReadsBytesAndUnits) {
  EXPECT_EQ(parse_size("0", "--x"), 0);
  EXPECT_EQ(parse_size("4096", "--x"), 4096);
  EXPECT_EQ(parse_size("1KiB", "--x"), 1024);
  EXPECT_EQ(parse_size("512MiB", "--x"), 512 * kMiB);
  EXPECT_EQ(parse_size("1.5GiB", "--x"), 3 * kGiB / 2);
  EXPECT_EQ(parse_size("2TiB", "--x"), 2048 * kGiB);
  EXPECT_EQ(parse_size("0.1KiB", "--x"), 102);  // rounded down
  EXPECT_EQ(parse_size("9223372036854775807", "--x"), std::numeric_limits<Bytes>::max());
  EXPECT_EQ(parse_size("8388607TiB", "--x"), 8388607 * (1024 * kGiB));
}

TEST(Size, RefusesAllElse) {
  for (const char* text : {"",      "-1",  "+1",   "1GB", "1G",  "1gib",  "GiB",   "1 GiB",           " 1",  "1 ", "1.5", ".5GiB",
                           "1.GiB", "1e3", "0x10", "nan", "inf", "1,000", "1GiBB", "1.0000000001GiB", "--lr"}) {
    EXPECT_FALSE(try_parse_size(text)) << text;
    EXPECT_REFUSED(parse_size(text, "--device-memory"), InputError, "--device-memory: found \"");
  }
  for (const char* text :
       {"9223372036854775808", "8388608TiB", "99999999999999999999999999999999999999999999999", "9999999999999GiB"}) {
    EXPECT_FALSE(try_parse_size(text)) << text;
    EXPECT_REFUSED(parse_size(text, "--x"), InputError, "2^63");
  }
  try {
    parse_size("2GB", "--x");
  } catch (const InputError& error) {
    EXPECT_EQ(error.help(), "write 2GiB");
  }
}

TEST(Size, DrivesAreRatedInDecimalUnits) {
  const auto rating = [](std::string_view text) { return parse_size(text, "--nvme-tbw", SizeUnits::binary_and_decimal); };
  EXPECT_EQ(rating("600TB"), 600'000'000'000'000);
  EXPECT_EQ(rating("1.2PB"), 1'200'000'000'000'000);
  EXPECT_EQ(rating("1TiB"), Bytes{1} << 40);
  EXPECT_EQ(rating("512"), 512);
  for (const char* text : {"600tb", "TB", "600T", "-1TB", "1e3TB", ""}) EXPECT_REFUSED(rating(text), InputError, "600TB");
  EXPECT_REFUSED(rating("9300PB"), InputError, "2^63");
}

TEST(Size, WritesWhatItReads) {
  for (const Bytes bytes :
       {Bytes{0}, Bytes{1}, Bytes{1023}, kKiB, kMiB + 1, 1536 * kMiB, 3 * kGiB, 1024 * kGiB, std::numeric_limits<Bytes>::max()}) {
    EXPECT_EQ(parse_size(exact_size(bytes), "--x"), bytes);
  }
  EXPECT_EQ(exact_size(3 * kGiB / 2), "1536MiB");
}

}  // namespace
}  // namespace spillway
