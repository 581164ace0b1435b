#include "trainer/keep/evaluations.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "files/json_place.h"
#include "files/json_text.h"
#include "files/posix_file.h"
#include "memory/base/error.h"

namespace spillway {
namespace {

using Json = nlohmann::ordered_json;
constexpr std::string_view kFile = "best.json";
constexpr Bytes kLargest = 256 * kMiB;

// JSON has no numbers that are not finite.
Json json_of(const Evaluation& evaluation) {
  return {{"step", evaluation.step}, {"eval_loss", std::isfinite(evaluation.loss) ? Json(evaluation.loss) : Json(nullptr)}};
}

struct KeptEvaluations {
  std::uint64_t data = 0;
  std::vector<Evaluation> all;
};

std::optional<KeptEvaluations> kept_in(const std::string& run_directory) {
  const std::string path = fmt::format("{}/{}", run_directory, kFile);
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return std::nullopt;
  const auto json = parsed_json(read_text_file(path, kLargest));
  const JsonPlace place(json, path, "Remove the file: the run then knows nothing of the evaluations that it had.",
                        FileOf::program);
  KeptEvaluations kept{.data = place.at("data").hash(), .all = {}};
  const JsonPlace list = place.at("evaluations");
  constexpr double kMost = std::numeric_limits<double>::max();
  for (std::size_t i = 0; i < list.size(); ++i) {
    const JsonPlace one = list.at(i), loss = one.at("eval_loss");
    const std::int64_t step = one.at("step").integer(0, std::int64_t{1} << 60);
    if (!kept.all.empty() && step <= kept.all.back().step) one.at("step").refuse("is not above the one before it");
    kept.all.push_back({step, loss.is_null() ? std::numeric_limits<double>::quiet_NaN() : loss.number(-kMost, kMost)});
  }
  return kept;
}

}  // namespace

void Evaluations::add(Evaluation evaluation) {
  SPILLWAY_CHECK(all_.empty() || evaluation.step > all_.back().step, "an evaluation of step {} after one of step {}",
                 evaluation.step, all_.back().step);
  all_.push_back(evaluation);
  const bool is_finite = std::isfinite(evaluation.loss);
  const bool is_gain = is_finite && (!best_ || best_->loss - evaluation.loss > threshold_);
  without_gain_ = is_gain ? 0 : without_gain_ + 1;
  if (is_finite && (!best_ || evaluation.loss < best_->loss)) best_ = evaluation;
}

bool Evaluations::has(std::int64_t step) const {
  return std::ranges::any_of(all_, [step](const Evaluation& evaluation) { return evaluation.step == step; });
}

std::string Evaluations::json_text() const {
  Json json = {{"best", best_ ? json_of(*best_) : Json(nullptr)},
               {"without_gain", without_gain_},
               {"data", fmt::format("{:016x}", data_)},
               {"evaluations", Json::array()}};
  for (const Evaluation& evaluation : all_) json["evaluations"].push_back(json_of(evaluation));
  return spillway::json_text(json);
}

Evaluations evaluations_up_to(const std::string& run_directory, std::int64_t step, double threshold, std::uint64_t data) {
  Evaluations evaluations(threshold, data);
  const std::optional<KeptEvaluations> kept = kept_in(run_directory);
  if (!kept || kept->data != data) return evaluations;
  for (const Evaluation& evaluation : kept->all) {
    if (evaluation.step <= step) evaluations.add(evaluation);
  }
  return evaluations;
}

void write_evaluations(const RunDirectory& directory, const Evaluations& evaluations) {
  directory.write(kFile, evaluations.json_text());
}

std::optional<std::int64_t> step_asked(const std::string& typed, const std::string& run_directory) {
  if (typed.empty()) return std::nullopt;
  if (typed != "best") {
    std::int64_t step = 0;
    const auto [end, error] = std::from_chars(typed.data(), typed.data() + typed.size(), step);
    if (error != std::errc() || end != typed.data() + typed.size() || step < 0)
      throw InputError(fmt::format("--step: found {}, allowed: the step of a checkpoint, or best", typed));
    return step;
  }
  if (run_directory.empty()) throw InputError("--step: found without --load, allowed: together with --load DIR");
  Evaluations evaluations;
  if (const std::optional<KeptEvaluations> kept = kept_in(run_directory)) {
    for (const Evaluation& evaluation : kept->all) evaluations.add(evaluation);
  }
  if (!evaluations.best()) {
    throw InputError(fmt::format("--step: found best, but the run in {} has no evaluation", run_directory),
                     "train evaluates with --eval-data or --eval-split.");
  }
  const std::int64_t step = evaluations.best()->step;
  const std::vector<std::int64_t> steps = checkpoint_steps(run_directory);
  if (std::ranges::find(steps, step) == steps.end()) {
    throw InputError(
        fmt::format("--step: found best, which is step {} of {}, but its checkpoint was not kept", step, run_directory),
        fmt::format("train keeps it with --keep-best. There are: {}", fmt::join(steps, ", ")));
  }
  return step;
}

}  // namespace spillway
