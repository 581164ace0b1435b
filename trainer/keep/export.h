// Exports a run as a Hugging Face directory that any other program reads: safetensors, config.json, tokenizer files; or the
// adapter of a run as PEFT's. In bounded memory.
// Not here: the order and layout of tensors (models/weights_io.h), the file format (files/safetensors_writer.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "memory/base/types.h"

namespace spillway {

struct ExportOptions {
  std::string run;                   // the run directory
  std::optional<std::int64_t> step;  // empty: the newest checkpoint
  std::string out;                   // a directory that does not exist yet or is empty
  std::string model;                 // present place of config.json and the tokenizer, if not the one in run.json
  // float32: masters; the run's own type, which none stands for: its working weights; another: masters, rounded.
  std::optional<DType> dtype;
  bool merge = false;                 // of a run with adapters: the model with its adapter added to it
  Bytes shard_bytes = 5'000'000'000;  // largest size of a file, unless one tensor is larger
};

struct ExportResult {
  std::int64_t step = 0;
  std::int64_t parameters = 0;
  DType dtype = DType::float32;
  bool is_adapter = false;
};

// Writes everything beside `out` and renames it when complete: an error or an interruption leaves nothing.
ExportResult export_run(const ExportOptions& options);

// Reads "500MB" or "5GB" as Hugging Face writes them, or a SIZE of the command line. An InputError names --max-shard-size.
Bytes parse_shard_size(const std::string& text);

}  // namespace spillway
