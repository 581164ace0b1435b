#include "trainer/data/data.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>

#include "memory/base/error.h"
#include "trainer/chat/chat_template.h"
#include "trainer/data/data_files.h"
#include "trainer/data/data_order.h"
#include "trainer/data/data_source.h"
#include "trainer/data/text_documents.h"
#include "trainer/data/token_file.h"
#include "trainer/host/interrupt.h"
#include "trainer/text/resource_error.h"
#include "trainer/text/text_codec.h"
#include "trainer/text/tokenizer.h"
#include "trainer/words/quantity.h"

namespace spillway {
namespace {

namespace fs = std::filesystem;
constexpr std::string_view kAllowedFiles = ".txt, .jsonl and .bin files, or directories of them";

constexpr std::string_view kExtensions[] = {".txt", ".jsonl", ".bin"};

DataRequest request_for(const RunOptions& options, std::int64_t seq_length, std::int64_t vocabulary) {
  DataRequest request;
  request.tokenizer = tokenizer_of(options);
  request.format = options.data.format;
  request.truncate = options.data.truncate;
  request.skip_bad_lines = options.data.skip_bad_lines;
  request.seed = options.model.seed;
  request.micro_batch_size = options.batch.micro_batch_size;
  request.micro_batches = options.micro_batches() * options.parallel.ranks;  // one order of data, whatever the ranks
  request.seq_length = seq_length;
  request.vocabulary = vocabulary;
  request.threads = threads_of(options);
  return request;
}

}  // namespace

// Turns the text of a request into tokens. The tokenizer is loaded at the first text: token files need none.
class TextEncoding {
 public:
  explicit TextEncoding(const DataRequest& request)
      : path_(request.tokenizer), vocabulary_(request.vocabulary), threads_(request.threads) {}

  TextRows rows() const { return path_.empty() ? TextRows::refuse : path_ == "bytes" ? TextRows::bytes : TextRows::tokenizer; }
  // The encoding for a file whose rows may or may not be text. This object must outlive the result.
  RowEncoding encoding_of_rows(const std::string& file) {
    return {.encode =
                [this, file](std::string_view text, std::vector<std::int32_t>& ids) {
                  load(file);
                  encoder_->encode(text, ids);
                },
            .text_of_messages =
                [this](std::string_view row) {
                  if (!chat_) chat_.emplace(loaded_resource([&] { return ChatTemplate::load(path_); }));
                  return chat_->render(row);
                }};
  }
  // Tokenizes a text into a file without a name.
  PosixFile tokens_of(const std::string& file) {
    load(file);
    const ThreadPool pool(threads_);
    HiddenTokenFile out(token_width_for(tokenizer_->vocab_size()));
    encode_documents(
        {file}, *tokenizer_, pool, BadLines::refuse,
        [&](std::span<const std::int32_t> tokens, bool) {
          check_ids(file, tokens);
          out.write(tokens);
        },
        [](const DocumentCounts&) { InterruptHandler::stop_where_requested("the text was not tokenized to its end"); });
    return out.take();
  }
  TokenFileFormat format() const {
    return token_width_for(tokenizer_->vocab_size()) == TokenWidth::u16 ? TokenFileFormat::u16 : TokenFileFormat::u32;
  }

 private:
  // A tokenizer may have more tokens than the model has rows, so only the ids that occur in its texts are checked.
  void check_ids(const std::string& file, std::span<const std::int32_t> tokens) const {
    const auto beyond = std::ranges::find_if(tokens, [&](std::int32_t id) { return id >= vocabulary_; });
    if (beyond == tokens.end()) return;
    throw InputError(fmt::format("{}: found text that {} makes token {} of, allowed: below {}, the vocabulary of the model", file,
                                 tokenizer_->path(), *beyond, vocabulary_),
                     kOtherTokenizer);
  }
  void load(const std::string& file) {
    if (encoder_) return;
    std::error_code ignored;
    if (!fs::exists(path_, ignored)) {
      throw ResourceError(
          fmt::format("--tokenizer: found {} for {}, allowed: bytes, a tokenizer.json, a directory that has one", path_, file),
          "there is no such file or directory");
    }
    tokenizer_.emplace(loaded_resource([&] { return Tokenizer::load(path_); }));
    encoder_.emplace(*tokenizer_);
  }

  std::string path_;
  std::int64_t vocabulary_;
  int threads_;
  std::optional<Tokenizer> tokenizer_;
  std::optional<TokenEncoder> encoder_;
  std::optional<ChatTemplate> chat_;
};

namespace {

std::unique_ptr<SequenceSource> open_source(const std::string& path, const DataRequest& request, TextEncoding& text) {
  const SequenceShape shape{request.seq_length, request.vocabulary};
  const std::string extension = fs::path(path).extension().string();
  std::error_code ignored;
  if (!fs::exists(path, ignored)) throw InputError(fmt::format("{}: found no file or directory {}", request.flag, path));
  if (extension == ".jsonl") {
    return open_jsonl_file(PosixFile::open_to_read(path), request.truncate ? LongRows::truncate : LongRows::refuse, text.rows(),
                           shape, text.encoding_of_rows(path), request.skip_bad_lines ? BadLines::skip : BadLines::refuse);
  }
  if (extension == ".txt") {
    switch (text.rows()) {
      case TextRows::bytes: return open_token_file(PosixFile::open_to_read(path), TokenFileFormat::bytes, shape);
      case TextRows::tokenizer: {
        PosixFile tokens = text.tokens_of(path);
        return open_token_file(std::move(tokens), text.format(), shape);
      }
      case TextRows::refuse: break;
    }
    throw InputError(
        fmt::format("--tokenizer: found none for {}, allowed: bytes, a tokenizer.json, a directory that has one", path),
        "the model has no tokenizer.json of its own; with --tokenizer bytes a token is a byte");
  }
  if (request.format == DataFormat::u16) return open_token_file(PosixFile::open_to_read(path), TokenFileFormat::u16, shape);
  if (extension == ".bin") return open_token_file(PosixFile::open_to_read(path), TokenFileFormat::llm_c, shape);
  throw InputError(fmt::format("{}: found {}, allowed: {}", request.flag, path, kAllowedFiles),
                   "raw 16-bit tokens of any name are read with --data-format u16");
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
  request.steps = options.batch.train_iters;
  return request;
}

DataRequest evaluation_data(const RunOptions& options, std::int64_t seq_length, std::int64_t vocabulary) {
  DataRequest request = request_for(options, seq_length, vocabulary);
  request.paths = options.data.eval_data;
  request.flag = "--eval-data";
  request.order = DataOrder::sequential;
  return request;
}

BatchSampler::BatchSampler(const DataRequest& request) : request_(request), first_{0} {
  SPILLWAY_CHECK(request.seq_length > 0 && request.vocabulary > 0 && request.micro_batch_size > 0 && request.micro_batches > 0,
                 "data for {} positions, {} tokens of vocabulary, {} x {} sequences", request.seq_length, request.vocabulary,
                 request.micro_batches, request.micro_batch_size);
  if (request.paths.empty())
    throw InputError(fmt::format("{}: not given", request.flag), fmt::format("allowed: {}", kAllowedFiles));
  const std::vector<std::string> files = paths_of_data(request.paths, request.flag);
  text_ = std::make_unique<TextEncoding>(request);
  std::int64_t too_short = 0, left_over = 0;
  SkippedLines skipped;
  for (const std::string& file : files) {
    sources_.push_back(open_source(file, request, *text_));
    too_short += sources_.back()->sequences() == 0 ? 1 : 0;
    left_over += sources_.back()->tokens_left_over();
    first_.push_back(first_.back() + sources_.back()->sequences());
    SkippedLines lines = sources_.back()->skipped();
    if (skipped.count == 0) skipped.first = std::move(lines.first);
    skipped.count += lines.count;
  }
  const std::string left_out =
      skipped.count == 0 ? "" : fmt::format("{} left out, the first: {}", counted(skipped.count, "bad line"), skipped.first);
  if (sequences() == 0) {
    std::error_code ignored;
    const bool all_empty = std::ranges::all_of(files, [&](const std::string& file) { return fs::file_size(file, ignored) == 0; });
    throw InputError(
        fmt::format("{}: found {} in {}{}, allowed: at least one sequence of {} tokens (--seq-length + 1)", request.flag,
                    all_empty ? "nothing" : "too few tokens", files[0],
                    files.size() > 1 ? fmt::format(" and {} more files", files.size() - 1) : "", request.seq_length + 1),
        !left_out.empty() ? left_out
        : all_empty       ? ""
                          : "give more data, or shorten --seq-length");
  }
  if (sequences_of_epoch() == 0) {
    throw InputError(
        fmt::format("--drop-last: found {} in {}, less than the {} of a step (--global-batch-size), so that all would be dropped",
                    counted(sequences(), "sequence"), request.flag, request.micro_batch_size * request.micro_batches),
        "leave --drop-last out, give more data, or a smaller --global-batch-size");
  }
  summary_ = fmt::format("{}, {} of {}", counted(std::ssize(files), "file"), counted(sequences(), "sequence"),
                         counted(request.seq_length, "position"));
  if (const std::int64_t dropped = sequences() - sequences_of_epoch(); dropped > 0)
    summary_ += fmt::format("; {} of each epoch dropped by --drop-last", with_commas(dropped));
  if (too_short > 0) summary_ += fmt::format("; {} too short for one sequence", counted(too_short, "file"));
  if (left_over > 0) summary_ += fmt::format("; {} at the ends of files left out", counted(left_over, "token"));
  if (!left_out.empty()) summary_ += "; " + left_out;

  // A step without any loss would divide by zero. It is refused before the run rather than found in the middle of the night.
  if (std::ranges::none_of(sources_, [](const auto& source) { return source->has_sequences_without_loss(); })) return;
  for (std::int64_t step = 0; step < request.steps; ++step) {
    if (counted_tokens(step) > 0) continue;
    const std::int64_t global = request.micro_batch_size * request.micro_batches;
    const std::int64_t sequence = sequence_at(step * global);
    const auto file = std::ranges::upper_bound(first_, sequence) - first_.begin() - 1;
    throw InputError(
        fmt::format("{}: no position of step {} has a loss: all {} of its sequences, such as {}, have no target but -100",
                    request.flag, step + 1, global,
                    sources_[static_cast<std::size_t>(file)]->describe(sequence - first_[static_cast<std::size_t>(file)])),
        "leave such rows out, raise --global-batch-size, or lengthen --seq-length where --truncate cut the labels off");
  }
}

BatchSampler::~BatchSampler() = default;
BatchSampler::BatchSampler(BatchSampler&&) noexcept = default;
BatchSampler& BatchSampler::operator=(BatchSampler&&) noexcept = default;

std::int64_t BatchSampler::sequences() const { return first_.back(); }
std::string BatchSampler::summary() const { return summary_; }

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

void BatchSampler::fill(std::int64_t step, std::int64_t micro_batch, std::span<std::int32_t> tokens,
                        std::span<std::int32_t> targets) {
  const auto length = static_cast<std::size_t>(request_.seq_length);
  const auto rows = static_cast<std::size_t>(request_.micro_batch_size);
  SPILLWAY_CHECK(tokens.size() == rows * length && targets.size() == rows * length,
                 "room for {} tokens and {} targets of {} x {}", tokens.size(), targets.size(), rows, length);
  const std::int64_t position = (step * request_.micro_batches + micro_batch) * request_.micro_batch_size;
  for (std::size_t row = 0; row < rows; ++row) {
    const std::int64_t sequence = sequence_at(position + static_cast<std::int64_t>(row));
    const auto file = static_cast<std::size_t>(std::ranges::upper_bound(first_, sequence) - first_.begin() - 1);
    sources_[file]->read(sequence - first_[file], tokens.subspan(row * length, length), targets.subspan(row * length, length));
  }
}

std::int64_t BatchSampler::counted_tokens(std::int64_t step) const {
  const std::int64_t global = request_.micro_batch_size * request_.micro_batches;
  std::int64_t counted = 0;
  for (std::int64_t i = 0; i < global; ++i) {
    const std::int64_t sequence = sequence_at(step * global + i);
    const auto file = static_cast<std::size_t>(std::ranges::upper_bound(first_, sequence) - first_.begin() - 1);
    counted += sources_[file]->counted(sequence - first_[file]);
  }
  return counted;
}

}  // namespace spillway
