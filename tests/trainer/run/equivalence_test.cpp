// No plan changes the result: random placements, every prefetch depth, both heads, both I/O queues, completions in any order and
// any number of threads give the bits of the plain run in core. And that run gives the golden parameters.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "memory/base/error.h"
#include "tests/nvme/faulty_queue.h"
#include "tests/offload/small_training.h"
#include "tests/trainer/temporary_directory.h"

namespace spillway {
namespace {

constexpr int kSteps = 4, kMicroBatches = 3;
constexpr std::int64_t kSequence = 16;

std::string name_of_form(StateForm form) {
  return form == StateForm::exact ? "exact" : form == StateForm::compact ? "compact" : "fp32";
}

struct Question {
  std::string golden;
  StateForm form;
};
std::ostream& operator<<(std::ostream& out, const Question& question) {
  return out << question.golden << "_" << name_of_form(question.form);
}

// Cuts so small that every unit that can be cut is cut.
constexpr Cuts kSmallCuts{.vocabulary_rows = 64, .mlp_columns = 64, .head_strip = 8};

class Equivalence : public ::testing::TestWithParam<Question> {
 protected:
  std::unique_ptr<SmallModel> model(int threads = 2) const {
    const Question& q = GetParam();
    return std::make_unique<SmallModel>(q.golden, q.form == StateForm::fp32 ? DType::float32 : DType::bfloat16, 1, kSequence,
                                        threads, kSmallCuts);
  }
  Choices choices(const SmallModel& model, int graph, Tier tier, bool clip = true) const {
    return uniform_choices(model, graph, GetParam().form, kMicroBatches, clip, tier);
  }
  Result train(const SmallModel& model, Plan plan, const StoreOptions& store = {}) {
    SmallTraining training(model, std::move(plan), directory_.path(), store);
    training.set_clip(clip_);
    training.load_weights();
    Result result = training.train(kSteps);
    EXPECT_EQ(training.last().peak,
              has_host(training.plan().choices.chain) ? peak_of_step(training.plan()) : training.plan().peak);
    return result;
  }
  // For a flush alone, the host may stage more than for a step.
  static By<Tier, Bytes> peak_of_step(const Plan& plan) {
    By<Tier, Bytes> peak;
    for (const Op& op : plan.step.ops) {
      for (const Operand& operand : op.operands) {
        if (operand.buffer < 0) continue;
        const Buffer& buffer = buffer_of(plan, plan.step, operand.buffer);
        Bytes& of_tier = peak[buffer.tier];
        of_tier = std::max(of_tier, buffer.offset + buffer.slots * buffer.bytes);
      }
    }
    return peak;
  }
  // The run in core. The clip is set so that it acts in some steps and not in others.
  Result reference(const SmallModel& model, bool clip = true) {
    if (clip && clip_ == 0) {
      clip_ = 1e9;
      std::vector<double> norms = train(model, plan_of(model, choices(model, 1, Tier::device))).norms;
      std::sort(norms.begin(), norms.end());
      clip_ = (norms[kSteps / 2 - 1] + norms[kSteps / 2]) / 2;
    }
    const Result result = train(model, plan_of(model, choices(model, 1, Tier::device, clip)));
    if (clip) {
      const auto acts = [&](double norm) { return norm > clip_; };
      EXPECT_TRUE(std::any_of(result.norms.begin(), result.norms.end(), acts) &&
                  !std::all_of(result.norms.begin(), result.norms.end(), acts));
    }
    return result;
  }
  void expect_same(const Result& result, const Result& reference) {
    EXPECT_EQ(result.losses, reference.losses);
    EXPECT_EQ(result.norms, reference.norms);
    EXPECT_TRUE(result.state == reference.state) << "the state differs";
  }

  TemporaryDirectory directory_;
  double clip_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Models, Equivalence,
                         ::testing::Values(Question{"gpt2", StateForm::exact}, Question{"gpt2", StateForm::compact},
                                           Question{"llama_gqa", StateForm::exact}, Question{"llama_gqa", StateForm::fp32},
                                           Question{"qwen3", StateForm::compact}, Question{"gemma2", StateForm::exact}),
                         ::testing::PrintToStringParamName());

Choices random_choices(const UnitGraph& graph, Choices choices, std::mt19937& random) {
  const auto one_of = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  const auto tier = [&] { return one_of(2) == 0 ? Tier::device : Tier::nvme; };
  choices.group = one_of(2) == 0 ? 1 : choices.micro_batches;
  choices.strip = 1 + one_of(choices.group);
  choices.update = static_cast<UpdateTime>(one_of(3));
  choices.slots = 1 + one_of(2);
  choices.ahead = one_of(6) * 32 * kKiB;
  choices.update_chunk = kBlockElements << one_of(6);
  for (const auto array : {&BlockPlace::weight, &BlockPlace::optimizer, &BlockPlace::gradient}) {
    for (BlockPlace& place : choices.blocks) place.*array = tier();
  }
  for (UnitPlace& place : choices.units) place.saved = static_cast<Saved>(one_of(3));
  for (UnitPlace& place : choices.units) place.boundary = static_cast<Boundary>(one_of(2));
  if (choices.update == UpdateTime::in_backward && choices.clip) {
    // Speculation takes a step back only by its other slots.
    choices.slots = 2;
    set_all(choices.blocks, &BlockPlace::weight, Tier::nvme);
    set_all(choices.blocks, &BlockPlace::optimizer, Tier::nvme);
  }
  if (may_defer_blocks(choices.update, choices.clip, choices.slots)) {
    for (std::size_t block = 0; block < graph.blocks.size(); ++block)
      choices.blocks[block].deferred = !graph.blocks[block].looked_up && one_of(2) == 0 ? Deferred::yes : Deferred::no;
  }
  return choices;
}

// Micro-batches may be grouped into turns and cut into strips in any way, on any tier, with updates at any time, also when a step
// is taken back: the result has the same bits.
TEST_P(Equivalence, TurnsAndStrips) {
  const auto small = model();
  constexpr int micro_batches = 6;
  const auto grouped = [&](Tier tier, UpdateTime update, bool clip, int group, int strip) {
    Choices choices = uniform_choices(*small, 1, GetParam().form, micro_batches, clip, tier);
    choices.update = update;
    choices.group = group;
    choices.strip = strip;
    set_all(choices.units, &UnitPlace::saved, tier == Tier::device ? Saved::recompute : Saved::spill);
    return choices;
  };
  for (const bool clip : {true, false}) {
    clip_ = clip ? 1 : 0;
    const Result one_by_one = train(*small, plan_of(*small, grouped(Tier::device, UpdateTime::after, clip, micro_batches, 1)));
    for (const Tier tier : {Tier::device, Tier::nvme}) {
      for (const UpdateTime update : {UpdateTime::after, UpdateTime::in_backward, UpdateTime::in_next_forward}) {
        if (tier == Tier::device && speculates(update, clip)) continue;
        for (const auto& [group, strip] : {std::pair{1, 1}, {2, 1}, {2, 2}, {3, 2}, {6, 2}, {6, 4}, {6, 6}}) {
          SCOPED_TRACE(fmt::format("clipping {}, {}, update {}, groups of {}, strips of {}", clip, name_of(tier), name_of(update),
                                   group, strip));
          expect_same(train(*small, plan_of(*small, grouped(tier, update, clip, group, strip))), one_by_one);
        }
      }
    }
  }
}

// SPILLWAY_TRIALS=N sets the number of trials.
TEST_P(Equivalence, RandomPlacements) {
  const auto small = model();
  std::mt19937 random(20240607);
  const char* asked = std::getenv("SPILLWAY_TRIALS");
  const int trials = asked != nullptr ? std::atoi(asked) : 12;
  for (const bool clip : {true, false}) {
    const Result in_core = reference(*small, clip);
    for (int trial = 0; trial < trials; ++trial) {
      SCOPED_TRACE(fmt::format("trial {}, clipping {}", trial, clip));
      const Choices start = choices(*small, trial % 2, Tier::nvme, clip);
      const Plan plan = plan_of(*small, random_choices(graph_of(small->graphs(), start), start, random));
      EXPECT_GT(plan.peak[Tier::nvme], 0);
      SCOPED_TRACE(fmt::format("{} order, update {}, {} slots, {} ahead, chunks of {}", order_words(plan.choices),
                               name_of(plan.choices.update), plan.choices.slots, plan.choices.ahead, plan.choices.update_chunk) +
                   fmt::format(", defers {} blocks", count_of(plan.choices.blocks, &BlockPlace::deferred, Deferred::yes)));
      expect_same(train(*small, plan), in_core);
    }
  }
}

// The same with a host between device and NVMe. No operation of the device may touch the host's memory, nor the host the
// device's.
TEST_P(Equivalence, ThreeTiers) {
  const auto small = model();
  std::mt19937 random(20261123);
  const auto one_of = [&](auto... of) {
    const std::array values{of...};
    return values[random() % values.size()];
  };
  By<Tier, Bytes> most;
  for (const bool clip : {true, false}) {
    const Result in_core = reference(*small, clip);
    for (int trial = 0; trial < 10; ++trial) {
      SCOPED_TRACE(fmt::format("trial {}, clipping {}", trial, clip));
      const Choices start = choices(*small, trial % 2, Tier::nvme, clip);
      const UnitGraph& graph = graph_of(small->graphs(), start);
      Choices chained = random_choices(graph, start, random);
      chained.chain = Chain::device_host_nvme;
      chained.slots = 1;
      if (clip && chained.update == UpdateTime::in_backward) chained.update = UpdateTime::in_next_forward;
      if (!may_defer_blocks(chained.update, chained.clip, chained.slots))
        set_all(chained.blocks, &BlockPlace::deferred, Deferred::no);
      chained.update_tier = one_of(Tier::device, Tier::host);
      for (const auto array : {&BlockPlace::weight, &BlockPlace::optimizer, &BlockPlace::gradient}) {
        for (BlockPlace& place : chained.blocks) place.*array = one_of(Tier::device, Tier::host, Tier::nvme);
      }
      for (UnitPlace& place : chained.units) place.spill = one_of(Tier::host, Tier::nvme);
      const Plan plan = plan_of(*small, chained);
      for (const Tier tier : kAll<Tier>) most[tier] = std::max(most[tier], plan.peak[tier]);
      expect_same(train(*small, plan), in_core);
    }
  }
  for (const Bytes bytes : most) EXPECT_GT(bytes, 0);
}

TEST_P(Equivalence, PrefetchDepths) {
  const auto small = model();
  const Result in_core = reference(*small);
  std::vector<Bytes> peaks;
  for (const Bytes ahead : {0 * kKiB, 1 * kKiB, 16 * kKiB, 64 * kKiB, 256 * kKiB, kGiB}) {
    SCOPED_TRACE(ahead);
    PlanRequest request{.budgets = {{Tier::device, kGiB}, {Tier::nvme, kGiB}},
                        .micro_batches = kMicroBatches,
                        .clip = true,
                        .form = GetParam().form,
                        .group = kMicroBatches,
                        .parameter_tier = Tier::nvme,
                        .optimizer_tier = Tier::nvme,
                        .activations = SavedRequest::nvme,
                        .ahead = ahead};
    const PlanOutcome outcome = make_plan(small->graphs(), made_up_machine(), request);
    ASSERT_TRUE(outcome.plan);
    EXPECT_EQ(outcome.plan->choices.ahead, ahead);
    peaks.push_back(outcome.plan->peak[Tier::device]);
    expect_same(train(*small, *outcome.plan), in_core);
  }
  EXPECT_LT(peaks.front(), peaks.back()) << "a deeper prefetch holds more at a time";
}

TEST_P(Equivalence, HeadTiledAndFused) {
  const auto small = model();
  EXPECT_GT(small->tiled.graph.units.size(), small->fused.graph.units.size()) << "the vocabulary is to be cut";
  const Result in_core = reference(*small);
  for (const Tier tier : {Tier::device, Tier::nvme})
    expect_same(train(*small, plan_of(*small, choices(*small, 0, tier))), in_core);
}

TEST_P(Equivalence, Threads) {
  const Result in_core = reference(*model());
  for (const int threads : {1, 3, 5}) {
    SCOPED_TRACE(threads);
    const auto other = model(threads);
    expect_same(train(*other, plan_of(*other, choices(*other, 1, Tier::device))), in_core);
    expect_same(train(*other, plan_of(*other, choices(*other, 0, Tier::nvme))), in_core);
  }
}

TEST_P(Equivalence, Queues) {
  const auto small = model();
  const Result in_core = reference(*small);
  const auto spilled = [&](const StoreOptions& store) {
    return train(*small, plan_of(*small, choices(*small, 1, Tier::nvme)), store);
  };
  expect_same(spilled({.queue = IoQueueKind::threads}), in_core);
  expect_same(spilled({.direct = DirectIo::off}), in_core);
  expect_same(spilled({.block_bytes = 16 * kKiB, .stripe_bytes = 16 * kKiB, .depth = 1}), in_core);
  // Completions come in any order, and some are short.
  StoreOptions faulty;
  faulty.block_bytes = 32 * kKiB;
  faulty.stripe_bytes = 32 * kKiB;
  faulty.decorate = [](std::unique_ptr<IoQueue> queue) -> std::unique_ptr<IoQueue> {
    FaultPlan plan;
    plan.reorder = true;
    plan.fault = [](const IoRequest& request, int count) {
      return count % 5 == 2 && request.bytes > 8192 ? Fault{Fault::Kind::short_result, 8192} : Fault{};
    };
    return std::make_unique<FaultyQueue>(std::move(queue), plan);
  };
  expect_same(spilled(faulty), in_core);
}

TEST_P(Equivalence, TightestBudgets) {
  const auto small = model();
  const Result in_core = reference(*small);
  for (const std::optional<int> group : {std::optional<int>(), std::optional(1), std::optional(kMicroBatches)}) {
    for (const UpdateTime update : {UpdateTime::after, UpdateTime::in_backward, UpdateTime::in_next_forward}) {
      PlanRequest request{.budgets = {{Tier::nvme, kGiB}},
                          .micro_batches = kMicroBatches,
                          .clip = true,
                          .form = GetParam().form,
                          .group = group,
                          .update = update};
      if (update == UpdateTime::in_backward) request.parameter_tier = request.optimizer_tier = Tier::nvme;
      // Finds the smallest budget that has a plan.
      Bytes low = 0, high = 16 * kMiB;
      std::optional<Plan> tightest;
      while (high - low > 64 * kKiB) {
        request.budgets[Tier::device] = (low + high) / 2;
        PlanOutcome outcome = make_plan(small->graphs(), made_up_machine(), request);
        (outcome.plan ? high : low) = request.budgets[Tier::device];
        if (outcome.plan) tightest = std::move(outcome.plan);
      }
      ASSERT_TRUE(tightest);
      EXPECT_LE(tightest->peak[Tier::device], high);
      expect_same(train(*small, *tightest), in_core);
    }
  }
}

// --- Golden parameters ----------------------------------------------------------------------------------------------------

class GoldenParameters : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Cases, GoldenParameters, ::testing::ValuesIn(golden_names()),
                         [](const auto& golden) { return golden.param; });

// A value that all scores of a row share has the gradient 0 but for rounding, which Adam scales up (tests/data/golden/README.md).
bool has_key_bias(const std::string& tensor) { return tensor.ends_with("c_attn.bias") || tensor.ends_with("k_proj.bias"); }

// The golden case of a checkpoint around a language model has an older spelling of the prefix than the model.
std::string name_in_file(const std::string& tensor) {
  const std::string ours = "model.language_model.";
  return tensor.starts_with(ours) ? "language_model.model." + tensor.substr(ours.size()) : tensor;
}

TEST_P(GoldenParameters, NormsAfterTraining) {
  const nlohmann::json numbers = nlohmann::json::parse(std::ifstream(golden_directory(GetParam()) + "/golden.json"));
  const std::int64_t steps = numbers.at("steps"), batch = numbers.at("batch"), sequence = numbers.at("seq_len"),
                     n = batch * sequence;
  const SafetensorsReader golden(golden_directory(GetParam()) + "/golden.safetensors");
  const std::vector<std::int32_t> windows = golden_tokens(golden, "tokens"), given = golden_tokens(golden, "targets");
  const SmallModel model(GetParam(), DType::float32, batch, sequence);
  const TemporaryDirectory directory;
  SmallTraining training(model, plan_of(model, uniform_choices(model, 0, StateForm::fp32, 1, true, Tier::nvme)),
                         directory.path());
  training.load_weights();
  for (std::int64_t step = 0; step < steps; ++step) {
    std::vector<std::int32_t> inputs, wanted;
    for (std::int64_t row = step * batch; row < (step + 1) * batch; ++row) {
      for (std::int64_t t = 0; t < sequence; ++t) {
        inputs.push_back(windows[row * (sequence + 1) + t]);
        wanted.push_back(given.empty() ? windows[row * (sequence + 1) + t + 1] : given[row * sequence + t]);
      }
    }
    const auto& optimizer = numbers.at("optimizer");
    const StepSettings settings{.adamw = {.step = step + 1,
                                          .lr = numbers.at("schedule").at("lrs")[step],
                                          .beta1 = optimizer.at("betas")[0],
                                          .beta2 = optimizer.at("betas")[1],
                                          .epsilon = optimizer.at("eps"),
                                          .weight_decay = optimizer.at("weight_decay")},
                                .clip = numbers.at("clip_norm"),
                                .counted_tokens = n - std::count(wanted.begin(), wanted.end(), -100)};
    training.executor().submit(settings, [&](int, const MicroBatchRows& rows) {
      std::copy(inputs.begin(), inputs.end(), rows.tokens.begin());
      std::copy(wanted.begin(), wanted.end(), rows.targets.begin());
    });
    EXPECT_EQ(training.executor().wait().stopped, "");
  }
  std::map<std::string, double> squares;
  const auto state = training.state();
  for (std::size_t block = 0; block < training.graph().blocks.size(); ++block) {
    const auto* weights = reinterpret_cast<const float*>(state[3 * block].data());  // then m and v
    for (const TensorPiece& piece : training.graph().blocks[block].pieces) {
      for (std::int64_t i = piece.begin; i < piece.begin + piece.elements(); ++i)
        squares[name_in_file(piece.tensor)] += static_cast<double>(weights[i]) * weights[i];
    }
  }
  const auto& norms = numbers.at("final_param_norms");
  // Of a checkpoint around a language model the other tensors are not trained.
  EXPECT_EQ(squares.size() + numbers.value("untrained_tensors", std::size_t{0}), norms.size());
  double worst = 0;
  for (const auto& [tensor, norm] : norms.items()) {
    if (!squares.contains(tensor) && numbers.contains("untrained_tensors")) continue;
    const double error = std::abs(std::sqrt(squares[tensor]) / norm.get<double>() - 1);
    EXPECT_LE(error, has_key_bias(tensor) ? 2e-3 : 1e-4) << tensor;
    if (!has_key_bias(tensor)) worst = std::max(worst, error);
  }
  std::printf("%s: parameter norms within %.1e\n", GetParam().c_str(), worst);
}

}  // namespace
}  // namespace spillway
