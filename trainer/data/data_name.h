// What a data file's name says of it: text, rows or tokens, and whether it is compressed.
// Not here: the contents (byte_stream.h, text_documents.h), files in directories (data_files.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace spillway {

inline constexpr std::string_view kStandardInput = "-";  // as a path
inline constexpr std::string_view kAllowedData =
    ".txt, .jsonl, .ndjson, .json and .bin files, each also as .gz or .zst, - for standard input, or directories";

// rows: a JSON object a line. array: one JSON array of such objects, or lines, told by the first byte. other: no known name.
enum class DataKind : std::uint8_t { text, rows, array, tokens, other };
enum class Compression : std::uint8_t { none, gzip, zstd };

struct DataName {
  DataKind kind = DataKind::other;
  Compression compression = Compression::none;
};

// By the endings of a path: "x.jsonl.gz" has rows, compressed by gzip.
DataName data_name_in(std::string_view path);
inline bool has_rows(DataKind kind) { return kind == DataKind::rows || kind == DataKind::array; }

// Throws InputError for a table (.parquet, .arrow, .csv and others); its help is the line of Python that makes rows of it.
void refuse_table(const std::string& path, const std::string& flag);
bool is_table(std::string_view path);

}  // namespace spillway
