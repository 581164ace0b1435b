#include "trainer/text/text_codec.h"

#include <gtest/gtest.h>

#include "memory/base/error.h"
#include "tests/trainer/temporary_directory.h"
#include "tests/trainer/text/tokenizers.h"

namespace spillway {
namespace {

TEST(Utf8Stream, GivesWholeCharactersHoweverTheBytesCome) {
  const std::string text = "a\u00e9\u20ac\U0001f600z\n";
  for (std::size_t step = 1; step <= text.size(); ++step) {
    Utf8Stream stream;
    std::string all;
    for (std::size_t at = 0; at < text.size(); at += step) {
      const std::string given = stream.add(std::string_view(text).substr(at, step));
      EXPECT_TRUE(given.empty() || (static_cast<unsigned char>(given[0]) & 0xc0) != 0x80) << "begins within a character";
      all += given;
    }
    EXPECT_EQ(all + stream.finish(), text) << step;
  }
}

TEST(Utf8Stream, WhatIsNoUtf8BecomesReplacements) {
  Utf8Stream stream;
  EXPECT_EQ(stream.add("a\xff"), "a\ufffd");
  EXPECT_EQ(stream.add("\xe2\x82"), "");
  EXPECT_EQ(stream.add("b"), "\ufffd\ufffdb");
  EXPECT_EQ(stream.add("\xf0\x9f"), "");
  EXPECT_EQ(stream.finish(), "\ufffd");
  EXPECT_EQ(stream.finish(), "");
}

TEST(TextCodec, Bytes) {
  const TextCodec codec("bytes", 256);
  EXPECT_EQ(codec.prompt("a\xff"), (std::vector<std::int32_t>{97, 255}));
  EXPECT_EQ(codec.bytes_of(97), "a");
  EXPECT_EQ(codec.bytes_of(256), "");
  EXPECT_REFUSED(TextCodec("bytes", 255), InputError, "255");
  EXPECT_REFUSED(TextCodec("", 300), InputError, "--tokenizer");
  EXPECT_REFUSED(TextCodec("/nowhere", 300), InputError, "/nowhere");
}

TEST(TextCodec, WhatATokenizerPutsBeforeAText) {
  const TemporaryDirectory directory;
  const TextCodec codec(directory.file("tokenizer.json", kSmallTokenizer), 5);
  EXPECT_EQ(codec.prompt("abb"), (std::vector<std::int32_t>{3, 2, 1}));
  EXPECT_EQ(codec.prompt("<s>ab"), (std::vector<std::int32_t>{3, 2})) << "not twice";
  EXPECT_EQ(codec.prompt(""), (std::vector<std::int32_t>{3}));
  EXPECT_EQ(codec.bytes_of(2), "ab");
  EXPECT_EQ(codec.bytes_of(3), "") << "special";
  EXPECT_EQ(codec.end_of_text(), 4);
  EXPECT_REFUSED(codec.prompt("a\xff"), InputError, "0xff");
}

// All text models of Gemma 3 have an added token whose id equals the number of rows.
TEST(TextCodec, IdsAreCheckedWhereTheyOccur) {
  const TemporaryDirectory directory;
  const TextCodec codec(directory.file("tokenizer.json", kSmallTokenizer), 4);
  EXPECT_EQ(codec.prompt("abb"), (std::vector<std::int32_t>{3, 2, 1}));
  EXPECT_EQ(codec.end_of_text(), 4);
  EXPECT_REFUSED(codec.prompt("ab</s>"), InputError, "the prompt has token 4 of " + directory.path());
  EXPECT_REFUSED(TextCodec(directory.path(), 3).prompt("a"), InputError, "allowed: below 3");
}

}  // namespace
}  // namespace spillway
