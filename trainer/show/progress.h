// The display for a person while a run goes on: one live line on a terminal, plain lines in a pipe or a file.
// Not here: the record of every step (log.h), warnings of other folders.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

#include "memory/base/types.h"
#include "trainer/show/log.h"

namespace spillway {

enum class ProgressStyle : std::uint8_t { plain, live, live_with_colour };
// Live on a terminal that can move its cursor (TERM is not "dumb"), with colour unless NO_COLOR is set; otherwise plain.
ProgressStyle progress_style_of(int fd);

struct TierUse {
  Bytes used = 0;    // peak of the plan or the run
  Bytes budget = 0;  // 0: the tier is not in use, and not shown
};

struct ProgressState {
  StepRecord record;
  std::int64_t train_iters = 0;
  double seconds_left = -1;  // < 0: not known yet
  By<Tier, TierUse> tiers;
};

// "step 12/100 · loss 4.1234 · 1,234 tokens/s · ETA 1m 12s · device 512 MiB of 1.0 GiB · bound by nvme_read (95 %)"
std::string progress_line(const ProgressState& state, ProgressStyle style);

class Progress {
 public:
  // Writes to `fd` (not owned). A plain line comes every `log_interval` steps and at the last step; a live line at every step.
  Progress(int fd, ProgressStyle style, std::int64_t train_iters, std::int64_t log_interval);
  ~Progress();  // ends a live line, so that the prompt starts on its own
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void set_tiers(const By<Tier, TierUse>& tiers);
  void step(const StepRecord& record);
  // Writes a line of its own, above the live one.
  void message(std::string_view text);  // from any thread

 private:
  void write(std::string_view text) const;

  int fd_;
  ProgressStyle style_;
  std::int64_t train_iters_;
  std::int64_t log_interval_;
  By<Tier, TierUse> tiers_;
  double mean_step_s_ = 0;
  std::mutex mutex_;  // of what is written
  bool line_open_ = false;
};

}  // namespace spillway
