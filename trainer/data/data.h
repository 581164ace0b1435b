// Batches of token sequences from files. A batch is a pure function of (request, step): a resumed run needs the step and no other
// state. Files are read when they are needed, JSONL rows through an index of 12 bytes for each row; a text is tokenized once,
// into a file without a name in the directory for temporary files.
// Not here: any copy of the data in memory, how text becomes tokens (trainer/text/tokenizer.h).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trainer/options/options.h"

namespace spillway {

// B: sequences in a micro-batch. M: micro-batches in a step, of all ranks. T: positions in a sequence. V: vocabulary.
struct DataRequest {
  std::vector<std::string> paths;  // files and directories
  std::string flag = "--data";     // for messages
  std::string tokenizer;           // for text: "bytes", or a tokenizer.json; empty: none
  DataFormat format = DataFormat::automatic;
  DataOrder order = DataOrder::shuffled;
  bool truncate = false;        // cut rows longer than T + 1 tokens instead of refusing them
  bool skip_bad_lines = false;  // in JSONL
  bool drop_last = false;       // an epoch is whole steps: the last sequences, too few for a step, are dropped
  std::uint64_t seed = 0;
  std::int64_t micro_batch_size = 1;  // B
  std::int64_t micro_batches = 1;     // M
  std::int64_t seq_length = 0;        // T
  std::int64_t vocabulary = 0;        // V
  int threads = 1;                    // threads that encode text
  std::int64_t steps = 0;             // steps that will run: each must have a position with loss
};
// `seq_length` from seq_length_for, `vocabulary` from the model.
DataRequest training_data(const RunOptions& options, std::int64_t seq_length, std::int64_t vocabulary);
// The data of --eval-data: sequential, micro-batches of the same shape; steps 0 .. sequences() / (B·M) − 1 pass over it once.
DataRequest evaluation_data(const RunOptions& options, std::int64_t seq_length, std::int64_t vocabulary);

// The data files that `paths` name; a directory's files come sorted by name. `flag` is for messages.
std::vector<std::string> paths_of_data(const std::vector<std::string>& paths, const std::string& flag);

inline constexpr std::int32_t kNoLoss = -100;  // the target of a position without loss

class SequenceSource;
class TextEncoding;

class BatchSampler {
 public:
  // Opens every file and reads all of it once, in bounded memory: a bad token, row or header is an InputError now, not at step
  // 90,000.
  explicit BatchSampler(const DataRequest& request);
  ~BatchSampler();
  BatchSampler(BatchSampler&&) noexcept;
  BatchSampler& operator=(BatchSampler&&) noexcept;

  // Fills micro-batch `micro_batch` of step `step` (from 0). Positions without loss have the target kNoLoss; padding has token 0.
  // The data is complete on return. One caller at a time: it reads through a buffer of its own.
  void fill(std::int64_t step, std::int64_t micro_batch, std::span<std::int32_t> tokens /*[B, T]*/,
            std::span<std::int32_t> targets /*[B, T]*/);

  // Number of positions with loss in all M micro-batches of the step; known without reading the data.
  std::int64_t counted_tokens(std::int64_t step) const;

  std::int64_t sequences() const;  // in one epoch, before drop_last
  std::string summary() const;     // one line for people: files, sequences, tokens

 private:
  std::int64_t sequences_of_epoch() const;                // in one epoch, after drop_last
  std::int64_t sequence_at(std::int64_t position) const;  // `position` counts over all epochs

  DataRequest request_;
  std::unique_ptr<TextEncoding> text_;                    // sources read through it
  std::vector<std::unique_ptr<SequenceSource>> sources_;  // in file order
  std::vector<std::int64_t> first_;                       // [files + 1] first sequence of each file
  std::string summary_;
};

}  // namespace spillway
