// The rows of a JSON array are the lines that a .jsonl file of them would have.
#include "trainer/data/array_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "memory/base/error.h"
#include "tests/trainer/damaged_text.h"
#include "tests/trainer/temporary_directory.h"
#include "trainer/data/open_data.h"

namespace spillway {
namespace {

std::string lines_of(const std::string& json, std::size_t block = 5) {
  const TemporaryDirectory directory;
  bool is_array = false;
  const auto lines = lines_of_json(open_bytes(directory.file("a.json", json)), "a.json", is_array);
  std::string all, some(block, '\0');
  for (std::size_t count = 0; (count = lines->read(some)) > 0;) all.append(some, 0, count);
  return all;
}

TEST(ArrayRows, ALineEach) {
  EXPECT_EQ(lines_of(R"([{"a": 1},{"b": [2, {"c": 3}]}])"), "{\"a\": 1}\n{\"b\": [2, {\"c\": 3}]}\n");
  EXPECT_EQ(lines_of("\xef\xbb\xbf \r\n[ ]\n"), "");
  EXPECT_EQ(lines_of("[\n  {\n    \"a\": 1\n  },\n  {\"b\": 2}\n]\n"), "{     \"a\": 1   }\n{\"b\": 2}\n");
  // Brackets and quotes within texts.
  EXPECT_EQ(lines_of(R"([{"a": "]}\"\\"}, {"b": "[{"}])"), "{\"a\": \"]}\\\"\\\\\"}\n{\"b\": \"[{\"}\n");
  // What is no object is a line, too: its reader refuses it.
  EXPECT_EQ(lines_of(R"([1, "a,]" , [2, 3],null])"), "1\n\"a,]\"\n[2, 3]\nnull\n");
  // A line break in a text is no JSON, and stays none.
  EXPECT_EQ(lines_of("[{\"a\": \"x\ny\"}]"), "{\"a\": \"x\ry\"}\n");
  // Lines stay as they are.
  EXPECT_EQ(lines_of("{\"a\": 1}\n{\"a\": 2}\n"), "{\"a\": 1}\n{\"a\": 2}\n");
  const std::string deep(1 << 20, '[');
  EXPECT_EQ(lines_of("[" + deep + std::string(1 << 20, ']') + "]", 1 << 16).size(), (std::size_t{2} << 20) + 1);
}

TEST(ArrayRows, WhatIsNoArrayIsRefused) {
  EXPECT_REFUSED(lines_of("[{\"a\": 1}, {\"a\": 2}"), InputError, "a.json after row 2: the array of rows does not end");
  EXPECT_REFUSED(lines_of("[{\"a\": \"no end]"), InputError, "does not end");
  EXPECT_REFUSED(lines_of("["), InputError, "does not end");
  EXPECT_REFUSED(lines_of("[{\"a\": 1} {\"a\": 2}]"), InputError, "after row 1: found { at byte 11, allowed: , or ]");
  EXPECT_REFUSED(lines_of("[{\"a\": 1},]"), InputError, "found ] at byte 11, allowed: a row");
  EXPECT_REFUSED(lines_of("[,]"), InputError, "found , at byte 2");
  EXPECT_REFUSED(lines_of("[{}] x"), InputError, "found x at byte 6, allowed: nothing behind the array");
  EXPECT_REFUSED(lines_of(std::string("[{}]\0", 5)), InputError, "found the byte 0x00 at byte 5");
}

TEST(ArrayRows, DamagedArraysNeverEscape) {
  const std::string text = R"([{"text": "some [words]", "n": [1, {"m": "x\"y"}]}, {"text": "more"}])";
  std::uint32_t random = 3;
  int refused = 0;
  for (int round = 0; round < 300; ++round) {
    try {
      (void)lines_of(damaged_text(text, 3, random));
    } catch (const InputError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 20);
}

}  // namespace
}  // namespace spillway
