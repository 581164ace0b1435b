#include "trainer/data/data.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <system_error>

#include "memory/base/error.h"
#include "trainer/data/data_files.h"
#include "trainer/data/data_order.h"
#include "trainer/data/data_source.h"
#include "trainer/data/packed_rows.h"
#include "trainer/data/text_documents.h"
#include "trainer/data/text_tools.h"
#include "trainer/data/token_file.h"
#include "trainer/data/token_rows.h"
#include "trainer/host/interrupt.h"
#include "trainer/options/lr_schedule.h"
#include "trainer/text/text_codec.h"
#include "trainer/words/quantity.h"

namespace spillway {
namespace {

namespace fs = std::filesystem;
constexpr std::string_view kAllowedFiles = ".txt, .jsonl and .bin files, or directories of them";

constexpr std::string_view kExtensions[] = {".txt", ".jsonl", ".bin"};

bool is_of_rows(const std::string& path) { return fs::path(path).extension() == ".jsonl"; }

DataRequest request_for(const RunOptions& options, std::int64_t seq_length, std::int64_t vocabulary) {
  DataRequest request;
  request.tokenizer = tokenizer_of(options);
  request.template_date = options.data.template_date;
  request.format = options.data.format;
  request.truncate = options.data.truncate;
  request.packing = options.data.packing;
  request.split_rows = options.data.split_rows;
  request.skip_bad_lines = options.data.skip_bad_lines;
  request.train_on = options.data.train_on;
  request.text_ends = options.data.text_ends;
  request.seed = options.model.seed;
  request.micro_batch_size = options.batch.micro_batch_size;
  request.micro_batches = options.micro_batches() * options.parallel.ranks;  // one order of data, whatever the ranks
  request.seq_length = seq_length;
  request.vocabulary = vocabulary;
  request.threads = threads_of(options);
  return request;
}

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
    const std::string extension = fs::path(path).extension().string();
    std::error_code ignored;
    if (!fs::exists(path, ignored)) throw InputError(fmt::format("{}: found no file or directory {}", request_.flag, path));
    if (is_of_rows(path)) return open_rows(path);
    if (extension == ".txt") return open_text(path);
    if (request_.format == DataFormat::u16) return open_token_file(PosixFile::open_to_read(path), TokenFileFormat::u16, shape_);
    if (extension == ".bin") return open_token_file(PosixFile::open_to_read(path), TokenFileFormat::llm_c, shape_);
    throw InputError(fmt::format("{}: found {}, allowed: {}", request_.flag, path, kAllowedFiles),
                     "raw 16-bit tokens of any name are read with --data-format u16");
  }
  // No file may be opened after it.
  void finish() { rows_->finish(); }
  const std::shared_ptr<TokenRows>& rows() const { return rows_; }
  const DocumentCounts& counts() const {
    static const DocumentCounts kNothing;
    return reader_ ? reader_->counts() : kNothing;
  }
  std::int64_t texts_of_bytes() const { return texts_of_bytes_; }

 private:
  std::unique_ptr<SequenceSource> open_rows(const std::string& path) {
    const std::int64_t first = rows_->rows();
    reader().read(path, [&](const DocumentPart& row) { rows_->add(row.tokens, row.targets); }, stop_where_requested);
    return request_.packing ? nullptr : sequences_of_rows(rows_, first, rows_->rows() - first);
  }

  // Tokenizes a text into a file without a name.
  std::unique_ptr<SequenceSource> open_text(const std::string& path) {
    if (tools_.kind() == TextKind::bytes) {
      ++texts_of_bytes_;
      return open_token_file(PosixFile::open_to_read(path), TokenFileFormat::bytes, shape_);
    }
    if (tools_.kind() == TextKind::none) {
      throw InputError(
          fmt::format("--tokenizer: found none for {}, allowed: bytes, a tokenizer.json, a directory that has one", path),
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
    return open_token_file(out.take(), width == TokenWidth::u16 ? TokenFileFormat::u16 : TokenFileFormat::u32, shape_);
  }

  DocumentReader& reader() {
    if (!pool_) pool_.emplace(request_.threads);
    if (!reader_) {
      const RowRules rules{.train_on = request_.train_on,
                           .text_ends = request_.text_ends,
                           .longest = request_.seq_length + 1,
                           .long_rows = long_rows_of(request_.split_rows, request_.truncate),
                           .vocabulary = request_.vocabulary,
                           .needs_loss = true};
      reader_.emplace(tools_, rules, *pool_, request_.skip_bad_lines ? BadLines::skip : BadLines::refuse);
    }
    return *reader_;
  }
  // A tokenizer may have more tokens than the model has rows, so only the ids that occur in its texts are checked.
  void check_ids(const std::string& file, const Tokenizer& tokenizer, std::span<const std::int32_t> tokens) const {
    const auto beyond = std::ranges::find_if(tokens, [&](std::int32_t id) { return id >= request_.vocabulary; });
    if (beyond == tokens.end()) return;
    throw InputError(fmt::format("{}: found text that {} makes token {} of, allowed: below {}, the vocabulary of the model", file,
                                 tokenizer.path(), *beyond, request_.vocabulary),
                     kOtherTokenizer);
  }

  static constexpr auto stop_where_requested = [](const DocumentCounts&) {
    InterruptHandler::stop_where_requested("the text was not tokenized to its end");
  };

  const DataRequest& request_;
  TextTools tools_;
  SequenceShape shape_;
  std::shared_ptr<TokenRows> rows_ = std::make_shared<TokenRows>();
  std::optional<ThreadPool> pool_;
  std::optional<DocumentReader> reader_;  // of text and rows
  std::int64_t texts_of_bytes_ = 0;
};

// Of the whole data; `sources` are all open.
DataFigures figures_of(const DataFiles& files, const std::vector<std::unique_ptr<SequenceSource>>& sources,
                       std::int64_t seq_length) {
  const DocumentCounts& counts = files.counts();
  DataFigures figures{
      .documents = counts.documents + files.texts_of_bytes(), .longest_row = counts.longest_row, .cut = counts.cut};
  for (const auto& source : sources) {
    figures.tokens += source->tokens();
    figures.positions += source->sequences() * seq_length;
    for (std::int64_t i = 0; i < source->sequences(); ++i) {
      figures.with_loss += source->counted(i);
      figures.padding += seq_length - source->positions(i);
    }
  }
  return figures;
}

}  // namespace

std::vector<std::string> paths_of_data(const std::vector<std::string>& paths, const std::string& flag) {
  return files_of(paths, kExtensions, flag, kAllowedFiles);
}

DataRequest training_data(const RunOptions& options, std::int64_t seq_length, std::int64_t vocabulary) {
  DataRequest request = request_for(options, seq_length, vocabulary);
  request.paths = options.data.data;
  request.order = options.data.order;
  request.drop_last = options.data.drop_last;
  return request;
}

DataRequest evaluation_data(const RunOptions& options, std::int64_t seq_length, std::int64_t vocabulary) {
  DataRequest request = request_for(options, seq_length, vocabulary);
  request.paths = options.data.eval_data;
  request.flag = "--eval-data";
  request.order = DataOrder::sequential;
  return request;
}

BatchSampler::BatchSampler(const DataRequest& request) : request_(request) {
  SPILLWAY_CHECK(request.seq_length > 0 && request.vocabulary > 0 && request.micro_batch_size > 0 && request.micro_batches > 0,
                 "data for {} positions, {} tokens of vocabulary, {} x {} sequences", request.seq_length, request.vocabulary,
                 request.micro_batches, request.micro_batch_size);
  if (request.paths.empty())
    throw InputError(fmt::format("{}: not given", request.flag), fmt::format("allowed: {}", kAllowedFiles));
  const std::vector<std::string> paths = paths_of_data(request.paths, request.flag);
  DataFiles files(request_);
  std::int64_t too_short = 0, left_over = 0;
  for (const std::string& path : paths) {
    std::unique_ptr<SequenceSource> source = files.open(path);
    if (!source) continue;
    too_short += source->sequences() == 0 ? 1 : 0;
    left_over += source->tokens_left_over();
    add(std::move(source));
  }
  files.finish();
  if (request.packing) pack(files.rows(), paths);
  const DocumentCounts& counts = files.counts();
  const std::string left_out = counts.bad_lines == 0 ? ""
                                                     : fmt::format("{} left out, the first: {}",
                                                                   counted(counts.bad_lines, "bad line"), counts.first_bad_line);
  refuse_too_few(paths, left_out);
  figures_ = figures_of(files, sources_, request.seq_length);
  if (packs_)
    figures_.packs = packs_->packs(), figures_.split = packs_->split_rows(), figures_.pieces_left_out = packs_->pieces_left_out();

  summary_ = fmt::format("{}, {} of {}", counted(std::ssize(paths), "file"), counted(sequences(), "sequence"),
                         counted(request.seq_length, "position"));
  if (const std::int64_t dropped = sequences() - sequences_of_epoch(); dropped > 0)
    summary_ += fmt::format("; {} of each epoch dropped by --drop-last", with_commas(dropped));
  summary_ += "; " + words_of(figures_);
  if (too_short > 0) summary_ += fmt::format("; {} too short for one sequence", counted(too_short, "file"));
  if (left_over > 0) summary_ += fmt::format("; {} at the ends of files left out", counted(left_over, "token"));
  if (!left_out.empty()) summary_ += "; " + left_out;
}

void BatchSampler::add(std::unique_ptr<SequenceSource> source) {
  first_.push_back(first_.back() + source->sequences());
  sources_.push_back(std::move(source));
}

void BatchSampler::pack(const std::shared_ptr<TokenRows>& rows, const std::vector<std::string>& files) {
  const bool has_rows = std::ranges::any_of(files, [](const std::string& file) { return is_of_rows(file); });
  if (!has_rows && request_.flag == "--data") {
    throw InputError(fmt::format("--packing: found no .jsonl file in {}, allowed: where there are rows", request_.flag),
                     "windows of text and token files have no padding: leave it out");
  }
  packs_ = std::make_shared<const Packs>(
      *rows, PackRules{.seq_length = request_.seq_length, .order = request_.order, .seed = request_.seed});
  add(sequences_of_packs(rows, packs_));
}

void BatchSampler::refuse_too_few(const std::vector<std::string>& files, const std::string& left_out) const {
  if (sequences() == 0) {
    std::error_code ignored;
    const bool all_empty = std::ranges::all_of(files, [&](const std::string& file) { return fs::file_size(file, ignored) == 0; });
    throw InputError(
        fmt::format("{}: found {} in {}{}, allowed: at least one sequence of {} tokens (--seq-length + 1)", request_.flag,
                    all_empty ? "nothing" : "too few tokens", files[0],
                    files.size() > 1 ? fmt::format(" and {} more files", files.size() - 1) : "", request_.seq_length + 1),
        !left_out.empty() ? left_out
        : all_empty       ? ""
                          : "give more data, or shorten --seq-length");
  }
  if (sequences_of_epoch() == 0) {
    throw InputError(
        fmt::format("--drop-last: found {} in {}, less than the {} of a step (--global-batch-size), so that all would be dropped",
                    counted(sequences(), "sequence"), request_.flag, request_.micro_batch_size * request_.micro_batches),
        "leave --drop-last out, give more data, or a smaller --global-batch-size");
  }
}

BatchSampler::~BatchSampler() = default;
BatchSampler::BatchSampler(BatchSampler&&) noexcept = default;
BatchSampler& BatchSampler::operator=(BatchSampler&&) noexcept = default;

std::int64_t BatchSampler::sequences() const { return first_.back(); }

std::int64_t BatchSampler::sequences_of_epoch() const {
  const std::int64_t of_step = request_.micro_batch_size * request_.micro_batches;
  return request_.drop_last ? sequences() / of_step * of_step : sequences();
}

std::int64_t BatchSampler::sequence_at(std::int64_t position) const {
  const std::int64_t index = position % sequences_of_epoch();
  if (request_.order == DataOrder::sequential) return index;
  const Permutation permutation(static_cast<std::uint64_t>(sequences()), request_.seed,
                                static_cast<std::uint64_t>(position / sequences_of_epoch()));
  return static_cast<std::int64_t>(permutation.at(static_cast<std::uint64_t>(index)));
}

std::int64_t BatchSampler::steps_of(double epochs) const {
  const std::int64_t of_step = request_.micro_batch_size * request_.micro_batches, of_epoch = sequences_of_epoch();
  if (of_epoch < of_step) {
    throw InputError(
        fmt::format("--epochs: found {} in {}, less than the {} of a step (--global-batch-size), so that an epoch has "
                    "no step",
                    counted(of_epoch, "sequence"), request_.flag, of_step),
        "give more data, a smaller --global-batch-size, or --train-iters in place of --epochs");
  }
  // A number of steps that is whole but for its rounding counts as whole.
  const double steps = std::ceil(epochs * static_cast<double>(of_epoch) / static_cast<double>(of_step) * (1 - 1e-12));
  constexpr double kMost = 1e12;
  if (steps > kMost)
    throw InputError(fmt::format("--epochs: found {}, which is {} steps, allowed: up to {}", epochs, steps, kMost));
  return static_cast<std::int64_t>(steps);
}

std::string BatchSampler::words_of_epoch() const {
  return spillway::words_of_epoch(sequences_of_epoch(), request_.micro_batch_size * request_.micro_batches);
}

void settle_by_data(RunOptions& options, const BatchSampler& data) {
  options.data.mean_document = data.mean_document();
  if (!options.batch.epochs) return;
  options.batch.train_iters = data.steps_of(*options.batch.epochs);
  options.batch.epochs.reset();
  (void)LrSchedule(options.schedule, options.batch.train_iters);  // throws if the spans do not fit one another
}

void BatchSampler::fill(std::int64_t step, std::int64_t micro_batch, std::span<std::int32_t> tokens,
                        std::span<std::int32_t> targets, std::span<std::int32_t> documents) {
  const auto length = static_cast<std::size_t>(request_.seq_length);
  const auto rows = static_cast<std::size_t>(request_.micro_batch_size);
  SPILLWAY_CHECK(tokens.size() == rows * length && targets.size() == rows * length,
                 "room for {} tokens and {} targets of {} x {}", tokens.size(), targets.size(), rows, length);
  const std::int64_t position = (step * request_.micro_batches + micro_batch) * request_.micro_batch_size;
  for (std::size_t row = 0; row < rows; ++row) {
    const auto [source, index] = source_of(sequence_at(position + static_cast<std::int64_t>(row)));
    source.read(index, {.tokens = tokens.subspan(row * length, length),
                        .targets = targets.subspan(row * length, length),
                        .documents = documents.empty() ? documents : documents.subspan(row * length, length)});
  }
}

std::pair<SequenceSource&, std::int64_t> BatchSampler::source_of(std::int64_t sequence) const {
  const auto source = static_cast<std::size_t>(std::ranges::upper_bound(first_, sequence) - first_.begin() - 1);
  return {*sources_[source], sequence - first_[source]};
}

std::int64_t BatchSampler::sum_over(std::int64_t step, std::int64_t (SequenceSource::*number)(std::int64_t) const) const {
  const std::int64_t global = request_.micro_batch_size * request_.micro_batches;
  std::int64_t sum = 0;
  for (std::int64_t i = 0; i < global; ++i) {
    const auto [source, index] = source_of(sequence_at(step * global + i));
    sum += (source.*number)(index);
  }
  return sum;
}

std::int64_t BatchSampler::counted_tokens(std::int64_t step) const { return sum_over(step, &SequenceSource::counted); }
std::int64_t BatchSampler::positions(std::int64_t step) const { return sum_over(step, &SequenceSource::positions); }

}  // namespace spillway
