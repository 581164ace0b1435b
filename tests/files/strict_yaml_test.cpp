// YAML as people write it is read; what could be hostile is refused, with the line and in bounded memory.
#include "files/strict_yaml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "memory/base/error.h"

namespace spillway {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

YamlValue read(std::string_view text) { return parse_strict_yaml(text, "c.yaml"); }

// The message that refuses it; empty if it is accepted.
std::string refusal(std::string_view text) {
  try {
    (void)read(text);
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), StartsWith("c.yaml: "));
    EXPECT_THAT(error.what(), Not(HasSubstr("\n")));
    return error.what();
  }
  return {};
}

std::string repeated(std::string_view text, int times) {
  std::string whole;
  for (int i = 0; i < times; ++i) whole += text;
  return whole;
}

std::vector<std::string> names(const YamlValue& block) {
  std::vector<std::string> found;
  for (const YamlKey& key : block.keys) found.push_back(key.name);
  return found;
}

std::vector<std::string> words(const YamlValue& list) {
  std::vector<std::string> found;
  for (const YamlValue& value : list.values) found.push_back(value.text);
  return found;
}

TEST(StrictYaml, ReadsKeysWordsListsAndBlocks) {
  const YamlValue whole =
      read("# a comment\nlr: 1e-4  # a rate\nname: \"two\\nlines\"\nempty:\nlist: [a, 'b']\nblock:\n  x: 1\n");
  EXPECT_EQ(whole.kind, YamlKind::block);
  EXPECT_THAT(names(whole), ElementsAre("lr", "name", "empty", "list", "block"));
  EXPECT_EQ(whole.keys[0].line, 2);
  EXPECT_EQ(whole.keys[4].line, 6);
  EXPECT_EQ(whole.values[0].kind, YamlKind::plain);
  EXPECT_EQ(whole.values[0].text, "1e-4");
  EXPECT_EQ(whole.values[1].kind, YamlKind::quoted);
  EXPECT_EQ(whole.values[1].text, "two\nlines");
  EXPECT_EQ(whole.values[2].kind, YamlKind::null);
  EXPECT_EQ(whole.values[3].kind, YamlKind::list);
  EXPECT_THAT(words(whole.values[3]), ElementsAre("a", "b"));
  EXPECT_EQ(whole.values[3].values[1].kind, YamlKind::quoted);
  EXPECT_EQ(whole.values[4].kind, YamlKind::block);
  EXPECT_EQ(whole.values[4].values[0].text, "1");
  EXPECT_EQ(whole.values[4].values[0].line, 7);
}

TEST(StrictYaml, ReadsOtherSpellings) {
  EXPECT_EQ(read("\xef\xbb\xbf---\r\na: 1\r\n...\r\n").values[0].text, "1");
  EXPECT_THAT(names(read("{a: 1, \"b\": 2}")), ElementsAre("a", "b"));
  EXPECT_EQ(read("a: |\n  one\n  two\n").values[0].text, "one\ntwo\n");
  EXPECT_EQ(read("a: |\n  one").values[0].kind, YamlKind::quoted);
  EXPECT_THAT(names(read("%YAML 1.2\n---\na: 1")), ElementsAre("a"));
  EXPECT_THAT(words(read("- \xc3\xa9\n- ~\n")), ElementsAre("\xc3\xa9", ""));
}

TEST(StrictYaml, AliasesAreCopies) {
  const YamlValue whole = read("a: &x {k: [1, &y 2]}\nb: *x\nc: *y\n*y : 3\n");
  EXPECT_THAT(names(whole), ElementsAre("a", "b", "c", "2"));
  EXPECT_EQ(whole.values[1].line, 2);
  EXPECT_THAT(words(whole.values[1].values[0]), ElementsAre("1", "2"));
  EXPECT_EQ(whole.values[2].text, "2");
}

// Ten anchors of ten aliases each are ten thousand million values.
TEST(StrictYaml, AliasesThatGrowAreRefused) {
  std::string bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 10; ++i) {
    const std::string before = "*a" + std::to_string(i - 1), name = "a" + std::to_string(i);
    bomb += name + ": &" + name + " [" + before + repeated(", " + before, 9) + "]\n";
  }
  EXPECT_THAT(refusal(bomb), HasSubstr("more than 100000 values, counted as often as anchors and aliases repeat them"));
  // Few values, of many bytes.
  const std::string text = "a: &a " + std::string(100'000, 'x') + "\nb: [" + repeated("*a, ", 100) + "]\n";
  EXPECT_THAT(refusal(text), HasSubstr("line 2: found more than 4194304 bytes of words"));
  // Deep by aliases: each is within the next.
  std::string deep = "a0: &a0 [x]\n";
  for (int i = 1; i < 80; ++i)
    deep += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [*a" + std::to_string(i - 1) + "]\n";
  EXPECT_THAT(refusal(deep), HasSubstr("nested more than 64 deep"));
  EXPECT_THAT(refusal("a: &a [*a]\n"), HasSubstr("line 1: found an alias within its own anchor"));
  EXPECT_THAT(refusal("a: *none\n"), HasSubstr("not valid YAML at line 1"));
}

TEST(StrictYaml, DepthIsBounded) {
  EXPECT_EQ(refusal(repeated("[", 64) + repeated("]", 64)), "");
  for (const std::string_view opens : {"[", "{a: ", "- ", "[a, ", "? ", "{? ", "[&a ", "- - ? - "})
    for (const int times : {65, 1000, 200'000}) EXPECT_NE(refusal(repeated(opens, times)), "") << opens << times;
  EXPECT_THAT(refusal(repeated("[", 65) + repeated("]", 65)), HasSubstr("nested more than 64 deep"));
  std::string blocks;
  for (int i = 0; i < 200; ++i) blocks += std::string(static_cast<std::size_t>(i), ' ') + "a:\n";
  EXPECT_THAT(refusal(blocks), HasSubstr("line 65: its YAML is nested more than 64 deep"));
}

TEST(StrictYaml, RefusesWithTheLine) {
  const std::pair<const char*, const char*> rows[] = {
      {"a: 1\nb: 2\n\"a\": 3\n", "line 3: the key \"a\" is there twice, first on line 1"},
      {"a:\n  b: 1\n  b: 1\n", "line 3: the key \"b\" is there twice, first on line 2"},
      {"{a: 1, a: 2}", "line 1: the key \"a\" is there twice"},
      {"a: 1\n---\nb: 1\n", "found a second document, allowed: one"},
      {"[1] [2]", "found a second document"},
      {"a: !!int 3\n", "line 1: found the tag \"tag:yaml.org,2002:int\", allowed: values without tags"},
      {"a: !!python/object/apply:os.system [x]\n", "line 1: found the tag"},
      {"a: !mine {b: 1}\n", "line 1: found the tag \"!mine\""},
      {"a: 1\n<<: {b: 1}\n", "line 2: found a merge key (<<), allowed: the keys themselves"},
      {"a: &a {b: 1}\nc:\n  <<: *a\n", "line 3: found a merge key"},
      {"[a]: 1\n", "line 1: found a list as a key, allowed: a word"},
      {"a: &a [1]\n*a : 1\n", "line 2: found a list of 1 values as a key"},
      {"? {a: 1}\n: 1\n", "found a block as a key"},
      {"~: 1\n", "found null as a key"},
      {"a: \"\\0\"\n", "line 1: found a word with the character 0"},
      {"a: 1\nb: \x01\n", "line 2: found the byte 0x01, allowed: UTF-8 text"},
      {"a: \xff\n", "found bytes that are not UTF-8"},
      {"a: 'open\n", "not valid YAML at line"},
      {"a: 'open\nb: 3\n", "not valid YAML at line"},
      {"a: \"open\nb: 3", "not valid YAML at line"},
      {"a: \"b\"c\n", "not valid YAML at line 1"},
      {"%YAML 9.9\n---\na: 1\n", "not valid YAML at line 1"},
      {"- a\nb: 1\n", "line 2: found a second document"},
      {"a: [1, 2\n", "not valid YAML at line"},
      {"a: b: c\n", "not valid YAML at line 1"},
      {"a:\n\t- 1\n", "not valid YAML at line"},
      {"", "is empty"},
      {"# nothing\n", "is empty"},
      {"---\n~\n", "is empty"},
  };
  for (const auto& [text, part] : rows) EXPECT_THAT(refusal(text), HasSubstr(part)) << text;
  EXPECT_THAT(refusal(std::string_view("a\0b", 3)), HasSubstr("found the byte 0x00"));
  EXPECT_THAT(refusal("\xff\xfe\x61\x00"), HasSubstr("found"));
}

// The words for a value are short, however long it is.
TEST(StrictYaml, ShowsValues) {
  const YamlValue whole = read("a: ~\nb: x\nc: [1, 2]\nd: {e: 1}\nf: " + std::string(500, 'x') + "\n");
  EXPECT_EQ(shown(whole.values[0]), "null");
  EXPECT_EQ(shown(whole.values[1]), "\"x\"");
  EXPECT_EQ(shown(whole.values[2]), "a list of 2 values");
  EXPECT_EQ(shown(whole.values[3]), "a block of 1 keys");
  EXPECT_LT(shown(whole.values[4]).size(), 100U);
}

}  // namespace
}  // namespace spillway
