// The tokenizers of tests/data, and a text's tokens by them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "tests/trainer/temporary_directory.h"
#include "trainer/text/tokenizer.h"

namespace spillway {

inline const std::string kTokenizers = SPILLWAY_TEST_DATA "/tokenizers/";

// The tokens a, b and ab, and two special ones with the ids 3 and 4; <s> goes before a text.
inline const char* const kSmallTokenizer = R"({"version":"1.0","added_tokens":[
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

inline nlohmann::json read_json(const std::string& path) { return nlohmann::json::parse(content_of(path)); }

inline std::vector<std::int32_t> encoded(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<std::int32_t> ids;
  tokenizer.encode(text, ids);
  return ids;
}

}  // namespace spillway
