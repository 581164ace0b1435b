// The values that --sweep accepts. The plans that it makes: tests/command/plan_test.py.
#include "trainer/show/plan_sweep.h"

#include <gmock/gmock.h>

#include "memory/base/error.h"

namespace spillway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string refusal_of(const std::string& text) {
  try {
    parse_sweep(text);
  } catch (const InputError& error) {
    return fmt::format("{} / {}", error.what(), error.help());
  }
  return "";
}

TEST(ParseSweep, AFlagAndItsValues) {
  const Sweep sweep = parse_sweep("device-memory=512MiB,1GiB");
  EXPECT_EQ(sweep.flag, "device-memory");
  EXPECT_THAT(sweep.values, ElementsAre("512MiB", "1GiB"));
  EXPECT_THAT(parse_sweep("ranks=8").values, ElementsAre("8"));
}

TEST(ParseSweep, RefusesWithWhatIsAllowed) {
  EXPECT_THAT(refusal_of("rank=1,2"), HasSubstr("did you mean ranks?"));
  EXPECT_THAT(refusal_of("nonsense=1"), HasSubstr("which is no flag"));
  EXPECT_THAT(refusal_of("lr=1e-3,1e-4"), HasSubstr("\"lr\", which is not swept"));
  EXPECT_THAT(refusal_of("lr=1e-3"), HasSubstr("ranks, device-memory, seq-length, global-batch-size"));
  for (const char* text : {"ranks", "ranks="}) EXPECT_THAT(refusal_of(text), HasSubstr("ranks without values")) << text;
  for (const char* text : {"ranks=,", "ranks=1,", "ranks=1,,2", "ranks=,1"})
    EXPECT_THAT(refusal_of(text), HasSubstr("an empty value of ranks")) << text;
  EXPECT_THAT(refusal_of(""), HasSubstr("allowed: FLAG=V,V,..."));
  std::string many = "ranks=1";
  for (int rank = 2; rank <= 65; ++rank) many += fmt::format(",{}", rank);
  EXPECT_THAT(refusal_of(many), HasSubstr("65 values of ranks, allowed: at most 64"));
}

}  // namespace
}  // namespace spillway
