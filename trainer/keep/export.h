// A run -> a Hugging Face directory that any other program reads: safetensors, config.json, tokenizer files. In bounded memory.
// Not here: the order and layout of tensors (models/weights_io.h), the file format (files/safetensors_writer.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "memory/types.h"

namespace spillway {

struct ExportOptions {
  std::string run;                    // the run directory
  std::optional<std::int64_t> step;   // the newest checkpoint where not given
  std::string out;                    // a directory that does not exist yet or is empty
  std::string model;                  // where config.json and the tokenizer are now, if not where run.json says
  std::optional<DType> dtype;         // float32: masters; bfloat16: the weights that a bf16 run computes with; none: as the run
  Bytes shard_bytes = 5'000'000'000;  // of a file at most, unless one tensor is larger
};

struct ExportResult {
  std::int64_t step = 0;
  std::int64_t parameters = 0;
  DType dtype = DType::float32;
};

// Everything is written beside `out` and renamed when whole: an error or an interruption leaves nothing.
ExportResult export_run(const ExportOptions& options);

// "500MB" and "5GB" as Hugging Face writes them, or a SIZE of the command line. InputError naming --max-shard-size.
Bytes parse_shard_size(const std::string& text);

}  // namespace spillway
