// The curves of a run as TensorBoard reads them: --tensorboard DIR. An event file is a row of records, each a length and its
// bytes with a checksum after either; a record is an Event message of protocol buffers. Both are few enough to be written out
// here. Not here: the records of log.jsonl (log.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "trainer/host/append_file.h"
#include "trainer/show/log.h"

namespace spillway {

class TensorboardLog {
 public:
  // One event file in `directory`, made where there is none. Goes on after the events of `last_step` (the step
  // resumed from); those beyond it, and a torn one, are cut off, so that no step is there twice. With 0 the file must
  // have no steps yet: InputError.
  TensorboardLog(const std::string& directory, std::int64_t last_step);

  // loss, grad_norm, lr, tokens_per_s, and, where there are such, eval_loss and the text of sample.
  void append(const StepRecord& record);

 private:
  AppendFile file_;
};

// CRC-32C (Castagnoli) of `data`: for tests.
std::uint32_t crc32c(std::string_view data);

}  // namespace spillway
