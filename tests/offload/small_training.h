// Trains a small model under any plan and returns everything that no plan may change: losses, norms, the state to the bit.
// Not here: options, data files and checkpoints; the command's tests go through those.
//
// Legend: n rows (tokens) of a micro-batch = B sequences x T tokens, P elements of a block.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "memory/passes/packing.h"
#include "memory/passes/schedule.h"
#include "memory/passes/validate.h"
#include "memory/passes/waits.h"
#include "memory/runtime/arena.h"
#include "memory/search/planner.h"
#include "models/build.h"
#include "models/catalogue/catalogue.h"
#include "models/cpu/cpu_backend.h"
#include "models/cpu/cpu_scratch.h"
#include "models/weights_io.h"
#include "nvme/store.h"
#include "offload/executor.h"
#include "offload/host_adamw.h"
#include "tests/golden.h"
#include "tests/memory/order.h"

namespace spillway {

inline MachineProfile made_up_machine() {
  return {.name = "made up",
          .threads = 2,
          .gemm_bf16_flops = 4e11,
          .gemm_fp32_flops = 2e11,
          .attention_bf16_flops = 3e11,
          .attention_fp32_flops = 1.5e11,
          .memory_bytes = 5e10,
          .update_bytes = 4e10,
          .nvme_read_bytes = 1.5e9,
          .nvme_write_bytes = 1.2e9,
          .nvme_mixed_read_bytes = 8e8,
          .nvme_mixed_write_bytes = 7e8};
}

// A model compiled both ways, with its thread pool and backend.
struct SmallModel {
  SmallModel(const std::string& golden, DType dtype, std::int64_t micro_batch, std::int64_t sequence, int threads = 2,
             std::optional<Cuts> cuts = std::nullopt, ScratchBound scratch = {})
      : resolved(resolve_model(golden_directory(golden))), pool(threads), backend(pool) {
    const auto compile = [&](HeadMode head) {
      const BuildOptions options{.dtype = dtype,
                                 .micro_batch = micro_batch,
                                 .sequence = sequence,
                                 .head = head,
                                 .scratch = scratch ? scratch : cpu_scratch_bound(traits_of_this_cpu(threads))};
      return build_model_with_cuts(resolved.config, options, cuts.value_or(canonical_cuts(resolved.config)));
    };
    tiled = compile(HeadMode::tiled);
    fused = compile(HeadMode::fused);
  }
  GraphCandidates graphs() const { return {&tiled.graph, &fused.graph}; }
  const CompiledModel& of(const Plan& plan) const { return plan.choices.graph == 0 ? tiled : fused; }
  std::unique_ptr<Device> make_device(Chain chain) const {
    if (other_device) return other_device();
    return make_cpu_device(around ? *around : static_cast<Backend&>(backend), chain);
  }

  ResolvedModel resolved;
  ThreadPool pool;
  mutable CpuBackend backend;
  std::unique_ptr<Backend> around;                        // used in place of `backend`, where a test looks at the calls
  std::function<std::unique_ptr<Device>()> other_device;  // makes a device in place of the CPU; workspaces are for its kernels
  CompiledModel tiled, fused;
};

// Tokens that are a function of their place; every seventh position has no loss.
struct SmallData {
  std::int64_t rows = 0, vocabulary = 0;
  int micro_batches = 1;

  FillTokens of_step(std::int64_t step) const {
    return [this, step](int mb, const MicroBatchRows& filled) {
      for (std::int64_t i = 0; i < rows; ++i) {
        const std::int64_t at = ((step * micro_batches + mb) * rows + i) % 96;
        filled.tokens[i] = static_cast<std::int32_t>(at * at * 31 % vocabulary);
        filled.targets[i] = at % 7 == 3 ? -100 : static_cast<std::int32_t>((at + 1) * (at + 1) * 31 % vocabulary);
      }
    };
  }
  std::int64_t counted(std::int64_t step) const {
    std::int64_t count = 0;
    std::vector<std::int32_t> tokens(rows), targets(rows);
    for (int mb = 0; mb < micro_batches; ++mb) {
      of_step(step)(mb, {.tokens = tokens, .targets = targets});
      for (const std::int32_t target : targets) count += target >= 0;
    }
    return count;
  }
};

struct Result {
  std::vector<double> losses, norms;
  std::vector<std::vector<std::byte>> state;  // [blocks x kinds], without padding to pages
  bool operator==(const Result&) const = default;
};

// An executor with its store, over a plan.
class SmallTraining {
 public:
  SmallTraining(const SmallModel& model, Plan plan, const std::string& directory, const StoreOptions& store = {})
      : model_(model), plan_(std::move(plan)), data_(data_of_plan()) {
    validate(plan_, graph());
    for (int rank = 0; rank < ranks() && plan_.peak[Tier::nvme] > 0; ++rank) {
      StoreOptions options = store;
      options.directories = {{rank == 0 ? directory : directory + "/rank-" + std::to_string(rank), 0}};
      std::filesystem::create_directories(options.directories.front().path);
      options.bytes = plan_.peak[Tier::nvme];
      own_stores_.push_back(std::make_unique<Store>(std::move(options)));
      stores_.push_back(own_stores_.back().get());
    }
    make_executor();
  }

  using Around = std::function<std::unique_ptr<Transport>(Transport&, TeamChannel)>;

  // Keeps its state in stores that outlive it: [ranks] of each.
  SmallTraining(const SmallModel& model, Plan plan, std::vector<Store*> stores, std::vector<const DurabilityOptions*> durability,
                Around around = {})
      : model_(model),
        plan_(std::move(plan)),
        data_(data_of_plan()),
        around_(std::move(around)),
        stores_(std::move(stores)),
        durability_(std::move(durability)) {
    validate(plan_, graph());
    make_executor();
  }
  SmallTraining(const SmallModel& model, Plan plan, Store& store, const DurabilityOptions& durability)
      : SmallTraining(model, std::move(plan), {&store}, {&durability}) {}

  const Plan& plan() const { return plan_; }
  const UnitGraph& graph() const { return model_.of(plan_).graph; }
  const SmallData& data() const { return data_; }
  Executor& executor() { return *executor_; }
  void end() { executor_.reset(); }
  const Store& store() const { return *stores_.front(); }
  int ranks() const { return plan_.choices.sharding.ranks; }

  // The weights of the model's directory, times `scale`; fresh moments.
  void load_weights(float scale = 1) {
    const SafetensorsReader reader(model_.resolved.directory);
    for (int block = 0; block < static_cast<int>(graph().blocks.size()); ++block) {
      const std::int64_t elements = graph().blocks[block].elements;
      std::vector<float> master(static_cast<std::size_t>(elements));
      read_block_range(reader, graph().blocks[block], 0, master);
      for (float& value : master) value *= scale;
      const Arena staging(round_up(4 * elements, kExtentAlignment), "weights");
      if (plan_.choices.form == StateForm::fp32) {
        std::memcpy(staging.data(), master.data(), 4 * master.size());
        write(block, StateKind::weight, staging);
        continue;
      }
      for (std::int64_t i = 0; i < elements; ++i) reinterpret_cast<BFloat16*>(staging.data())[i] = split_master(master[i]).high;
      write(block, StateKind::weight, staging);
      for (std::int64_t i = 0; i < elements; ++i)
        reinterpret_cast<std::int16_t*>(staging.data())[i] = split_master(master[i]).low;
      write(block, StateKind::low, staging);
    }
  }

  StepSettings settings(std::int64_t step) const {  // from 1
    return {.adamw = {.step = step, .lr = 3e-3, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1},
            .clip = plan_.choices.clip ? clip_ : 0.0,
            .counted_tokens = data_.counted(step - 1)};
  }
  void submit(std::int64_t step) { executor_->submit(settings(step), data_.of_step(step - 1)); }
  void set_clip(double clip) { clip_ = clip; }
  void set_ahead(std::size_t ahead) {  // begins anew
    executor_.reset();
    ahead_ = ahead;
    make_executor();
  }
  // Puts a transport around each rank's. Begins anew.
  void set_around(Around around) {
    executor_.reset();
    around_ = std::move(around);
    make_executor();
  }
  // Heard at the next set_around().
  void set_say(std::function<void(const std::string&)> say, std::chrono::milliseconds patience) {
    say_ = std::move(say);
    patience_ = patience;
  }
  // A step that may be taken back must be over before the next begins.
  bool pipelines() const { return !(plan_.choices.update == UpdateTime::in_backward && plan_.choices.clip); }

  // Steps 1 to `steps`, two under way where they may be; then the state.
  Result train(std::int64_t steps) {
    Result result;
    std::int64_t submitted = 0;
    for (std::int64_t step = 1; step <= steps; ++step) {
      while (submitted < std::min(steps, pipelines() ? step + 1 : step)) submit(++submitted);
      last_ = executor_->wait();
      EXPECT_EQ(last_.step, step);
      EXPECT_EQ(last_.stopped, "");
      result.losses.push_back(last_.loss);
      result.norms.push_back(last_.grad_norm);
    }
    result.state = state();
    return result;
  }
  const StepOutcome& last() const { return last_; }

  std::vector<std::vector<std::byte>> state() {
    executor_->flush();
    std::vector<std::vector<std::byte>> arrays;
    Bytes most = 0;
    for (const ParameterBlock& block : graph().blocks) most = std::max(most, 4 * block.elements);
    const Arena staging(most, "state");
    for (int block = 0; block < static_cast<int>(graph().blocks.size()); ++block) {
      for (const StateArray& array : plan_.blocks[block].state) {
        const Bytes bytes = graph().blocks[block].elements * array.each();
        executor_->read_state(block, array.kind, 0, {staging.data(), static_cast<std::size_t>(bytes)});
        arrays.emplace_back(staging.data(), staging.data() + bytes);
      }
    }
    return arrays;
  }

 private:
  SmallData data_of_plan() const { return {graph().rows, model_.resolved.config.vocab, ranks() * plan_.choices.micro_batches}; }

  void make_executor() {
    devices_.clear();
    std::vector<RankResources> ranks;
    for (std::size_t rank = 0; rank < static_cast<std::size_t>(this->ranks()); ++rank) {
      const bool is_given = rank == 0 || model_.other_device;  // a backend that is looked at is rank 0's
      devices_.push_back(is_given ? model_.make_device(plan_.choices.chain) : make_cpu_device(model_.pool, plan_.choices.chain));
      ranks.push_back({devices_.back().get(), &model_.pool, stores_.empty() ? nullptr : stores_[rank],
                       durability_.empty() ? nullptr : durability_[rank]});
    }
    executor_.emplace(ExecutorOptions{.plan = &plan_,
                                      .model = &model_.of(plan_),
                                      .evaluation = plan_.evaluate.ops.empty() ? nullptr : &model_.tiled,
                                      .rank = ranks.front(),
                                      .other_ranks = {ranks.begin() + 1, ranks.end()},
                                      .around_transport = around_,
                                      .say = say_,
                                      .patience = patience_,
                                      .seed = 77,
                                      .ahead = ahead_});
  }

  void write(int block, StateKind kind, const Arena& staging) {
    const Bytes bytes = graph().blocks[block].elements * plan_.blocks[block].find(kind)->each();
    executor_->write_state(block, kind, 0, {staging.data(), static_cast<std::size_t>(bytes)});
  }

  const SmallModel& model_;
  const Plan plan_;
  SmallData data_;
  double clip_ = 4.4;
  std::size_t ahead_ = 64;
  Around around_;
  std::function<void(const std::string&)> say_;
  std::chrono::milliseconds patience_{10'000};
  std::vector<std::unique_ptr<Store>> own_stores_;
  std::vector<Store*> stores_;                        // [ranks] where the plan uses NVMe
  std::vector<const DurabilityOptions*> durability_;  // [ranks] where state is durable
  StepOutcome last_;
  std::vector<std::unique_ptr<Device>> devices_;  // [ranks]
  std::optional<Executor> executor_;              // last: it uses the others
};

// Makes a plan from given choices, without a search.
inline Plan plan_of(const SmallModel& model, const Choices& choices, bool evaluates = false) {
  Plan plan = build_schedule(graph_of(model.graphs(), choices), choices);
  if (evaluates) plan.evaluate = build_evaluation(model.tiled.graph, plan);
  pack(plan);
  derive_waits(plan);
  return plan;
}

// Everything on one tier: on the device, the plain reference.
inline Choices uniform_choices(const SmallModel& model, int graph, StateForm form, int micro_batches, bool clip, Tier tier) {
  Choices choices;
  choices.graph = graph;
  choices.micro_batches = micro_batches;
  choices.clip = clip;
  choices.form = form;
  choices.slots = tier == Tier::nvme ? 2 : 1;
  const UnitGraph& units = graph_of(model.graphs(), choices);
  choices.ahead = 2 * largest_weights(units, form);
  choices.blocks.assign(units.blocks.size(), {tier, tier, tier});
  choices.units.assign(units.units.size(),
                       {tier == Tier::nvme ? Saved::spill : Saved::keep, tier == Tier::nvme ? Boundary::spill : Boundary::keep});
  return choices;
}

}  // namespace spillway
