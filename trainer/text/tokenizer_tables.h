// The contents of a tokenizer.json, ready for use. Not here: their use (tokenizer.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "trainer/text/tokenizer_added.h"
#include "trainer/text/tokenizer_bpe.h"
#include "trainer/text/tokenizer_normalize.h"
#include "trainer/text/tokenizer_split.h"

namespace spillway {

struct TokenizerTables {
  std::string path;
  Normalization normalization;
  Splitter splitter;
  BpeModel model;
  std::vector<AddedToken> added;
  AddedTokenFinder raw_finder;         // finds the tokens that are searched for in the text as it is
  AddedTokenFinder normalized_finder;  // finds the tokens that are searched for after normalization
  std::string bytes;                   // of all tokens
  std::vector<std::uint32_t> begin;    // [ids + 1] offset in `bytes` of a token's first byte
  std::vector<bool> is_special;        // [ids]
  SafeCuts safe_cuts;
  std::vector<std::int32_t> leading;  // tokens that the file's post-processor puts before a text
};

TokenizerTables load_tokenizer_tables(const std::filesystem::path& path);

}  // namespace spillway
