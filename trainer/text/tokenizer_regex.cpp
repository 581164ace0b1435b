#include "trainer/text/tokenizer_regex.h"

#include <fmt/core.h>

#include <array>
#include <limits>
#include <mutex>

#include "files/json_text.h"
#include "memory/base/error.h"

namespace spillway {
namespace {

constexpr unsigned int kLongestRun = 8 << 20;  // entries of the matcher's stack

const OnigUChar* onig_text(const char* text) { return reinterpret_cast<const OnigUChar*>(text); }

}  // namespace

Region new_region() { return Region(onig_region_new()); }

MatchParam new_match_param() {
  MatchParam param(onig_new_match_param());
  onig_initialize_match_param(param.get());
  // A long run of white space is backtracked over once for each character: the library's limit of ten million would refuse it.
  onig_set_retry_limit_in_match_of_match_param(param.get(), std::numeric_limits<unsigned long>::max());
  // The matcher's stack has one entry for each character of such a run; this limit keeps it from taking the machine's memory.
  onig_set_match_stack_limit_size_of_match_param(param.get(), kLongestRun);
  onig_set_retry_limit_in_search_of_match_param(param.get(), 0);  // 0: none
  return param;
}

Regex::Regex(std::string_view pattern, const std::string& origin) {
  static std::once_flag once;
  std::call_once(once, [] {
    OnigEncoding encodings[] = {ONIG_ENCODING_UTF8};
    onig_initialize(encodings, 1);
  });
  OnigErrorInfo info;
  const int result = onig_new(&regex_, onig_text(pattern.data()), onig_text(pattern.data() + pattern.size()), ONIG_OPTION_NONE,
                              ONIG_ENCODING_UTF8, ONIG_SYNTAX_DEFAULT, &info);
  if (result != ONIG_NORMAL) {
    std::array<OnigUChar, ONIG_MAX_ERROR_MESSAGE_LEN> message{};
    onig_error_code_to_str(message.data(), result, &info);
    throw InputError(fmt::format("{}: the regular expression {} of the pre-tokenizer is not valid: {}", origin,
                                 quoted_json(pattern), reinterpret_cast<const char*>(message.data())));
  }
}

bool Regex::search(std::string_view text, std::size_t from, OnigRegion* region, OnigMatchParam* param, Match& match) const {
  const OnigUChar* begin = onig_text(text.data());
  const OnigUChar* end = begin + text.size();
  const int result = onig_search_with_param(regex_, begin, end, begin + from, end, region, ONIG_OPTION_NONE, param);
  if (result == ONIG_MISMATCH) return false;
  if (result == ONIGERR_MATCH_STACK_LIMIT_OVER) {
    throw InputError(fmt::format(
        "a run of characters of one kind is too long for the tokenizer's regular expression, allowed: about {}", kLongestRun));
  }
  if (result < 0) {
    std::array<OnigUChar, ONIG_MAX_ERROR_MESSAGE_LEN> message{};
    onig_error_code_to_str(message.data(), result);
    throw InputError(fmt::format("a regular expression of the tokenizer fails on text of {} bytes: {}", text.size(),
                                 reinterpret_cast<const char*>(message.data())));
  }
  match = {static_cast<std::size_t>(region->beg[0]), static_cast<std::size_t>(region->end[0])};
  return true;
}

}  // namespace spillway
