// The records of log.jsonl as a table for spreadsheets: --csv FILE.
// Not here: the records themselves (log.h).
#pragma once

#include <string>

#include "trainer/host/append_file.h"
#include "trainer/show/log.h"

namespace spillway {

class CsvLog {
 public:
  // Goes on after the row of `last_step` (the step resumed from); rows beyond it are cut off. With 0 the file must have no rows
  // yet: InputError, since another run's table would be lost. IoError where a row that stays is damaged.
  CsvLog(const std::string& path, std::int64_t last_step);

  void append(const StepRecord& record);

 private:
  AppendFile file_;
};

}  // namespace spillway
