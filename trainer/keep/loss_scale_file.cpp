#include "trainer/keep/loss_scale_file.h"

#include <fmt/core.h>

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "files/json_place.h"
#include "files/json_text.h"
#include "files/posix_file.h"
#include "memory/base/error.h"
#include "memory/base/types.h"

namespace spillway {
namespace {

constexpr const char* kHelp = "Go on from an earlier checkpoint of the run.";
constexpr Bytes kLargest = Bytes{1} << 30;

std::string path_in(const std::string& directory) { return directory + "/loss-scale.jsonl"; }

std::string line_of(std::int64_t step, const LossScaleState& state) {
  return json_text(nlohmann::ordered_json{{"step", step},
                                          {"scale", state.scale},
                                          {"hysteresis", state.hysteresis},
                                          {"good_steps", state.good_steps},
                                          {"skipped_steps", state.skipped_steps}},
                   -1);
}

struct Line {
  std::int64_t step = 0;
  LossScaleState state;
};

Line parsed(const std::string& text, const std::string& where) {
  const nlohmann::json json = parsed_json(text);
  const JsonPlace place(json, where, kHelp, FileOf::program);
  const auto count = [&](std::string_view key) { return place.at(key).integer(0, INT64_MAX / 2); };
  Line line{.step = count("step"),
            .state = {.scale = place.at("scale").number(kLeastLossScale, kMostLossScale),
                      .hysteresis = count("hysteresis"),
                      .good_steps = count("good_steps"),
                      .skipped_steps = count("skipped_steps")}};
  if (!is_loss_scale(line.state.scale)) place.at("scale").refuse("is no power of two");
  if (line.state.skipped_steps > line.step) place.at("skipped_steps").refuse("is more than the steps there were");
  return line;
}

Bytes length_of(const std::string& path) { return PosixFile::open_to_read(path).size(); }

}  // namespace

void write_loss_scale(const std::string& directory, std::int64_t step, const LossScaleState& state) {
  write_text_file(path_in(directory), line_of(step, state));
}

void remove_loss_scale(const std::string& directory) {
  std::error_code ignored;
  std::filesystem::remove(path_in(directory), ignored);
}

void copy_loss_scale(const std::string& from, const std::string& to, std::int64_t step) {
  if (const std::optional<LossScaleState> state = loss_scale_after(from, step)) write_loss_scale(to, step, *state);
}

LossScaleFile::LossScaleFile(const std::string& directory, std::int64_t step, const LossScaleState& state)
    : path_(path_in(directory)), last_(state), file_([&] {
        write_loss_scale(directory, step, state);
        return AppendFile(path_, length_of(path_));
      }()) {}

void LossScaleFile::note(std::int64_t step, const LossScaleState& state) {
  ++last_.good_steps;
  if (state == last_) return;
  last_ = state;
  file_.append(line_of(step, state));
  PosixFile::open_to_read(path_).sync();
}

std::optional<LossScaleState> loss_scale_after(const std::string& directory, std::int64_t step) {
  const std::string path = path_in(directory);
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return std::nullopt;
  const std::string text = read_text_file(path, kLargest);
  std::optional<Line> found;
  std::int64_t number = 0;
  std::size_t begin = 0;
  // A torn last line is of a step that is not durable.
  for (std::size_t end = text.find('\n'); end != text.npos; begin = end + 1, end = text.find('\n', begin)) {
    const Line line = parsed(text.substr(begin, end - begin), fmt::format("{} line {}", path, ++number));
    if (line.step <= step) found = line;
  }
  if (!found) throw IoError(fmt::format("{}: has no state of step {}", path, step), kHelp);
  found->state.good_steps += step - found->step;
  return found->state;
}

LossScaleState loss_scale_of_fp16(const std::string& directory, std::int64_t step) {
  if (const std::optional<LossScaleState> state = loss_scale_after(directory, step)) return *state;
  throw IoError(fmt::format("{}: is missing, which state of fp16 has beside it", path_in(directory)),
                "Go on from another checkpoint of the run, or with --dtype bf16, which needs no loss scale.");
}

}  // namespace spillway
