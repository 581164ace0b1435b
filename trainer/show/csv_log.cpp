#include "trainer/show/csv_log.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>

#include "memory/error.h"
#include "models/posix_file.h"

namespace spillway {
namespace {

// The keys of log.jsonl, in its order.
constexpr std::array kColumns = {"step", "loss", "grad_norm", "lr", "tokens", "step_s", "tokens_per_s", "device_peak_bytes",
                                 "host_peak_bytes", "nvme_read_bytes", "nvme_written_bytes", "bound_s", "binding_lane",
                                 "overlap_efficiency", "loss_scale", "eval_loss"};  // samples are no figures

std::string header() {
  std::string line;
  for (const char* column : kColumns) line += fmt::format("{}{}", line.empty() ? "" : ",", column);
  return line + "\n";
}

// Bytes of the header and of the rows up to `last_step`; a torn row at the end does not count.
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
  // A table without rows is what a run left that could not begin.
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
  // Numbers as log.jsonl has them, so that they read back to the same bits.
  const nlohmann::json values = nlohmann::json::parse(to_log_line(record));
  std::string line;
  for (const char* column : kColumns) {
    const auto found = values.find(column);
    if (column != kColumns.front()) line += ',';
    if (found != values.end()) line += found->is_string() ? found->get<std::string>() : found->dump();
  }
  file_.append(line + "\n");
}

}  // namespace spillway
