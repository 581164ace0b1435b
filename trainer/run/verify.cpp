#include "trainer/run/verify.h"

#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "files/json_text.h"
#include "memory/base/error.h"
#include "memory/passes/validate.h"
#include "memory/search/planner.h"
#include "trainer/data/data.h"
#include "trainer/host/interrupt.h"
#include "trainer/options/adapter_of.h"
#include "trainer/options/validate_options.h"
#include "trainer/plan/budgets.h"
#include "trainer/plan/prepared_run.h"
#include "trainer/run/step_loop.h"
#include "trainer/words/place.h"
#include "trainer/words/quantity.h"

namespace spillway {
namespace {

bool same_bits(double a, double b) { return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b); }

std::string_view head_of(const Choices& choices) { return choices.graph == 0 ? "tiled" : "fused"; }

std::string words_of(const Plan& plan) {
  const Choices& c = plan.choices;
  std::string peaks;
  for (const Tier tier : tiers_of(c.chain))
    peaks += fmt::format("{}{} {}", peaks.empty() ? "" : ", ", name_of(tier), rounded_size(plan.peak[tier]));
  return fmt::format(
      "order {}, update {}, of {} {} weights and {} optimizer states on nvme, of {} {} recomputed and {} spilled; {}",
      order_words(c), name_of(c.update), counted(std::ssize(c.blocks), "block"),
      count_of(c.blocks, &BlockPlace::weight, Tier::nvme), count_of(c.blocks, &BlockPlace::optimizer, Tier::nvme),
      counted(std::ssize(c.units), "unit"), count_of(c.units, &UnitPlace::saved, Saved::recompute),
      count_of(c.units, &UnitPlace::saved, Saved::spill), peaks);
}

// Requests for plans to compare with, the best first: the plainest one in core, another one in core, then other schedules under
// the given budgets.
std::vector<PlanRequest> rivals_of(const RunOptions& options, const PlannedRun& given) {
  const Plan& plan = *given.outcome.plan;
  RunOptions roomy = options;
  if (!options.gpu) roomy.memory.device = DeviceChoice::cpu;
  roomy.memory.budget[Tier::device].reset();
  const Bytes there = options.gpu ? budgets_of_run(roomy, given.machine, Where::here)[Tier::device]
                                  : budgets_for(roomy)[Tier::device] / options.parallel.ranks;
  PlanRequest in_core = given.request;
  in_core.budgets[Tier::device] = std::max(there, given.request.budgets[Tier::device]);
  in_core.budgets[Tier::nvme] = 0;
  if (!options.gpu) in_core.budgets[Tier::host] = 0;
  in_core.sharding.stage = 0;
  in_core.any_stage = false;
  in_core.group = 1;
  in_core.update = UpdateTime::after;
  if (!options.gpu) in_core.chain = Chain::device_nvme;  // a GPU reaches its drive through its host
  in_core.update_tier.reset();
  in_core.parameter_tier = in_core.optimizer_tier = Tier::device;
  in_core.activations = SavedRequest::device;
  in_core.durability = Durability::automatic;
  std::vector<PlanRequest> rivals = {in_core};
  PlanRequest other = in_core;
  other.group = other.micro_batches;
  other.update = UpdateTime::in_next_forward;
  other.activations = SavedRequest::recompute;
  rivals.push_back(other);
  const UpdateTime update = plan.choices.update == UpdateTime::after ? UpdateTime::in_next_forward : UpdateTime::after;
  const int group = plan.choices.group == 1 ? plan.choices.micro_batches : 1;
  for (const bool reordered : {true, false}) {
    for (const bool updated : {true, false}) {
      PlanRequest within = given.request;
      if (reordered) within.group = group;
      if (updated) within.update = update;
      within.activations = SavedRequest::automatic;
      if (reordered || updated) rivals.push_back(within);
    }
  }
  PlanRequest recomputing = given.request;
  recomputing.activations = SavedRequest::recompute;
  rivals.push_back(recomputing);
  return rivals;
}

Plan rival_of(const RunOptions& options, const PreparedModel& model, const PlannedRun& given) {
  for (const PlanRequest& request : rivals_of(options, given)) {
    PlanOutcome outcome = make_plan(model.graphs(), given.machine, request);
    if (outcome.plan && !differences(*given.outcome.plan, *outcome.plan).empty()) return *std::move(outcome.plan);
  }
  throw InputError("no second plan fits this machine and these budgets that differs from the first: there is nothing to compare",
                   "Give more --device-memory, or a --nvme directory.");
}

// Keeps the first run's final state on a disk while the second one runs, because each may fill the memory.
class StateOnDisk {
 public:
  explicit StateOnDisk(const MemoryOptions& memory) {
    const std::filesystem::path directory =
        memory.nvme.empty() ? std::filesystem::temp_directory_path() : std::filesystem::path(memory.nvme.front().path);
    file_ = (directory / fmt::format("spillway-verify-{}.safetensors", getpid())).string();
  }
  ~StateOnDisk() {
    std::error_code ignored;
    std::filesystem::remove(file_, ignored);
  }
  StateOnDisk(const StateOnDisk&) = delete;
  StateOnDisk& operator=(const StateOnDisk&) = delete;
  const std::string& file() const noexcept { return file_; }

 private:
  std::string file_;
};

class Verification {
 public:
  Verification(const RunOptions& options, std::int64_t steps, const Say& say, const Disturb& disturb)
      : options_(options), steps_(steps), say_(say), disturb_(disturb), model_(options_), loaded_(loaded()) {}

  VerifyResult run() {
    const PlannedRun given =
        plan_run(options_, model_, Where::here, [&](std::string_view note) { say_(fmt::format("note: {}", note)); });
    if (!given.outcome.plan) throw_does_not_fit(given);
    const Plan& first = *given.outcome.plan;
    const Plan second = rival_of(options_, model_, given);
    validate(first, model_.of(first).graph);
    validate(second, model_.of(second).graph);
    result_.plans_differ = differences(first, second);
    say_(fmt::format("first:  {}", words_of(first)));
    say_(fmt::format("second: {}", words_of(second)));
    BatchSampler data(training_data(options_, model_.seq_length(), model_.model().config.vocab));
    say_(data.summary());
    settle_by_data(options_, data);
    // Runs the steps that train would run, also beyond --train-iters.
    options_.batch.train_iters = std::max(options_.batch.train_iters, first_step() + steps_);
    result_.steps.resize(static_cast<std::size_t>(steps_));
    const StateOnDisk kept(options_.memory);
    run_plan(0, first, data, kept.file());
    run_plan(1, second, data, kept.file());
    result_.verdict = verdict();
    return std::move(result_);
  }

 private:
  std::optional<LoadedCheckpoint> loaded() const {
    if (options_.checkpoint.load.empty()) return std::nullopt;
    return newest_checkpoint(options_.checkpoint.load);
  }
  std::int64_t first_step() const { return loaded_ ? loaded_->step : 0; }

  void run_plan(int which, const Plan& plan, BatchSampler& data, const std::string& state_file) {
    const UnitGraph& graph = model_.of(plan).graph;
    StepLoop loop(options_, model_, plan, data, say_);
    loop.begin(loaded_, loaded_ ? loaded_->path : std::string());
    if (disturb_) disturb_(which, loop.executor(), graph);
    // As in train, the next step is under way while one is waited for.
    const int ahead = loop.steps_overlap() ? 2 : 1;
    std::int64_t submitted = 0;
    for (std::int64_t i = 0; i < steps_; ++i) {
      if (interrupt_.requested()) throw Error(kExitInterrupted, "interrupted: nothing was verified", "");
      while (submitted < std::min(i + ahead, steps_)) loop.submit(first_step() + submitted++);
      const StepOutcome outcome = loop.wait();
      if (!outcome.stopped.empty()) {
        throw NotFiniteError(fmt::format("step {} under the {} plan: {}; there is nothing to compare", outcome.step,
                                         which == 0 ? "first" : "second", outcome.stopped),
                             "A lower --lr or --clip-grad may help; look at the data of this step, too.");
      }
      VerifiedStep& step = result_.steps[static_cast<std::size_t>(i)];
      step.step = outcome.step;
      step.loss[which] = outcome.loss;
      step.grad_norm[which] = outcome.grad_norm;
      if (which == 1)
        say_(fmt::format("step {:>4}  loss {:.9g} {:.9g}  gradient norm {:.9g} {:.9g}  {}", step.step, step.loss[0], step.loss[1],
                         step.grad_norm[0], step.grad_norm[1], step.equal() ? "equal" : "DIFFERENT"));
    }
    loop.executor().flush();
    if (which == 0) {
      save_state(loop.executor(), plan, graph, state_file);
    } else {
      result_.state = first_difference(loop.executor(), plan, graph, state_file);
    }
  }

  std::string verdict() const {
    if (result_.equal())
      return fmt::format("equal: losses and gradient norms of {} and the final state, bit for bit", counted(steps_, "step"));
    std::string text = "different";
    const auto step = std::ranges::find_if(result_.steps, [](const VerifiedStep& s) { return !s.equal(); });
    if (step != result_.steps.end()) {
      const bool loss = !same_bits(step->loss[0], step->loss[1]);
      const double* values = loss ? step->loss : step->grad_norm;
      text +=
          fmt::format(": first at step {}: {} {:a} and {:a}", step->step, loss ? "loss" : "gradient norm", values[0], values[1]);
    } else {
      text += ": losses and gradient norms are equal";
    }
    if (!result_.state) return text + "; the final state is equal";
    return text + fmt::format("; first in the final state: {}, element [{}]: bits {:#x} and {:#x}", result_.state->array,
                              fmt::join(result_.state->at, ", "), result_.state->first_bits, result_.state->second_bits);
  }

  RunOptions options_;
  std::int64_t steps_;
  const Say& say_;
  const Disturb& disturb_;
  PreparedModel model_;
  std::optional<LoadedCheckpoint> loaded_;
  InterruptHandler interrupt_;
  VerifyResult result_;
};

}  // namespace

bool VerifiedStep::equal() const { return same_bits(loss[0], loss[1]) && same_bits(grad_norm[0], grad_norm[1]); }

bool VerifyResult::equal() const {
  return !state && std::ranges::all_of(steps, [](const VerifiedStep& step) { return step.equal(); });
}

std::vector<std::string> differences(const Plan& first, const Plan& second) {
  const Choices &a = first.choices, &b = second.choices;
  std::vector<std::string> found;
  const auto note = [&](std::string_view what, const auto& x, const auto& y) {
    if (x != y) found.push_back(fmt::format("{}: {}, {}", what, x, y));
  };
  note("order", order_words(a), order_words(b));
  note("update", name_of(a.update), name_of(b.update));
  note("blocks updated in the next forward instead", count_of(a.blocks, &BlockPlace::deferred, Deferred::yes),
       count_of(b.blocks, &BlockPlace::deferred, Deferred::yes));
  note("ZeRO stage", a.sharding.stage, b.sharding.stage);
  note("head", head_of(a), head_of(b));
  for (const Tier tier : tiers_of(a.chain).subspan(1)) {
    const auto note_on = [&](std::string_view what, Tier BlockPlace::* array) {
      note(fmt::format("{} on {}", what, in_words(tier)), count_of(a.blocks, array, tier), count_of(b.blocks, array, tier));
    };
    note_on("weights", &BlockPlace::weight);
    note_on("optimizer states", &BlockPlace::optimizer);
    note_on("gradients", &BlockPlace::gradient);
  }
  note("units recomputed", count_of(a.units, &UnitPlace::saved, Saved::recompute),
       count_of(b.units, &UnitPlace::saved, Saved::recompute));
  note("units spilled", count_of(a.units, &UnitPlace::saved, Saved::spill), count_of(b.units, &UnitPlace::saved, Saved::spill));
  note("boundaries spilled", count_of(a.units, &UnitPlace::boundary, Boundary::spill),
       count_of(b.units, &UnitPlace::boundary, Boundary::spill));
  return found;
}

VerifyResult verify(const RunOptions& options, std::int64_t steps, const Say& say, const Disturb& disturb) {
  require_model(options);
  require_data(options);
  refuse_known_machine(options);
  return Verification(options, steps, say, disturb).run();
}

std::string verify_json(const VerifyResult& result) {
  nlohmann::ordered_json json = {{"equal", result.equal()},
                                 {"verdict", result.verdict},
                                 {"plans_differ", result.plans_differ},
                                 {"steps", nlohmann::ordered_json::array()}};
  for (const VerifiedStep& step : result.steps) {
    json["steps"].push_back({{"step", step.step},
                             {"equal", step.equal()},
                             {"loss", {step.loss[0], step.loss[1]}},
                             {"grad_norm", {step.grad_norm[0], step.grad_norm[1]}}});
  }
  json["state"] = nullptr;
  if (result.state) {
    json["state"] = {{"array", result.state->array},
                     {"element", result.state->at},
                     {"bits", {result.state->first_bits, result.state->second_bits}}};
  }
  return json_text(json);
}

}  // namespace spillway
