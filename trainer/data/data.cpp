#include "trainer/data/data.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "memory/base/error.h"
#include "trainer/data/data_order.h"
#include "trainer/data/held_back.h"
#include "trainer/data/open_data.h"
#include "trainer/data/packed_rows.h"
#include "trainer/data/read_data.h"
#include "trainer/options/lr_schedule.h"
#include "trainer/text/text_codec.h"
#include "trainer/words/quantity.h"

namespace spillway {
namespace {

DataRequest request_for(const RunOptions& options, std::int64_t seq_length, std::int64_t vocabulary) {
  DataRequest request;
  request.tokenizer = tokenizer_of(options);
  request.template_date = options.data.template_date;
  request.format = options.data.format;
  request.truncate = options.data.truncate;
  request.packing = options.data.packing;
  request.split_rows = options.data.split_rows;
  request.skip_bad_lines = options.data.skip_bad_lines;
  request.columns = options.data.columns;
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

// Of the data of a sampler; `sources` has all of it.
DataFigures figures_of(const RowsOfData& read, const std::vector<std::unique_ptr<SequenceSource>>& sources,
                       std::int64_t seq_length) {
  DataFigures figures{
      .documents = read.counts.documents + read.texts_of_bytes, .longest_row = read.counts.longest_row, .cut = read.counts.cut};
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

Bytes bytes_of_file(const std::string& path) { return open_stored(path).size(); }

}  // namespace

DataRequest training_data(const RunOptions& options, std::int64_t seq_length, std::int64_t vocabulary) {
  DataRequest request = request_for(options, seq_length, vocabulary);
  request.paths = options.data.data;
  request.order = options.data.order;
  request.split = options.data.eval_split;
  request.drop_last = options.data.drop_last;
  return request;
}

DataRequest evaluation_data(const RunOptions& options, std::int64_t seq_length, std::int64_t vocabulary) {
  DataRequest request = request_for(options, seq_length, vocabulary);
  request.order = DataOrder::sequential;
  if (options.data.eval_data.empty() && options.data.eval_split) {
    request.paths = options.data.data;
    request.split = options.data.eval_split;
    request.is_held_back = true;
  } else {
    request.paths = options.data.eval_data;
    request.flag = "--eval-data";
  }
  return request;
}

BatchSampler::BatchSampler(const DataRequest& request) : request_(request) {
  SPILLWAY_CHECK(request.seq_length > 0 && request.vocabulary > 0 && request.micro_batch_size > 0 && request.micro_batches > 0,
                 "data for {} positions, {} tokens of vocabulary, {} x {} sequences", request.seq_length, request.vocabulary,
                 request.micro_batches, request.micro_batch_size);
  ReadData read = read_data(request);
  read_ = std::move(read.rows);
  for (std::unique_ptr<SequenceSource>& file : read.files) add(std::move(file));
  begin();
}

BatchSampler::BatchSampler(const DataRequest& request, const BatchSampler& read) : request_(request), read_(read.read_) {
  SPILLWAY_CHECK(request.split && request.split == read.request_.split && request.paths == read.request_.paths,
                 "other data than those that were read");
  begin();
}

void BatchSampler::begin() {
  if (request_.packing || request_.split) add_rows();
  refuse_too_few();
  figures_ = figures_of(*read_, sources_, request_.seq_length);
  if (request_.split) figures_.documents = rows_;
  if (packs_)
    figures_.packs = packs_->packs(), figures_.split = packs_->split_rows(), figures_.pieces_left_out = packs_->pieces_left_out();
  tell();
}

void BatchSampler::tell() {
  summary_ = fmt::format("{}, {} of {}", counted(std::ssize(read_->paths), "file"), counted(sequences(), "sequence"),
                         counted(request_.seq_length, "position"));
  if (const std::int64_t dropped = sequences() - sequences_of_epoch(); dropped > 0)
    summary_ += fmt::format("; {} of each epoch dropped by --drop-last", with_commas(dropped));
  summary_ += "; " + words_of(figures_);
  if (request_.split) {
    summary_ += request_.is_held_back
                    ? fmt::format("; those that --eval-split {} holds back", request_.split->text())
                    : fmt::format("; {} held back by --eval-split", counted(read_->rows->rows() - rows_, "row"));
  }
  std::int64_t too_short = 0, left_over = 0;
  for (const auto& source : sources_) {
    too_short += source->sequences() == 0 ? 1 : 0;
    left_over += source->tokens_left_over();
  }
  if (too_short > 0) summary_ += fmt::format("; {} too short for one sequence", counted(too_short, "file"));
  if (left_over > 0) summary_ += fmt::format("; {} at the ends of files left out", counted(left_over, "token"));
  if (const std::string left_out = words_of_bad_lines(); !left_out.empty()) summary_ += "; " + left_out;
}

std::string BatchSampler::words_of_bad_lines() const {
  const DocumentCounts& counts = read_->counts;
  return counts.bad_lines == 0
             ? ""
             : fmt::format("{} left out, the first: {}", counted(counts.bad_lines, "bad line"), counts.first_bad_line);
}

void BatchSampler::add(std::unique_ptr<SequenceSource> source) {
  first_.push_back(first_.back() + source->sequences());
  sources_.push_back(std::move(source));
}

// The rows of all files: those that are this sampler's, each a sequence or packed.
void BatchSampler::add_rows() {
  std::shared_ptr<TokenRows> rows = read_->rows;
  if (request_.split && read_->met > 0) {
    const std::vector<bool> is_held = rows_held_back(*request_.split, read_->met, request_.seed);
    rows = rows->part([&](std::int64_t row) {
      const std::int64_t number = read_->numbers[static_cast<std::size_t>(row)];
      return is_held[static_cast<std::size_t>(number)] == request_.is_held_back;
    });
  }
  rows_ = rows->rows();
  if (!request_.packing) return add(sequences_of_rows(rows, 0, rows->rows()));
  const bool has_rows =
      std::ranges::any_of(read_->paths, [](const std::string& path) { return spillway::has_rows(data_name_of(path).kind); });
  if (!has_rows && request_.flag == "--data") {
    throw InputError(fmt::format("--packing: found no file of rows in {}, allowed: where there are rows", request_.flag),
                     "windows of text and token files have no padding: leave it out");
  }
  packs_ = std::make_shared<const Packs>(
      *rows, PackRules{.seq_length = request_.seq_length, .order = request_.order, .seed = request_.seed});
  add(sequences_of_packs(rows, packs_));
}

void BatchSampler::refuse_too_few() const {
  const std::vector<std::string>& files = read_->paths;
  const std::string left_out = words_of_bad_lines();
  if (sequences() == 0) {
    if (request_.split && read_->met > 0) {
      throw InputError(fmt::format("--eval-split: found {}, which leaves no row {}, allowed: at least one",
                                   request_.split->text(), request_.is_held_back ? "to evaluate on" : "to train on"),
                       left_out);
    }
    const bool all_empty = std::ranges::all_of(files, [](const std::string& file) { return bytes_of_file(file) == 0; });
    throw InputError(
        fmt::format("{}: found {} in {}{}, allowed: at least one sequence of {} tokens (--seq-length + 1)", request_.flag,
                    all_empty ? "nothing" : "too few tokens", shown_data_path(files[0]),
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
