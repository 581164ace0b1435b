// Which data, and what becomes of them. Not here: the data (data.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainer/options/options.h"

namespace spillway {

// B: sequences in a micro-batch. M: micro-batches in a step, of all ranks. T: positions in a sequence. V: vocabulary.
struct DataRequest {
  std::vector<std::string> paths;  // files and directories; "-": standard input
  std::string flag = "--data";     // for messages
  std::string tokenizer;           // for text: "bytes", or a tokenizer.json; empty: none
  std::string template_date;       // YYYY-MM-DD, for chat templates; empty: today's
  DataFormat format = DataFormat::automatic;
  DataOrder order = DataOrder::shuffled;
  bool truncate = false;                // cut rows longer than T + 1 tokens instead of refusing them
  bool packing = false;                 // rows lie together in sequences (packing.h)
  bool split_rows = false;              // with packing: rows longer than T + 1 tokens go on in another sequence
  bool skip_bad_lines = false;          // in JSONL
  DataColumns columns = {};             // other names of the keys of rows
  std::optional<EvalSplit> split = {};  // some rows are held back for evaluation
  bool is_held_back = false;            // with `split`: those are the data; else the others
  bool drop_last = false;               // an epoch is whole steps: the last sequences, too few for a step, are dropped
  TrainOn train_on = TrainOn::assistant;
  TextEnds text_ends = TextEnds::both;
  std::uint64_t seed = 0;
  std::int64_t micro_batch_size = 1;  // B
  std::int64_t micro_batches = 1;     // M
  std::int64_t seq_length = 0;        // T
  std::int64_t vocabulary = 0;        // V
  int threads = 1;                    // threads that encode text
};

}  // namespace spillway
