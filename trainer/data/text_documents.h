// Tokenizes text files: reads them in bounded memory, encodes with all threads, hands the tokens over in order. In a .jsonl file
// each row is a document ("text", or "messages" by the chat template beside the tokenizer); any other file is one document.
// Not here: the use of the tokens.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "memory/base/parallel.h"
#include "memory/base/types.h"
#include "trainer/data/data_source.h"
#include "trainer/text/tokenizer.h"

namespace spillway {

struct DocumentCounts {
  std::int64_t documents = 0;  // including empty ones
  std::int64_t empty_documents = 0;
  std::int64_t bad_lines = 0;
  std::string first_bad_line;  // file, line and reason
  std::int64_t tokens = 0;
  Bytes bytes = 0;  // bytes read
};

// Calls `tokens` with each document in parts, in order. Calls `progress` after each batch of a few MiB; it may throw to stop.
DocumentCounts encode_documents(const std::vector<std::string>& files, const Tokenizer& tokenizer, const ThreadPool& pool,
                                BadLines bad_lines,
                                FunctionRef<void(std::span<const std::int32_t> tokens, bool ends_document)> tokens,
                                FunctionRef<void(const DocumentCounts& so_far)> progress);

}  // namespace spillway
