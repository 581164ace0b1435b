// log.jsonl: one object for each step, written at its end, and read again by resume and report.
// Not here: the display while the run goes on (progress.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "memory/base/types.h"
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
  By<Tier, Bytes> peak_bytes;  // of tiers in memory; 0 for others
  Bytes nvme_read_bytes = 0;
  Bytes nvme_written_bytes = 0;
  double bound_s = 0;
  std::string binding_lane;
  double overlap_efficiency = 0;  // bound_s / step_s
  // Of a mixture of experts. Where its routers have losses, `loss` is lm_loss plus these times their coefficients.
  std::optional<double> lm_loss, aux_loss, router_z_loss;
  // Rows of the fullest and of the emptiest expert of any layer and micro-batch, over the mean; and the entropy of the experts'
  // shares, over that of even ones, the mean of all layers and micro-batches.
  std::optional<double> expert_load_most, expert_load_least, expert_entropy;
  std::optional<double> loss_scale;
  std::optional<double> eval_loss;
  std::optional<double> eval_loss_before;     // of the state before the step, if the run began or went on with it
  std::optional<std::int64_t> best;           // step of the lowest eval_loss so far; where one is in the record
  std::optional<std::int64_t> network_bytes;  // sent by all ranks; nothing with one rank
  std::optional<std::string> sample;          // the model's text after --sample-prompt
};

// One line without its newline. Numbers have the fewest digits that read back to the same bits. JSON has no numbers that are not
// finite, so these are the strings "NaN", "Infinity" and "-Infinity".
std::string to_log_line(const StepRecord& record);
// The keys of a line, in order.
std::vector<std::string> log_keys();
// `where` ("log.jsonl line 3") is for messages. Skips unknown keys, so that newer logs can be read. Throws IoError if the line is
// damaged.
StepRecord parse_log_line(std::string_view line, const std::string& where);

// All whole lines. Leaves out a torn last line, which a process killed within a write left; throws IoError for any other damage.
std::vector<StepRecord> read_log(const std::string& path);

class LogWriter {
 public:
  // Appends to `path`, and creates it if necessary. First cuts off the records of steps after `last_step` (the step resumed from;
  // 0: a new run).
  LogWriter(const std::string& path, std::int64_t last_step);

  void append(const StepRecord& record) { file_.append(to_log_line(record) + "\n"); }

 private:
  AppendFile file_;
};

}  // namespace spillway
