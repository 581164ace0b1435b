#include "trainer/data/read_data.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "memory/base/error.h"
#include "trainer/data/data_files.h"
#include "trainer/data/open_data.h"
#include "trainer/data/text_tools.h"
#include "trainer/data/token_file.h"
#include "trainer/host/interrupt.h"
#include "trainer/text/text_codec.h"

namespace spillway {
namespace {

TemplateDate date_of(const std::string& date) {
  if (date.empty()) return TemplateDate::today();
  try {
    return TemplateDate::from_text(date);
  } catch (const InputError& error) {
    throw InputError(fmt::format("--template-date: {}", error.what()));
  }
}

// Opens the files of a request, in order.
class DataFiles {
 public:
  explicit DataFiles(const DataRequest& request)
      : request_(request),
        tools_(request.tokenizer, date_of(request.template_date)),
        shape_{request.seq_length, request.vocabulary} {}

  // Nothing, if its rows are to be packed with those of other files.
  std::unique_ptr<SequenceSource> open(const std::string& path) {
    std::error_code ignored;
    if (path != kStandardInput && !std::filesystem::exists(path, ignored))
      throw InputError(fmt::format("{}: found no file or directory {}", request_.flag, path));
    const DataKind kind = data_name_of(path).kind;
    const bool is_raw = request_.format == DataFormat::u16;
    if (has_rows(kind) && !(is_raw && path == kStandardInput)) return open_rows(path);
    if (request_.split) {
      throw InputError(
          fmt::format("--eval-split: found {}, which has no rows, allowed: where all data are rows", shown_data_path(path)),
          "Windows of one text overlap: give what is held back as --eval-data.");
    }
    if (is_raw && (kind != DataKind::text || path == kStandardInput)) return open_tokens(path, TokenFileFormat::u16);
    if (kind == DataKind::text) return open_text(path);
    if (kind == DataKind::tokens) return open_tokens(path, TokenFileFormat::llm_c);
    throw InputError(fmt::format("{}: found {}, allowed: {}", request_.flag, path, kAllowedData),
                     "raw 16-bit tokens of any name are read with --data-format u16");
  }
  // No file may be opened after it.
  std::shared_ptr<const RowsOfData> finish(std::vector<std::string> paths) {
    rows_->finish();
    RowsOfData read{.paths = std::move(paths),
                    .rows = std::move(rows_),
                    .numbers = std::move(numbers_),
                    .met = reader_ ? reader_->rows() : 0,
                    .counts = reader_ ? reader_->counts() : DocumentCounts(),
                    .texts_of_bytes = texts_of_bytes_};
    return std::make_shared<const RowsOfData>(std::move(read));
  }

 private:
  std::unique_ptr<SequenceSource> open_rows(const std::string& path) {
    const std::int64_t first = rows_->rows();
    const auto take = [&](const DocumentPart& row) {
      rows_->add(row.tokens, row.targets);
      if (request_.split) numbers_.push_back(row.row);
    };
    reader().read(path, take, stop_where_requested);
    return request_.packing || request_.split ? nullptr : sequences_of_rows(rows_, first, rows_->rows() - first);
  }

  std::unique_ptr<SequenceSource> open_tokens(const std::string& path, TokenFileFormat format) {
    return open_token_file(open_for_random_access(path), shown_data_path(path), format, shape_);
  }

  // Tokenizes a text into a file without a name.
  std::unique_ptr<SequenceSource> open_text(const std::string& path) {
    if (tools_.kind() == TextKind::bytes) {
      ++texts_of_bytes_;
      return open_tokens(path, TokenFileFormat::bytes);
    }
    if (tools_.kind() == TextKind::none) {
      throw InputError(fmt::format("--tokenizer: found none for {}, allowed: bytes, a tokenizer.json, a directory that has one",
                                   shown_data_path(path)),
                       "the model has no tokenizer.json of its own; with --tokenizer bytes a token is a byte");
    }
    const Tokenizer& tokenizer = tools_.tokenizer(path).tokenizer;
    const TokenWidth width = token_width_for(tokenizer.vocab_size());
    HiddenTokenFile out(width);
    reader().read(
        path,
        [&](const DocumentPart& part) {
          check_ids(path, tokenizer, part.tokens);
          out.write(part.tokens);
        },
        stop_where_requested);
    return open_token_file(out.take(), shown_data_path(path),
                           width == TokenWidth::u16 ? TokenFileFormat::u16 : TokenFileFormat::u32, shape_);
  }

  DocumentReader& reader() {
    if (!pool_) pool_.emplace(request_.threads);
    if (!reader_) {
      const RowRules rules{.train_on = request_.train_on,
                           .text_ends = request_.text_ends,
                           .longest = request_.seq_length + 1,
                           .long_rows = long_rows_of(request_.split_rows, request_.truncate),
                           .vocabulary = request_.vocabulary,
                           .columns = request_.columns,
                           .needs_loss = true};
      reader_.emplace(tools_, rules, *pool_, request_.skip_bad_lines ? BadLines::skip : BadLines::refuse);
    }
    return *reader_;
  }
  // A tokenizer may have more tokens than the model has rows, so only the ids that occur in its texts are checked.
  void check_ids(const std::string& file, const Tokenizer& tokenizer, std::span<const std::int32_t> tokens) const {
    const auto beyond = std::ranges::find_if(tokens, [&](std::int32_t id) { return id >= request_.vocabulary; });
    if (beyond == tokens.end()) return;
    throw InputError(fmt::format("{}: found text that {} makes token {} of, allowed: below {}, the vocabulary of the model",
                                 shown_data_path(file), tokenizer.path(), *beyond, request_.vocabulary),
                     kOtherTokenizer);
  }

  static constexpr auto stop_where_requested = [](const DocumentCounts&) {
    InterruptHandler::stop_where_requested("the text was not tokenized to its end");
  };

  const DataRequest& request_;
  TextTools tools_;
  SequenceShape shape_;
  std::vector<std::int64_t> numbers_;  // [rows], where some are to be held back
  std::shared_ptr<TokenRows> rows_ = std::make_shared<TokenRows>();
  std::optional<ThreadPool> pool_;
  std::optional<DocumentReader> reader_;  // of text and rows
  std::int64_t texts_of_bytes_ = 0;
};

}  // namespace

ReadData read_data(const DataRequest& request) {
  if (request.paths.empty())
    throw InputError(fmt::format("{}: not given", request.flag), fmt::format("allowed: {}", kAllowedData));
  std::vector<std::string> paths = paths_of_data(request.paths, request.flag);
  DataFiles files(request);
  ReadData read;
  for (const std::string& path : paths) {
    if (std::unique_ptr<SequenceSource> source = files.open(path)) read.files.push_back(std::move(source));
  }
  read.rows = files.finish(std::move(paths));
  return read;
}

}  // namespace spillway
