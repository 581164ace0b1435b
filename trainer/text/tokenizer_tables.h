// What a tokenizer.json holds, ready for use. Not here: its use (tokenizer.h).
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
  AddedTokenFinder raw_finder;         // of tokens that are looked for in the text as it is
  AddedTokenFinder normalized_finder;  // and of those after normalisation
  std::string bytes;                   // of all tokens
  std::vector<std::uint32_t> begin;    // [ids + 1] where in `bytes` a token begins
  std::vector<bool> is_special;        // [ids]
  SafeCuts safe_cuts;
  std::vector<std::int32_t> leading;  // what the file's post-processor puts before a text
};

TokenizerTables load_tokenizer_tables(const std::filesystem::path& path);

}  // namespace spillway
