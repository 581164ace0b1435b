#include "trainer/keep/state_sums.h"

#include <gtest/gtest.h>

#include <fstream>

#include "memory/base/error.h"
#include "tests/trainer/temporary_directory.h"

namespace spillway {
namespace {

TEST(StateSums, AreOfWhatWasWrittenInPiecesOfAnySize) {
  const TemporaryDirectory directory;
  std::vector<std::byte> content(1000);
  for (std::size_t i = 0; i < content.size(); ++i) content[i] = static_cast<std::byte>(i * 7);
  const std::span<const std::byte> whole(content);
  SummedWriter writer(directory.path() + "/state.safetensors", {{"a", ElementType::u16, {500}}, {"b", ElementType::f32, {250}}});
  for (std::size_t at = 0; at < 1000; at += 250) writer.append("a", whole.subspan(at, 250));
  writer.append("b", whole);
  const StateSums sums = writer.finish();
  EXPECT_EQ(sums, (StateSums{{"a", content_hash(whole)}, {"b", content_hash(whole)}}));
  const std::string file = directory.path() + "/state.safetensors";
  write_state_sums(file, sums);
  EXPECT_EQ(read_state_sums(file), sums);
  EXPECT_EQ(check_state_file(file), 2000);
  check_state_sum(sums, file, "a", content_hash(whole));
  EXPECT_REFUSED(check_state_sum(sums, file, "a", 1), IoError,
                 "a is damaged: it has checksum 0000000000000001 and was written with");
  EXPECT_REFUSED(check_state_sum(sums, file, "c", 1), IoError, "none is in the file of checksums");
}

TEST(StateSums, AFileOfThemThatIsMissingOrDamagedIsNamed) {
  const TemporaryDirectory directory;
  const std::string file = directory.path() + "/state.safetensors";
  EXPECT_REFUSED(read_state_sums(file), IoError, "state.safetensors.xxh3 is missing");
  for (const char* text : {"", "{", "[]", "{\"a\": 3}", "{\"a\": \"\"}", "{\"a\": \"0123456789abcde\"}",
                           "{\"a\": \"0123456789abcdeg\"}", "{\"a\": \"-123456789abcdef\"}"}) {
    std::ofstream(state_sums_file(file)) << text;
    EXPECT_REFUSED(read_state_sums(file), IoError, "state.safetensors.xxh3 is damaged");
  }
}

}  // namespace
}  // namespace spillway
