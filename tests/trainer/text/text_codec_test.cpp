#include "trainer/text/text_codec.h"

#include <gtest/gtest.h>

#include "memory/error.h"
#include "tests/trainer/temporary_directory.h"

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

// The bytes as tokens, and two special ones; <s> goes before a text.
const char* const kTokenizer = R"({"version":"1.0","added_tokens":[
  {"id":3,"content":"<s>","special":true,"single_word":false,"lstrip":false,"rstrip":false,"normalized":false},
  {"id":4,"content":"</s>","special":true,"single_word":false,"lstrip":false,"rstrip":false,"normalized":false}],
 "normalizer":null,"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true},
 "post_processor":{"type":"Sequence","processors":[{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":false,
   "use_regex":true},
  {"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>","type_id":0}},{"Sequence":{"id":"A","type_id":0}}],
   "pair":[],"special_tokens":{"<s>":{"id":"<s>","ids":[3],"tokens":["<s>"]}}}]},
 "decoder":{"type":"ByteLevel"},
 "model":{"type":"BPE","dropout":null,"unk_token":null,"continuing_subword_prefix":null,"end_of_word_suffix":null,
  "fuse_unk":false,
  "byte_fallback":false,"ignore_merges":false,"vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]}})";

TEST(TextCodec, WhatATokenizerPutsBeforeAText) {
  const TemporaryDirectory directory;
  const TextCodec codec(directory.file("tokenizer.json", kTokenizer), 5);
  EXPECT_EQ(codec.prompt("abb"), (std::vector<std::int32_t>{3, 2, 1}));
  EXPECT_EQ(codec.prompt("<s>ab"), (std::vector<std::int32_t>{3, 2})) << "not twice";
  EXPECT_EQ(codec.prompt(""), (std::vector<std::int32_t>{3}));
  EXPECT_EQ(codec.bytes_of(2), "ab");
  EXPECT_EQ(codec.bytes_of(3), "") << "special";
  EXPECT_EQ(codec.end_of_text(), 4);
  EXPECT_REFUSED(codec.prompt("a\xff"), InputError, "0xff");
  EXPECT_REFUSED(TextCodec(directory.path(), 4), InputError, "tokens up to 4");
}

}  // namespace
}  // namespace spillway
