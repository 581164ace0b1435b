// Reads the files of a request once, in bounded memory. Not here: which sequences make a step (data.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trainer/data/data_request.h"
#include "trainer/data/data_source.h"
#include "trainer/data/text_documents.h"
#include "trainer/data/token_rows.h"

namespace spillway {

// What was read of a request's files, apart from their windows.
struct RowsOfData {
  std::vector<std::string> paths;     // of the files
  std::shared_ptr<TokenRows> rows;    // of all files, finished
  std::vector<std::int64_t> numbers;  // [rows] of each among all that were met; empty, unless some are to be held back
  std::int64_t met = 0;               // rows, those that were left out included
  DocumentCounts counts;
  std::int64_t texts_of_bytes = 0;  // files of text of which each byte is a token
};

struct ReadData {
  std::shared_ptr<const RowsOfData> rows;
  std::vector<std::unique_ptr<SequenceSource>> files;  // in order; without rows where these are packed or held back
};

// Throws InputError at the first bad token, row or header.
ReadData read_data(const DataRequest& request);

}  // namespace spillway
