// log.jsonl: one object a step, written as the step ends, and read again by resume and report.
// Not here: what people see while it runs (progress.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "memory/types.h"
#include "trainer/host/append_file.h"

namespace spillway {

struct StepRecord {
  std::int64_t step = 0;  // from 1
  double loss = 0;
  double grad_norm = 0;  // before clipping
  double lr = 0;
  std::int64_t tokens = 0;  // positions with loss, of all micro-batches and ranks
  double step_s = 0;
  double tokens_per_s = 0;
  By<Tier, Bytes> peak_bytes;  // of tiers in memory; of others 0
  Bytes nvme_read_bytes = 0;
  Bytes nvme_written_bytes = 0;
  double bound_s = 0;
  std::string binding_lane;
  double overlap_efficiency = 0;  // bound_s / step_s
  std::optional<double> loss_scale;
  std::optional<double> eval_loss;
  std::optional<std::string> sample;  // what the model said after --sample-prompt
};

// One line without its end. Numbers are the shortest that read back to the same bits; JSON has no word for numbers that are not
// finite, so they are the strings "NaN", "Infinity" and "-Infinity".
std::string to_log_line(const StepRecord& record);
// The keys of a line, in their order.
std::vector<std::string> log_keys();
// `where` ("log.jsonl line 3") is for messages. Unknown keys are skipped, so that newer logs can be read. IoError where it is
// damaged.
StepRecord parse_log_line(std::string_view line, const std::string& where);

// All whole lines. A torn last line (the process was killed within a write) is left out; any other damage is an IoError.
std::vector<StepRecord> read_log(const std::string& path);

class LogWriter {
 public:
  // Appends to `path`, made where there is none. Records of steps after `last_step` (the step resumed from; 0: start anew) are
  // cut off first.
  LogWriter(const std::string& path, std::int64_t last_step);

  void append(const StepRecord& record) { file_.append(to_log_line(record) + "\n"); }

 private:
  AppendFile file_;
};

}  // namespace spillway
