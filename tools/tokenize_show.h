// `spillway tokenize --show N`: the first documents with the tokens that have loss marked, and the figures of all, as train would
// see them.
// Not here: token files and ids (tokenize.cpp).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "memory/base/parallel.h"
#include "trainer/data/text_documents.h"

namespace spillway {

struct ShowOptions {
  std::int64_t documents = 0;  // to print
  TrainOn train_on = TrainOn::assistant;
  TextEnds text_ends = TextEnds::both;
  std::optional<std::int64_t> seq_length;         // without it no row is too long
  std::optional<std::int64_t> global_batch_size;  // without it nobody asks for steps
  bool truncate = false;
  bool packing = false, split_rows = false;  // only with seq_length
  DataColumns columns = {};
};

// Prints the documents to standard output and the figures to standard error.
void show_documents(const std::vector<std::string>& files, const TextTools& tools, const ThreadPool& pool, BadLines bad_lines,
                    const ShowOptions& options, FunctionRef<void(const DocumentCounts&)> progress);

}  // namespace spillway
