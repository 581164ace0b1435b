#include "memory/base/names.h"

#include <gtest/gtest.h>

#include <vector>

#include "memory/base/types.h"

namespace spillway {
namespace {

static_assert(is_enumerator<Tier::nvme>());
static_assert(!is_enumerator<static_cast<Tier>(kAll<Tier>.size())>(), "else By<Tier, T> has no place for a tier");

TEST(By, HasAPlaceForEachValueAndNothingWhereNothingIsGiven) {
  const By<Tier, Bytes> none, given{{Tier::nvme, 3}, {Tier::device, 1}};
  for (const Tier tier : kAll<Tier>) EXPECT_EQ(none[tier], 0) << name_of(tier);
  EXPECT_EQ(std::vector<Bytes>(given.begin(), given.end()), (std::vector<Bytes>{1, 0, 3})) << "in the order of the enumeration";
  By<Tier, Bytes> changed = given;
  changed[Tier::host] = 2;
  EXPECT_NE(changed, given);
  changed = {};
  EXPECT_EQ(changed, none);
}

}  // namespace
}  // namespace spillway
