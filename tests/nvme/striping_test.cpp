#include "nvme/striping.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>

namespace spillway {
namespace {

constexpr Bytes kPage = kExtentAlignment;

// Every page of the store has its own page of a file, inside that file's size; runs are as long as they say.
void expect_one_to_one(const StripeMap& map, int files) {
  std::map<std::pair<int, Bytes>, Bytes> owner;
  for (Bytes at = 0; at < map.bytes(); at += kPage) {
    const auto place = map.place(at);
    ASSERT_GE(place.file, 0);
    ASSERT_LT(place.file, files);
    ASSERT_GE(place.run_bytes, kPage);
    ASSERT_LE(place.offset + kPage, map.file_bytes(place.file)) << at;
    ASSERT_TRUE(owner.emplace(std::pair(place.file, place.offset), at).second) << at;
    if (place.run_bytes > kPage) {
      const auto next = map.place(at + kPage);
      ASSERT_EQ(next.file, place.file);
      ASSERT_EQ(next.offset, place.offset + kPage);
    }
  }
}

TEST(StripeMap, maps_one_to_one_for_all_caps) {
  const Bytes stripe = 4 * kPage;
  for (const std::vector<Bytes>& stripes :
       {std::vector<Bytes>{64}, {20, 20}, {3, 50}, {50, 3}, {7, 1, 9, 30}, {5, 5, 5}, {0, 9, 4}}) {
    std::vector<Bytes> caps;
    for (Bytes count : stripes)
      caps.push_back(count * stripe + (caps.empty() ? 0 : kPage));  // bytes beyond whole stripes are not used
    const Bytes capacity = StripeMap::capacity(caps, stripe);
    for (Bytes bytes = kPage; bytes <= capacity; bytes += 3 * kPage) {
      SCOPED_TRACE(bytes);
      const StripeMap map(caps, stripe, bytes);
      expect_one_to_one(map, static_cast<int>(caps.size()));
      Bytes total = 0;
      std::vector<Bytes> sizes;
      for (std::size_t f = 0; f < caps.size(); ++f) {
        sizes.push_back(map.file_bytes(static_cast<int>(f)));
        total += sizes.back();
        EXPECT_LE(sizes.back(), caps[f]);
      }
      EXPECT_LT(total - bytes, stripe);
      // Kept files that are opened again must give the same places.
      const StripeMap again(sizes, stripe, bytes);
      for (Bytes at = 0; at < bytes; at += kPage) {
        ASSERT_EQ(map.place(at).file, again.place(at).file);
        ASSERT_EQ(map.place(at).offset, again.place(at).offset);
      }
    }
  }
}

TEST(StripeMap, spreads_evenly_where_caps_permit) {
  const StripeMap map(std::vector<Bytes>{kGiB, 4 * kGiB, kGiB}, kMiB, 300 * kMiB);
  for (int f = 0; f < 3; ++f) EXPECT_EQ(map.file_bytes(f), 100 * kMiB);
  EXPECT_EQ(map.place(4 * kMiB + kPage).file, 1);
  EXPECT_EQ(map.place(4 * kMiB + kPage).offset, kMiB + kPage);
  EXPECT_EQ(map.place(4 * kMiB + kPage).run_bytes, kMiB - kPage);
}

TEST(StripeMap, one_file_is_one_run) {
  const StripeMap map(std::vector<Bytes>{100 * kPage}, kMiB, 99 * kPage);
  EXPECT_EQ(map.file_bytes(0), 99 * kPage);
  EXPECT_EQ(map.place(5 * kPage).run_bytes, 94 * kPage);
}

}  // namespace
}  // namespace spillway
