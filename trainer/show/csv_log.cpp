#include "trainer/show/csv_log.h"

#include <fmt/ranges.h>

#include <charconv>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
#include <vector>

#include "files/json_place.h"
#include "files/json_text.h"
#include "files/posix_file.h"
#include "memory/base/error.h"

namespace spillway {
namespace {

// The keys of log.jsonl, without samples, which are no figures, and without those of ranks, of mixtures and of the best
// evaluation: tables keep the columns that they began with.
std::vector<std::string> columns() {
  std::vector<std::string> keys = log_keys();
  for (const char* other : {"sample", "network_bytes", "eval_loss_before", "best", "lm_loss", "aux_loss", "router_z_loss",
                            "expert_load_most", "expert_load_least", "expert_entropy"})
    std::erase(keys, other);
  return keys;
}

std::string header() { return fmt::format("{}\n", fmt::join(columns(), ",")); }

// Bytes of the header and the rows up to `last_step`; a torn row at the end does not count.
Bytes whole_rows(const std::string& path, std::int64_t last_step) {
  std::ifstream file(path, std::ios::binary);
  Bytes kept = 0;
  std::string line;
  for (std::int64_t number = 1; std::getline(file, line) && !file.eof(); ++number) {
    std::int64_t step = 0;
    const bool is_row = number > 1 && std::from_chars(line.data(), line.data() + line.size(), step).ec == std::errc();
    if (number == 1 ? line + "\n" != header() : !is_row) {
      throw IoError(fmt::format("{}: line {} is not one of a table of steps", path, number), "Name another file with --csv.");
    }
    if (step > last_step) break;
    kept += static_cast<Bytes>(line.size()) + 1;
  }
  return kept;
}

bool has_no_rows(const std::string& path) {
  std::error_code ignored;
  const auto bytes = static_cast<Bytes>(header().size());
  return static_cast<Bytes>(std::filesystem::file_size(path, ignored)) == bytes && read_text_file(path, bytes) == header();
}

AppendFile opened(const std::string& path, std::int64_t last_step) {
  std::error_code ignored;
  const bool is_there = std::filesystem::exists(path, ignored) && std::filesystem::file_size(path, ignored) > 0;
  // A table without rows was left by a run that could not begin.
  if (is_there && last_step == 0 && !has_no_rows(path)) {
    throw InputError(fmt::format("--csv: found {}, allowed: a file that does not exist yet", path),
                     "it may be another run's table");
  }
  const Bytes kept = is_there ? whole_rows(path, last_step) : 0;
  AppendFile file(path, kept);
  if (kept == 0) file.append(header());
  return file;
}

}  // namespace

CsvLog::CsvLog(const std::string& path, std::int64_t last_step) : file_(opened(path, last_step)) {}

void CsvLog::append(const StepRecord& record) {
  // The numbers are those of log.jsonl, so that they read back to the same bits.
  const nlohmann::json values = parsed_json(to_log_line(record));
  SPILLWAY_CHECK(values.is_object(), "a line of log.jsonl is no object");
  std::vector<std::string> cells;
  for (const std::string& column : columns()) {
    const auto found = values.find(column);
    cells.push_back(found != values.end() ? plain_text(*found) : "");
  }
  file_.append(fmt::format("{}\n", fmt::join(cells, ",")));
}

}  // namespace spillway
