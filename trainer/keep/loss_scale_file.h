// What an fp16 run knows of its loss scale after each step, in its directory (loss-scale.jsonl) and in each of its checkpoints:
// only steps that changed it have a line, so a step between two lines has one good step more than the step before.
// Not here: how it changes (trainer/options/loss_scale.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "trainer/host/append_file.h"
#include "trainer/options/loss_scale.h"

namespace spillway {

class LossScaleFile {
 public:
  // Begins the file of a run directory anew, with the state after `step`. A crash leaves the old file or the new one.
  LossScaleFile(const std::string& directory, std::int64_t step, const LossScaleState& state);

  // Notes the state after the next step. A line is on the disk when it returns: from then on the step may be durable, and without
  // its line it would look like a good one.
  void note(std::int64_t step, const LossScaleState& state);

 private:
  std::string path_;
  LossScaleState last_;
  AppendFile file_;
};

// The state after `step` by the file in a directory of a run or of a checkpoint; nothing if there is no file. Throws IoError if
// the file is damaged or does not reach back to the step.
std::optional<LossScaleState> loss_scale_after(const std::string& directory, std::int64_t step);
// Likewise of state of fp16, which has a file beside it: throws IoError if there is none.
LossScaleState loss_scale_of_fp16(const std::string& directory, std::int64_t step);
// Writes a file with the state after `step` alone.
void write_loss_scale(const std::string& directory, std::int64_t step, const LossScaleState& state);
void remove_loss_scale(const std::string& directory);  // if it has one
// Makes `to` go on with what `from` has of the step, if it has a file.
void copy_loss_scale(const std::string& from, const std::string& to, std::int64_t step);

}  // namespace spillway
