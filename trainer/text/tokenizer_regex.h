// Regular expressions of pre-tokenizers, by Oniguruma. Not here: the use of matches (tokenizer_split.h).
#pragma once

#include <oniguruma.h>

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace spillway {

struct RegionDeleter {
  void operator()(OnigRegion* region) const { onig_region_free(region, 1); }
};
using Region = std::unique_ptr<OnigRegion, RegionDeleter>;
Region new_region();

struct MatchParamDeleter {
  void operator()(OnigMatchParam* param) const { onig_free_match_param(param); }
};
using MatchParam = std::unique_ptr<OnigMatchParam, MatchParamDeleter>;
MatchParam new_match_param();  // with limits that ordinary documents keep to

class Regex {
 public:
  // `origin` (a file name) is for messages. Throws InputError if the pattern is not valid.
  Regex(std::string_view pattern, const std::string& origin);
  ~Regex() { onig_free(regex_); }
  Regex(const Regex&) = delete;
  Regex& operator=(const Regex&) = delete;

  struct Match {
    std::size_t begin;
    std::size_t end;
  };
  // The first match at or after `from`.
  bool search(std::string_view text, std::size_t from, OnigRegion* region, OnigMatchParam* param, Match& match) const;

 private:
  regex_t* regex_ = nullptr;
};

}  // namespace spillway
