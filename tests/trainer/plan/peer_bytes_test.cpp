#include "trainer/plan/peer_bytes.h"

#include <gtest/gtest.h>

namespace spillway {
namespace {

// The closed forms of other trainers: 16 bytes for each parameter, by stage; and sbh (34 + 5 a s / h) for each layer.
TEST(PeerBytes, AreSixteenAParameter) {
  const std::int64_t parameters = 7'500'000'000;
  const auto gigabytes = [&](int stage) {
    return peer_state_bytes(parameters, 0, {.ranks = 64, .group = 64, .stage = stage}) / 1e9;
  };
  EXPECT_DOUBLE_EQ(gigabytes(0), 120);
  EXPECT_NEAR(gigabytes(1), 31.4, 0.05);
  EXPECT_NEAR(gigabytes(2), 16.6, 0.05);
  EXPECT_NEAR(gigabytes(3), 1.9, 0.05);
  EXPECT_DOUBLE_EQ(peer_activation_bytes(2048, 1, 12288, 96), 2048.0 * 12288 * (34 + 80));
}

}  // namespace
}  // namespace spillway
