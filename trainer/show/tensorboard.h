// The curves of a run for TensorBoard: --tensorboard DIR. An event file is a sequence of records, each a length and its bytes
// with a checksum after either; a record is an Event message of protocol buffers. Both formats are small enough to be written out
// here.
// Not here: the records of log.jsonl (log.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "trainer/host/append_file.h"
#include "trainer/show/log.h"

namespace spillway {

class TensorboardLog {
 public:
  // Writes one event file in `directory`, which it creates if necessary. Continues after the events of `last_step` (the step
  // resumed from); cuts off later events and a torn one, so that no step occurs twice. With 0 the file must have no steps yet:
  // otherwise throws InputError.
  TensorboardLog(const std::string& directory, std::int64_t last_step);

  // Appends loss, grad_norm, lr, tokens_per_s and, if present, eval_loss, what a mixture has, and the text of sample.
  void append(const StepRecord& record);

 private:
  AppendFile file_;
};

// CRC-32C (Castagnoli) of `data`: for tests.
std::uint32_t crc32c(std::string_view data);

}  // namespace spillway
