// Turns files of text and of JSONL into documents of tokens: reads them once, in bounded memory, encodes with all threads, hands
// the tokens over in order. In a file of rows (data_name.h) each row is a document; any other file is one.
// Not here: what becomes of a row (row_encoder.h), the use of the tokens (data.h, token_rows.h).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "memory/base/parallel.h"
#include "memory/base/types.h"
#include "trainer/data/row_encoder.h"
#include "trainer/data/text_tools.h"

namespace spillway {

// Treatment of bad lines in JSONL.
enum class BadLines : std::uint8_t { refuse, skip };

struct DocumentCounts {
  std::int64_t documents = 0;  // including empty ones
  std::int64_t empty_documents = 0;
  std::int64_t bad_lines = 0;
  std::string first_bad_line;  // file, line and reason
  std::int64_t tokens = 0;
  std::int64_t with_loss = 0;    // tokens that are a target with loss
  std::int64_t longest_row = 0;  // tokens, before it was cut
  std::int64_t cut = 0;          // documents
  Bytes bytes = 0;               // bytes read, decompressed
};

// A document, or a part of one. Rows come whole.
struct DocumentPart {
  std::span<const std::int32_t> tokens;
  std::span<const std::int32_t> targets;  // of a row, [tokens]; empty for a text, in which each token is a target
  bool ends_document = false;
  std::int64_t row = 0;  // its number among all rows of all files so far, those that are left out included; of a row
};

class DocumentReader {
 public:
  // Keeps references: all must outlive the reader.
  DocumentReader(const TextTools& tools, const RowRules& rules, const ThreadPool& pool, BadLines bad_lines);
  ~DocumentReader();
  DocumentReader(const DocumentReader&) = delete;
  DocumentReader& operator=(const DocumentReader&) = delete;

  // Calls `take` with each document of the file, in order, and `progress` after each batch of a few MiB; both may throw to stop.
  void read(const std::string& path, FunctionRef<void(const DocumentPart&)> take,
            FunctionRef<void(const DocumentCounts& so_far)> progress);
  const DocumentCounts& counts() const;  // of all files so far
  std::int64_t rows() const;             // that were met in all files so far, those that are left out included

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace spillway
