#include "trainer/data/data_name.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <filesystem>

#include "memory/base/error.h"

namespace spillway {
namespace {

struct KindOfEnding {
  std::string_view ending;
  DataKind kind;
};
constexpr KindOfEnding kKinds[] = {{".txt", DataKind::text},
                                   {".jsonl", DataKind::rows},
                                   {".ndjson", DataKind::rows},
                                   {".json", DataKind::array},
                                   {".bin", DataKind::tokens}};

// Tables, and the function of the library `datasets` that reads each.
struct Table {
  std::string_view ending, reader, more;
};
constexpr Table kTables[] = {
    {".parquet", "from_parquet", ""}, {".arrow", "from_file", ""}, {".csv", "from_csv", ""}, {".tsv", "from_csv", ", sep='\\t'"}};

// The last ending of a path, in small letters; empty if it has none.
std::string ending_of(std::string_view path) {
  const std::size_t name = path.rfind('/') == path.npos ? 0 : path.rfind('/') + 1, dot = path.rfind('.');
  if (dot == path.npos || dot <= name) return {};
  std::string ending(path.substr(dot));
  std::ranges::transform(ending, ending.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return ending;
}

Compression compression_of(std::string_view ending) {
  return ending == ".gz" ? Compression::gzip : ending == ".zst" ? Compression::zstd : Compression::none;
}

std::string_view without_compression(std::string_view path) {
  const std::string ending = ending_of(path);
  return compression_of(ending) == Compression::none ? path : path.substr(0, path.size() - ending.size());
}

const Table* table_of(std::string_view path) {
  const std::string ending = ending_of(without_compression(path));
  const auto* const found = std::ranges::find(kTables, ending, &Table::ending);
  return found == std::end(kTables) ? nullptr : found;
}

// As a text of Python's.
std::string in_python(std::string_view path) {
  std::string text = "'";
  for (const char c : path) {
    if (c == '\'' || c == '\\') text += '\\';
    text += c;
  }
  return text + "'";
}

}  // namespace

DataName data_name_in(std::string_view path) {
  DataName name{.compression = compression_of(ending_of(path))};
  const std::string ending = ending_of(without_compression(path));
  const auto* const found = std::ranges::find(kKinds, ending, &KindOfEnding::ending);
  if (found != std::end(kKinds)) name.kind = found->kind;
  return name;
}

bool is_table(std::string_view path) { return table_of(path) != nullptr; }

void refuse_table(const std::string& path, const std::string& flag) {
  const Table* const table = table_of(path);
  if (table == nullptr) return;
  const std::string rows = std::filesystem::path(without_compression(path)).replace_extension(".jsonl").string();
  throw InputError(fmt::format("{}: found {}, a table, allowed: {}", flag, path, kAllowedData),
                   fmt::format("This line of Python makes rows of it: from datasets import Dataset; "
                               "Dataset.{}({}{}).to_json({})",
                               table->reader, in_python(path), table->more, in_python(rows)));
}

}  // namespace spillway
