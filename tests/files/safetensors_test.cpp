#include "files/safetensors.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "memory/base/error.h"
#include "tests/files/safetensors_testing.h"

namespace spillway {
namespace {

using testing::HasSubstr;

TEST_F(Safetensors, ReadsAGoldenCase) {
  const SafetensorsReader reader(fs::path(SPILLWAY_TEST_DATA) / "golden/llama_gqa");
  const std::int64_t shape[] = {256, 64};
  const StoredTensor& head = reader.require("lm_head.weight", shape);
  EXPECT_EQ(head.type, ElementType::f32);
  EXPECT_EQ(head.bytes, 256 * 64 * 4);
  std::vector<float> whole(256 * 64);
  reader.read(head, 0, std::span(whole));
  double sum = 0;
  for (const float value : whole) sum += std::abs(value);
  EXPECT_GT(sum, 0);
  // Any range must equal the same part of the whole.
  std::vector<float> part(101);
  reader.read(head, 777, std::span(part));
  EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + 777));
  EXPECT_EQ(reader.find("no.such.tensor"), nullptr);
  // Tensors are in the order of the file.
  for (std::size_t i = 1; i < reader.tensors().size(); ++i) EXPECT_GE(reader.tensors()[i].offset, reader.tensors()[i - 1].offset);

  const SafetensorsReader golden(fs::path(SPILLWAY_TEST_DATA) / "golden/llama_gqa/golden.safetensors");
  EXPECT_THROW(golden.read(*golden.find("tokens"), 0, std::span(part)), InputError);
}

TEST_F(Safetensors, RequireNamesWhatIsMissingOrMisshapen) {
  const fs::path directory = fs::path(SPILLWAY_TEST_DATA) / "golden/gpt2";
  const SafetensorsReader reader(directory);
  const std::int64_t shape[] = {48, 48};
  try {
    static_cast<void>(reader.require("transformer.h.9.attn.c_proj.weight", shape));
    FAIL();
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("tensor \"transformer.h.9.attn.c_proj.weight\" is missing; the model needs it with shape [48, 48]"));
    EXPECT_THAT(error.what(), HasSubstr(directory.string()));
  }
  try {
    static_cast<void>(reader.require("transformer.h.0.attn.c_attn.weight", shape));
    FAIL();
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("has shape [48, 144]; the model needs [48, 48]"));
  }
}

// Compares all 65536 halves with the definition of the format, computed in double.
TEST_F(Safetensors, HalvesConvertExactly) {
  std::string data(65536 * 2, '\0');
  for (std::uint32_t i = 0; i < 65536; ++i) {
    const auto bits = static_cast<std::uint16_t>(i);
    std::memcpy(data.data() + i * 2, &bits, 2);
  }
  const std::string header = R"({"h":{"dtype":"F16","shape":[65536],"data_offsets":[0,131072]}})";
  const SafetensorsReader reader(write("halves.safetensors", file_of(header, data)));
  for (std::uint32_t i = 0; i < 65536; ++i) {
    float value = 0;
    const auto read = [&] { reader.read(reader.tensors()[0], i, std::span(&value, 1)); };
    const int exponent = static_cast<int>(i >> 10 & 31U);
    const int mantissa = static_cast<int>(i & 1023U);
    const double sign = (i & 0x8000U) != 0 ? -1 : 1;
    if (exponent == 31) {
      EXPECT_THROW(read(), InputError) << i;
      EXPECT_EQ(std::isnan(value), mantissa != 0);
      EXPECT_EQ(std::isinf(value), mantissa == 0);
      continue;
    }
    read();
    const double magnitude = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
    ASSERT_EQ(value, static_cast<float>(sign * magnitude)) << i;
    ASSERT_EQ(std::signbit(value), sign < 0) << i;
  }
}

TEST_F(Safetensors, RefusesValuesThatAreNotFinite) {
  // The value lies far enough into the tensor to be in a later piece of the reading.
  constexpr std::int64_t kElements = 40'000;
  std::vector<float> values(kElements, 0.5F);
  values[33'333] = std::numeric_limits<float>::quiet_NaN();
  std::string data(kElements * 4, '\0');
  std::memcpy(data.data(), values.data(), data.size());
  const std::string header = R"({"w.bad":{"dtype":"F32","shape":[400,100],"data_offsets":[0,160000]}})";
  const SafetensorsReader reader(write("w.safetensors", file_of(header, data)));
  std::vector<float> out(kElements);
  EXPECT_NO_THROW(reader.read(reader.tensors()[0], 0, std::span(out).first(33'333)));
  try {
    reader.read(reader.tensors()[0], 0, std::span(out));
    FAIL();
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("w.safetensors: tensor \"w.bad\" has nan at element 33333 ([333, 33]); all weights must be finite"));
  }
}

struct HostileFile {
  std::string content;
  const char* message;
};

std::string one(const char* dtype, const char* shape, const char* offsets) {
  return std::string("{\"a\":{\"dtype\":\"") + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}}";
}

// Files without a header, or with JSON of the wrong kind.
std::vector<HostileFile> hostile_headers() {
  const std::string good = R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  const std::string eight(8, '\0');
  return {
      {"", "has 0 bytes, too few for a safetensors header"},
      {"1234567", "has 7 bytes, too few"},
      {with_length(std::numeric_limits<std::uint64_t>::max(), "{}"),
       "the header has 18446744073709551615 bytes; at most 100000000"},
      {with_length(100'000'001, "{}"), "at most 100000000 are allowed"},
      {with_length(1000, "{}"), "is cut short: its header takes 1008 bytes, the file has 10"},
      {file_of("", ""), "does not begin with '{'"},
      {file_of(" {}", ""), "does not begin with '{'"},
      {file_of("[]", ""), "does not begin with '{'"},
      {file_of("{", ""), "not valid JSON at byte 2 of 1"},
      {file_of("{" + good + "} x", eight), "not valid JSON"},
      {file_of("{\"a\xff\":{}}", ""), "not valid JSON"},
      {file_of("{\"a\":5}", ""), "tensor \"a\": its entry is 5; an object was expected"},
      {file_of("{\"a\":[1,2]}", ""), "its entry is [1,2]; an object"},
      {file_of("{\"a\":{}}", ""), "tensor \"a\": its entry has no \"dtype\""},
      {file_of(R"({"a":{"dtype":"F32"}})", ""), "its entry has no \"shape\""},
      {file_of(R"({"a":{"dtype":"F32","shape":[2]}})", ""), "its entry has no \"data_offsets\""},
      {file_of("{" + good + "," + good + "}", eight), "tensor \"a\" is there twice"},
      {file_of("{\"__metadata__\":{\"format\":1}}", ""), "the value of \"format\" is 1; a string was expected"},
      {file_of("{\"__metadata__\":3}", ""), "its entry is 3; an object was expected"},
      {file_of("{\"a\":" + std::string(100'000, '[') + "}", ""), "is nested more than 8 deep"},
      {file_of("{\"a\":{\"shape\":" + std::string(50, '[') + "}", ""), "is nested more than 8 deep"},
  };
}

// Entries of one tensor that say something impossible.
std::vector<HostileFile> hostile_entries() {
  const std::string eight(8, '\0');
  std::string long_shape = "[1";
  for (int i = 0; i < 200; ++i) long_shape += ",1";
  long_shape += "]";
  return {
      {file_of(one("F33", "[2]", "[0,8]"), eight), "its dtype is \"F33\"; F32, BF16, F16 and I32 can be read"},
      {file_of(R"({"a":{"dtype":7,"shape":[2],"data_offsets":[0,8]}})", eight), "its dtype is 7"},
      {file_of(one("F32", "2", "[0,8]"), eight), "its shape is 2; a list"},
      {file_of(one("F32", "[-2]", "[0,8]"), eight), "its shape is [-2]; whole numbers from 0"},
      {file_of(one("F32", "[2.0]", "[0,8]"), eight), "its shape is [2.0]"},
      {file_of(one("F32", "[true]", "[0,8]"), eight), "its shape is [true]"},
      {file_of(one("F32", "[18446744073709551615]", "[0,8]"), eight), "whole numbers from 0 were expected"},
      {file_of(one("F32", "[4294967296,4294967296]", "[0,8]"), eight), "more elements than 64 bits can count"},
      {file_of(one("F32", "[4611686018427387904]", "[0,8]"), eight), "more bytes than 64 bits can count"},
      {file_of(one("F32", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]", "[0,4]"), "1234"), "a list of at most 16"},
      {file_of(one("F32", long_shape.c_str(), "[0,4]"), "1234"), "its entry has more than 64 values"},
      {file_of(one("F32", "[2]", "[0]"), eight), "its data_offsets are [0]; [begin, end]"},
      {file_of(one("F32", "[2]", "[0,8,9]"), eight), "[begin, end] was expected"},
      {file_of(one("F32", "[2]", "[-8,0]"), eight), "its data_offsets are [-8,0]"},
      {file_of(one("F32", "[2]", "[8,0]"), eight), "its data begins at 8 and ends before, at 0"},
      {file_of(one("F32", "[2]", "[0,7]"), eight), "its data_offsets hold 7 bytes, but its shape [2] in F32 takes 8"},
      {file_of(one("BF16", "[2]", "[0,8]"), eight), "hold 8 bytes, but its shape [2] in BF16 takes 4"},
      {file_of(one("F32", "[2]", "[0,8]"), "1234"),
       "is cut short: its header describes 8 bytes of data up to the end of tensor \"a\", 4 are there"},
      {file_of(one("F32", "[2]", "[0,8]"), eight + "x"), "has 1 bytes after its last tensor that belong to none"},
      {file_of(one("F32", "[2]", "[4,12]"), eight + "1234"),
       "bytes 0 to 4 of its data, before tensor \"a\", belong to no tensor"},
      {file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
               eight + "1234"),
       "the data of tensor \"b\" begins at 4 inside that of \"a\", which ends at 8"},
      {file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[1],"data_offsets":[12,16]}})",
               eight + eight),
       "bytes 8 to 12 of its data, before tensor \"b\", belong to no tensor"},
      {file_of(R"({"a":{"dtype":"F32","dtype":"F16","shape":[2],"data_offsets":[0,8]}})", eight),
       "the key \"dtype\" is there twice"},
      {file_of(one("F32", "[1e999]", "[0,8]"), eight), "its header"},
  };
}

TEST_F(Safetensors, RefusesHostileFiles) {
  for (const auto& files : {hostile_headers(), hostile_entries()}) {
    for (const HostileFile& hostile : files) {
      EXPECT_THAT(refusal(write("hostile.safetensors", hostile.content)), HasSubstr(hostile.message))
          << hostile.content.substr(0, 200);
    }
  }
}

TEST_F(Safetensors, AcceptsWhatTheFormatAllows) {
  const std::string header = R"({"__metadata__":{"format":"pt"},"scalar":{"dtype":"F32","shape":[],"data_offsets":[0,4]},)"
                             R"("empty":{"dtype":"F16","shape":[0,3],"data_offsets":[4,4]},)"
                             R"("mask":{"dtype":"BOOL","shape":[4],"data_offsets":[4,8]}}   )";
  const SafetensorsReader reader(write("odd.safetensors", file_of(header, std::string("\0\0\x80\x3f", 4) + "1234")));
  ASSERT_EQ(reader.tensors().size(), 3U);
  EXPECT_EQ(reader.find("scalar")->elements, 1);
  EXPECT_EQ(reader.find("empty")->elements, 0);
  float value = 0;
  reader.read(*reader.find("scalar"), 0, std::span(&value, 1));
  EXPECT_EQ(value, 1.0F);
  EXPECT_NO_THROW(reader.read(*reader.find("empty"), 0, std::span<float>()));
  EXPECT_THROW(reader.read(*reader.find("mask"), 0, std::span(&value, 1)), InputError);
  const SafetensorsReader none(write("none.safetensors", file_of("{}", "")));
  EXPECT_TRUE(none.tensors().empty());
}

TEST_F(Safetensors, FilesThatAreNone) {
  EXPECT_THAT(refusal(directory_ / "missing.safetensors"), HasSubstr("there is no such file"));
  EXPECT_THAT(refusal(directory_), HasSubstr("has neither model.safetensors nor model.safetensors.index.json"));
  ASSERT_EQ(::symlink("/dev/null", (directory_ / "device.safetensors").c_str()), 0);
  EXPECT_THAT(refusal(directory_ / "device.safetensors"), HasSubstr("not a regular file"));
}

TEST_F(Safetensors, AFileThatShrinksAfterOpening) {
  const fs::path path = write("shrinks.safetensors", file_of(one("F32", "[2]", "[0,8]"), std::string(8, '\0')));
  const SafetensorsReader reader(path);
  fs::resize_file(path, fs::file_size(path) - 4);
  std::vector<float> out(2);
  EXPECT_THROW(reader.read(reader.tensors()[0], 0, std::span(out)), IoError);
}

TEST_F(Safetensors, IndexAndShards) {
  write("model-00001-of-00002.safetensors", file_of(one("F32", "[2]", "[0,8]"), std::string(8, '\1')));
  write("model-00002-of-00002.safetensors", file_of(R"({"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "1234"));
  const fs::path index = directory_ / "model.safetensors.index.json";
  const auto with_map = [&](const std::string& map) {
    write("model.safetensors.index.json", "{\"metadata\":{\"total_size\":12},\"weight_map\":" + map + "}");
    return refusal(index);
  };
  EXPECT_EQ(with_map(R"({"b":"model-00002-of-00002.safetensors","a":"model-00001-of-00002.safetensors"})"), "");
  const SafetensorsReader reader(directory_);
  ASSERT_EQ(reader.tensors().size(), 2U);
  EXPECT_EQ(reader.tensors()[0].name, "a");
  EXPECT_EQ(reader.tensors()[1].file, 1);
  EXPECT_EQ(reader.files().size(), 2U);

  EXPECT_THAT(with_map(R"({"a":"model-00001-of-00002.safetensors","b":"gone.safetensors"})"),
              HasSubstr("the shard \"gone.safetensors\", with 1 of"));
  EXPECT_THAT(with_map(R"({"a":"model-00001-of-00002.safetensors","c":"model-00002-of-00002.safetensors"})"),
              HasSubstr("tensor \"c\" is not in the shard"));
  EXPECT_THAT(with_map(R"({"a":"model-00001-of-00002.safetensors"})"),
              testing::IsEmpty());  // a shard that nobody names is not read
  EXPECT_THAT(with_map(R"({"a":"../model-00001-of-00002.safetensors"})"), HasSubstr("has no directory"));
  EXPECT_THAT(with_map(R"({"a":7})"), HasSubstr("tensor \"a\" is said to be in 7"));
  EXPECT_THAT(with_map("{}"), HasSubstr("has no \"weight_map\""));
  EXPECT_THAT(with_map("[]"), HasSubstr("has no \"weight_map\""));
  EXPECT_THAT(with_map(R"({"a":"x.safetensors","a":"y.safetensors"})"), HasSubstr("the key \"a\" is there twice"));
  write("model.safetensors.index.json", "[");
  EXPECT_THAT(refusal(index), HasSubstr("not valid JSON"));

  write("model-00002-of-00002.safetensors", file_of(one("F32", "[2]", "[0,8]"), std::string(8, '\2')));
  EXPECT_THAT(with_map(R"({"a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors"})"),
              HasSubstr("tensor \"b\" is not in the shard"));
  write("model-00002-of-00002.safetensors",
        file_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
                "12345678"));
  EXPECT_THAT(with_map(R"({"a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors"})"),
              HasSubstr("has tensor \"a\", which the index places in \"model-00001-of-00002.safetensors\""));
}

void mutate(std::string& text, std::mt19937_64& random) {
  const std::string_view pieces[] = {"{",         "}",
                                     "[",         "]",
                                     "\"",        ",",
                                     ":",         "-1",
                                     "0",         "18446744073709551616",
                                     "1e400",     "null",
                                     "\"F32\"",   "\xff",
                                     "\\u0000",   "\"a\"",
                                     "\"shape\"", "9223372036854775807"};
  const int changes = 1 + static_cast<int>(random() % 4);
  for (int change = 0; change < changes && !text.empty(); ++change) {
    // Changes are mostly in the header; the first 8 bytes are its length.
    const std::size_t at = random() % std::min<std::size_t>(text.size(), random() % 4 == 0 ? 8 : 4000);
    switch (random() % 5) {
      case 0: text[at] = static_cast<char>(random()); break;
      case 1: text[at] = static_cast<char>(text[at] ^ (1 << (random() % 8))); break;
      case 2: text.erase(at, 1 + random() % 12); break;
      case 3: text.insert(at, pieces[random() % std::size(pieces)]); break;
      default: text.resize(at + 1); break;
    }
  }
  // Half of the files keep a length that fits, so that the JSON itself is reached.
  if (random() % 2 == 0 && text.size() > 24) {
    const std::uint64_t length = text.size() - 8 - std::min<std::size_t>(16, text.size() - 24);
    std::memcpy(text.data(), &length, 8);
  }
}

// Thousands of damaged headers, the same ones every time. Each must open or be refused in our own words.
TEST_F(Safetensors, SurvivesMutatedHeaders) {
  const std::string seed = read_all(fs::path(SPILLWAY_TEST_DATA) / "golden/gpt2/model.safetensors");
  const std::string small = file_of(R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},)"
                                    R"("b":{"dtype":"BF16","shape":[4],"data_offsets":[8,16]}})",
                                    std::string(16, '\0'));
  std::mt19937_64 random(20260101);
  int opened = 0;
  int refused = 0;
  for (int round = 0; round < 6000; ++round) {
    std::string text = round % 8 == 0 ? seed.substr(0, 16'000) : small;
    mutate(text, random);
    const fs::path path = write("mutated.safetensors", text);
    try {
      const SafetensorsReader reader(path);
      for (const StoredTensor& tensor : reader.tensors()) {
        if (size_of(tensor.type) == 2 || tensor.type == ElementType::f32) {
          std::vector<float> out(static_cast<std::size_t>(tensor.elements));
          reader.read(tensor, 0, std::span(out));
        }
      }
      ++opened;
    } catch (const InputError&) {
      ++refused;
    } catch (const IoError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 3000);
  EXPECT_EQ(opened + refused, 6000);
}

// Like the reference implementation: a header may be filled up with spaces, and have no metadata, or null.
TEST_F(Safetensors, WhatTheReferenceReads) {
  const std::string entry = R"("w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
  const std::string data(4, '\0');
  for (const std::string& header : {"{\"__metadata__\":null," + entry + "}", "{" + entry + ",\"__metadata__\":null}",
                                    "{" + entry + "}     ", "{\"__metadata__\":{\"format\":\"pt\"}," + entry + "}"}) {
    const SafetensorsReader reader(write("w.safetensors", file_of(header, data)));
    EXPECT_EQ(reader.tensors().size(), 1U) << header;
    EXPECT_NE(reader.find("w"), nullptr);
  }
  EXPECT_THAT(refusal(write("w.safetensors", file_of("{" + entry + "}" + std::string(3, '\0'), data))), HasSubstr("zero byte"));
  EXPECT_NE(refusal(write("w.safetensors", file_of("{\"w\":null}", ""))), "");
}

TEST_F(Safetensors, WhatStandsInThePlaceOfAFile) {
  EXPECT_THAT(refusal(write("w.safetensors", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")),
              HasSubstr("is a Git LFS pointer"));
  for (const char* const page : {"<!DOCTYPE html>\n<html>...", "\n  <html lang=\"en\"><head>", "<!doctype HTML>",
                                 "\xef\xbb\xbf<HTML>", "<?xml version=\"1.0\"?><Error>AccessDenied</Error>"})
    EXPECT_THAT(refusal(write("w.safetensors", page)), HasSubstr("is a web page")) << page;
  EXPECT_THAT(refusal(write("model.safetensors.index.json", "<html>")), HasSubstr("is a web page"));
}

}  // namespace
}  // namespace spillway
