// Files within the program are those of the repository, whatever bytes they have (cmake/embed.cmake).
#include "tests/files/embedded_for_test.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>

namespace spillway {
namespace {

std::string content_of(const std::string& file) {
  std::ifstream stream(std::string(SPILLWAY_TEST_DATA "/") + file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

TEST(EmbeddedFile, HasEveryByteOfTheFile) {
  ASSERT_EQ(embedded_for_test().size(), 2u);
  EXPECT_EQ(embedded_for_test()[0].name, "every_byte");
  EXPECT_EQ(embedded_for_test()[0].text, content_of("every_byte.bin"));
  EXPECT_EQ(embedded_for_test()[1].name, "machine");
  EXPECT_EQ(embedded_for_test()[1].text, content_of("machine.json"));
}

}  // namespace
}  // namespace spillway
