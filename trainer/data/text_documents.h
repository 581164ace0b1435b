// Text files to tokens: read in bounded memory, encoded by all threads, handed over in order. A .jsonl file has a document a row
// ("text", or "messages" by the chat template beside the tokenizer), any other file is one document. Not
// here: what is done with the tokens.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "memory/parallel.h"
#include "memory/types.h"
#include "trainer/data/data_source.h"
#include "trainer/text/tokenizer.h"

namespace spillway {

struct DocumentCounts {
  std::int64_t documents = 0;  // empty ones too
  std::int64_t empty_documents = 0;
  std::int64_t bad_lines = 0;
  std::string first_bad_line;  // file, line and reason
  std::int64_t tokens = 0;
  Bytes bytes = 0;  // read
};

// `tokens` gets each document in parts, in order; `progress` is called after each batch of a few MiB, and may throw to end it.
DocumentCounts encode_documents(const std::vector<std::string>& files, const Tokenizer& tokenizer, const ThreadPool& pool,
                                BadLines bad_lines,
                                FunctionRef<void(std::span<const std::int32_t> tokens, bool ends_document)> tokens,
                                FunctionRef<void(const DocumentCounts& so_far)> progress);

}  // namespace spillway
