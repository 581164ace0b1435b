// The records of log.jsonl as a table for spreadsheets: --csv FILE.
// Not here: the records themselves (log.h).
#pragma once

#include <string>

#include "trainer/host/append_file.h"
#include "trainer/show/log.h"

namespace spillway {

class CsvLog {
 public:
  // Continues after the row of `last_step`, the step resumed from; cuts off later rows. With 0 the file must have no rows yet:
  // otherwise throws InputError, because another run's table would be lost. Throws IoError if a row that stays is damaged.
  CsvLog(const std::string& path, std::int64_t last_step);

  void append(const StepRecord& record);

 private:
  AppendFile file_;
};

}  // namespace spillway
