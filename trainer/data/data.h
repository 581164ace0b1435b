// Batches of token sequences from files. A batch is a pure function of (request, step): a resumed run needs the step and no other
// state. Token files are read when they are needed; text and rows of JSONL become tokens once, in files without a name in the
// directory for temporary files.
// Not here: any copy of the data in memory, how text and rows become tokens (text_documents.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "trainer/data/data_figures.h"
#include "trainer/data/data_request.h"
#include "trainer/data/data_source.h"
#include "trainer/data/packing.h"

namespace spillway {

// `seq_length` from seq_length_for, `vocabulary` from the model.
DataRequest training_data(const RunOptions& options, std::int64_t seq_length, std::int64_t vocabulary);
// The data of --eval-data, or the rows that --eval-split holds back: sequential, micro-batches of the same shape; steps
// 0 .. sequences() / (B·M) − 1 pass over it once.
DataRequest evaluation_data(const RunOptions& options, std::int64_t seq_length, std::int64_t vocabulary);

// Rows as they were read, for all who need some of them.
struct RowsOfData;

class BatchSampler {
 public:
  // Opens every file and reads all of it once, in bounded memory: a bad token, row or header is an InputError now, not at step
  // 90,000.
  explicit BatchSampler(const DataRequest& request);
  // The same, of the same data and rules as `read`, which has read them: nothing is read again.
  BatchSampler(const DataRequest& request, const BatchSampler& read);
  ~BatchSampler();
  BatchSampler(BatchSampler&&) noexcept;
  BatchSampler& operator=(BatchSampler&&) noexcept;

  // Fills micro-batch `micro_batch` of step `step` (from 0). Positions without loss have the target kNoLoss; padding has token 0.
  // `documents`: where each position's document begins in its sequence; empty, unless rows are packed. The data is complete on
  // return. One caller at a time: it reads through a buffer of its own.
  void fill(std::int64_t step, std::int64_t micro_batch, std::span<std::int32_t> tokens /*[B, T]*/,
            std::span<std::int32_t> targets /*[B, T]*/, std::span<std::int32_t> documents /*[B, T]*/ = {});

  // Number of positions with loss in all M micro-batches of the step; known without reading the data.
  std::int64_t counted_tokens(std::int64_t step) const;
  std::int64_t positions(std::int64_t step) const;  // in all M micro-batches of the step, without padding

  std::int64_t sequences() const;           // in one epoch, before drop_last
  std::int64_t sequences_of_epoch() const;  // in one epoch, after drop_last
  const DataFigures& figures() const { return figures_; }
  std::int64_t steps_of(double epochs) const;  // rounded up; InputError if not even one epoch has a step
  std::string words_of_epoch() const;
  double mean_document() const { return packs_ ? packs_->mean_document() : 0; }  // 0: there are no packs
  std::string summary() const { return summary_; }                               // one line for people: files, sequences, figures

 private:
  void begin();
  void add_rows();
  void tell();
  void add(std::unique_ptr<SequenceSource> source);
  std::string words_of_bad_lines() const;
  void refuse_too_few() const;
  std::int64_t sequence_at(std::int64_t position) const;  // `position` counts over all epochs
  // The source of a sequence, and its index there.
  std::pair<SequenceSource&, std::int64_t> source_of(std::int64_t sequence) const;
  // Sums a number of each sequence over those of a step.
  std::int64_t sum_over(std::int64_t step, std::int64_t (SequenceSource::*number)(std::int64_t) const) const;

  DataRequest request_;
  std::shared_ptr<const RowsOfData> read_;
  std::int64_t rows_ = 0;                                 // of the sampler, where they are packed or some are held back
  std::vector<std::unique_ptr<SequenceSource>> sources_;  // in file order
  std::vector<std::int64_t> first_ = {0};                 // [files + 1] first sequence of each file
  DataFigures figures_;
  std::shared_ptr<const Packs> packs_;  // null: there are none
  std::string summary_;
};

// Sets what a plan takes from the data: --train-iters in place of --epochs, and the length of packed documents.
void settle_by_data(RunOptions& options, const BatchSampler& data);

}  // namespace spillway
