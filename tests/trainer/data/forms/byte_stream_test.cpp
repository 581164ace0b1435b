// Compressed files give the bytes that were compressed, or are refused: cut short, damaged, of another kind, or too greedy.
#include "trainer/data/open_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "memory/base/error.h"
#include "tests/trainer/damaged_text.h"
#include "tests/trainer/data/forms/compressed.h"
#include "tests/trainer/temporary_directory.h"

namespace spillway {
namespace {

// Read in blocks of that many bytes.
std::string all_of(const std::string& path, std::size_t block = 1000) {
  const auto bytes = open_bytes(path);
  std::string all, some(block, '\0');
  for (std::size_t count = 0; (count = bytes->read(some)) > 0;) all.append(some, 0, count);
  EXPECT_EQ(bytes->read(some), 0U) << "the end stays the end";
  return all;
}

std::string sample(std::size_t length) {
  std::string text;
  for (std::uint32_t random = 1; text.size() < length; random = random * 1664525U + 1013904223U)
    text += "row " + std::to_string(random >> 12) + "\n";
  return text;
}

struct Kind {
  std::string ending;
  std::string (*compress)(std::string_view);
};
const std::vector<Kind> kKinds = {{".gz", gzipped}, {".zst", zstandard}};

TEST(ByteStream, WhatWasCompressedComesBack) {
  const TemporaryDirectory directory;
  for (const auto& [ending, compress] : kKinds) {
    for (const std::size_t length : {0U, 1U, 999U, 1000U, 3'000'000U}) {
      const std::string text = sample(length);
      const std::string path = directory.file("a.txt" + ending, compress(text));
      for (const std::size_t block : {7U, 1000U, 1U << 20})
        EXPECT_TRUE(all_of(path, block) == text) << ending << " of " << length << " bytes, by " << block;
      const PosixFile file = open_for_random_access(path);
      EXPECT_EQ(file.size(), static_cast<Bytes>(text.size()));
      if (text.size() > 500) {
        std::string part(100, '\0');
        file.read(400, std::as_writable_bytes(std::span(part)));
        EXPECT_EQ(part, text.substr(400, 100));
      }
    }
    // Parts one behind the other are one text.
    EXPECT_EQ(all_of(directory.file("b.txt" + ending, compress("one\n") + compress("") + compress("two\n"))), "one\ntwo\n");
  }
  EXPECT_EQ(all_of(directory.file("padded.txt.gz", gzipped("text") + std::string(1024, '\0'))), "text");
}

TEST(ByteStream, WhatIsCutShortIsRefused) {
  const TemporaryDirectory directory;
  for (const auto& [ending, compress] : kKinds) {
    const std::string whole = compress(sample(20'000));
    for (std::size_t kept = 0; kept < whole.size(); kept += kept < 40 ? 1 : 997) {
      const std::string path = directory.file("cut.jsonl" + ending, whole.substr(0, kept));
      EXPECT_REFUSED(all_of(path), InputError, kept == 0 ? "found nothing" : "data end within");
    }
    const std::string path = directory.file("cut.jsonl" + ending, whole + whole.substr(0, whole.size() - 1));
    EXPECT_REFUSED(all_of(path), InputError, "data end within");
  }
}

TEST(ByteStream, DamageIsRefused) {
  const TemporaryDirectory directory;
  std::uint32_t random = 7;
  for (const auto& [ending, compress] : kKinds) {
    const std::string text = sample(20'000), whole = compress(text);
    int refused = 0;
    for (int round = 0; round < 200; ++round) {
      try {
        (void)all_of(directory.file("damaged.txt" + ending, damaged_text(whole, 1, random)));
      } catch (const InputError&) {
        ++refused;
      }
    }
    EXPECT_GT(refused, ending == ".gz" ? 190 : 150) << ending << ": gzip has a checksum, and these frames have none";
  }
  EXPECT_REFUSED(all_of(directory.file("a.txt.gz", "plain text")), InputError, "no gzip data");
  EXPECT_REFUSED(all_of(directory.file("a.txt.zst", "plain text")), InputError, "no Zstandard data");
  EXPECT_REFUSED(all_of(directory.file("a.txt.gz", gzipped("text") + "more")), InputError, "other bytes behind");
}

TEST(ByteStream, AFrameThatNeedsMuchMemoryIsRefused) {
  const TemporaryDirectory directory;
  // A header of a frame with a window of 2^31 bytes, and the beginning of a block.
  const std::string header("\x28\xb5\x2f\xfd\x00\xa8\x01\x00\x00", 9);
  EXPECT_REFUSED(all_of(directory.file("a.jsonl.zst", header)), InputError, "needs more than 128 MiB to be read");
}

TEST(ByteStream, Names) {
  EXPECT_EQ(data_name_in("a/b.jsonl").kind, DataKind::rows);
  EXPECT_EQ(data_name_in("b.ndjson.zst").kind, DataKind::rows);
  EXPECT_EQ(data_name_in("b.ndjson.zst").compression, Compression::zstd);
  EXPECT_EQ(data_name_in("B.JSON.GZ").kind, DataKind::array);
  EXPECT_EQ(data_name_in("b.bin.gz").kind, DataKind::tokens);
  EXPECT_EQ(data_name_in("b.txt").compression, Compression::none);
  for (const char* name : {"gz", "a.jsonl/b", ".jsonl", "a.gz", "jsonl", ""})
    EXPECT_EQ(data_name_in(name).kind, DataKind::other) << name;
}

TEST(ByteStream, TablesAreRefusedWithTheLineThatMakesRows) {
  const auto help_of = [](const std::string& path) {
    try {
      refuse_table(path, "--data");
    } catch (const InputError& error) {
      return error.help();
    }
    return std::string();
  };
  EXPECT_THAT(
      help_of("d/train.parquet"),
      testing::HasSubstr("from datasets import Dataset; Dataset.from_parquet('d/train.parquet').to_json('d/train.jsonl')"));
  EXPECT_THAT(help_of("a.arrow"), testing::HasSubstr("Dataset.from_file('a.arrow').to_json('a.jsonl')"));
  EXPECT_THAT(help_of("it's.csv.gz"), testing::HasSubstr("Dataset.from_csv('it\\'s.csv.gz').to_json('it\\'s.jsonl')"));
  EXPECT_THAT(help_of("a.tsv"), testing::HasSubstr("Dataset.from_csv('a.tsv', sep='\\t')"));
  EXPECT_EQ(help_of("a.jsonl"), "");
}

}  // namespace
}  // namespace spillway
