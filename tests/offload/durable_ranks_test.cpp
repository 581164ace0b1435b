// Steps of several ranks are durable: whichever rank ends at whichever commit, before or behind its word to the others, all have
// a step in common, and the run goes on there with the bits of one that never stopped.
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <limits>

#include "memory/base/error.h"
#include "nvme/commit_log.h"
#include "tests/collectives/late_transport.h"
#include "tests/offload/small_training.h"

namespace spillway {
namespace {

constexpr int kRanks = 3;
constexpr std::int64_t kSteps = 6;

// Ends at the call with this number, from 1: before the others hear of this rank's record, or once all have heard.
class EndingTransport final : public PassingTransport {
 public:
  enum class When { before, behind };
  EndingTransport(Transport& inner, int call, When when) : PassingTransport(inner), left_(call), when_(when) {}
  void exchange(std::span<const Send> sends, std::span<const Receive> receives) override {
    const bool ends = --left_ == 0;
    if (ends && when_ == When::before) throw IoError("the power is gone");
    inner_.exchange(sends, receives);
    if (ends) throw IoError("the power is gone");
  }

 private:
  int left_;
  When when_;
};

class DurableRanks : public ::testing::Test {
 protected:
  DurableRanks() {
    std::string pattern = ::testing::TempDir() + "durable_ranks_XXXXXX";
    directory_ = mkdtemp(pattern.data());
  }
  ~DurableRanks() override { std::filesystem::remove_all(directory_); }

  Plan plan_for(int stage, UpdateTime update, Tier weights) const {
    Choices choices = uniform_choices(model_, 1, StateForm::exact, 2, true, Tier::nvme);
    choices.sharding = {.ranks = kRanks, .group = kRanks, .stage = stage};
    choices.update = update;
    choices.durable_every = 1;
    set_order(choices, Order::vertical);
    set_all(choices.blocks, &BlockPlace::weight, weights);
    return plan_of(model_, choices);
  }

  std::string directory_of(int rank) const { return fmt::format("{}/{}", directory_, rank); }

  // The stores of all ranks, fresh or as they were left, and how to go on with them.
  struct Stores {
    std::vector<std::unique_ptr<Store>> stores;
    std::vector<DurabilityOptions> durability;
    std::vector<Store*> pointers() const {
      std::vector<Store*> all;
      for (const auto& store : stores) all.push_back(store.get());
      return all;
    }
    std::vector<const DurabilityOptions*> options() const {
      std::vector<const DurabilityOptions*> all;
      for (const DurabilityOptions& of : durability) all.push_back(&of);
      return all;
    }
  };
  Stores open(const Plan& plan, StoreContent content) const {
    Stores all;
    for (int rank = 0; rank < kRanks; ++rank) {
      const DurableLayout layout = durable_layout(plan, model_.of(plan).graph, rank);
      std::filesystem::create_directories(directory_of(rank));
      StoreOptions options;
      options.directories = {{directory_of(rank), 0}};
      options.bytes = layout.store_bytes;
      options.content = content;
      options.identity = StoreIdentity{.store_id = 11,
                                       .rank = rank,
                                       .ranks = kRanks,
                                       .records_begin = layout.records_begin,
                                       .place_bytes = layout.place_bytes};
      if (content == StoreContent::existing) options.identity = identify_store({{directory_of(rank)}});
      all.stores.push_back(std::make_unique<Store>(std::move(options)));
      all.stores.back()->keep();
      all.durability.push_back({.identity = identify_store({{directory_of(rank)}}), .layout = layout, .interval = 1, .from = {}});
    }
    return all;
  }

  // Runs until a rank ends at a commit; returns the last step that was given out, -1 where the run could not begin.
  std::int64_t run_to_the_end_of(int ending, int call, EndingTransport::When when, const Plan& plan) {
    const Stores stores = open(plan, StoreContent::fresh);
    const auto around = [&](Transport& inner, TeamChannel channel) -> std::unique_ptr<Transport> {
      if (channel != TeamChannel::commits || inner.rank() != ending) return std::make_unique<PassingTransport>(inner);
      return std::make_unique<EndingTransport>(inner, call, when);
    };
    SmallTraining small(model_, plan, stores.pointers(), stores.options(), around);
    small.load_weights();
    std::int64_t step = -1;
    try {
      small.executor().hold_state(0);
      for (step = 0; step < kSteps; ++step) {
        small.submit(step + 1);
        EXPECT_EQ(small.executor().wait().stopped, "");
      }
      ADD_FAILURE() << "no rank ended";
    } catch (const IoError& error) {
      EXPECT_STREQ(error.what(), "the power is gone");
    }
    return step;
  }

  // Finds the step that all have, and goes on there.
  Result go_on(const Plan& plan, std::int64_t given_out) {
    Stores stores = open(plan, StoreContent::existing);
    std::vector<std::vector<CommitRecord>> records;
    std::int64_t newest = std::numeric_limits<std::int64_t>::max(), farthest = 0;
    for (int rank = 0; rank < kRanks; ++rank) {
      const auto at = static_cast<std::size_t>(rank);
      records.push_back(CommitLog(*stores.stores[at], stores.durability[at].identity).records());
      newest = std::min(newest, records.back().front().step);
      farthest = std::max(farthest, records.back().front().step);
    }
    EXPECT_LE(farthest - newest, 1) << "records of ranks are more than a step apart";
    EXPECT_GE(newest, given_out - 1) << "more is lost than the step under way";
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      const auto found = std::ranges::find(records[rank], newest, &CommitRecord::step);
      if (found == records[rank].end()) {
        ADD_FAILURE() << "rank " << rank << " has no record of step " << newest;
        return {};
      }
      stores.durability[rank].from = *found;
    }
    SmallTraining small(model_, plan, stores.pointers(), stores.options());
    Result result;
    for (std::int64_t step = newest + 1; step <= kSteps; ++step) {
      small.submit(step);
      const StepOutcome outcome = small.executor().wait();
      result.losses.push_back(outcome.loss);
      // No record of a step beyond is left that another rank does not have.
      for (std::size_t rank = 0; rank < kRanks && step == newest + 1; ++rank) {
        EXPECT_LE(CommitLog(*stores.stores[rank], stores.durability[rank].identity).newest()->step, newest + 1);
      }
    }
    result.state = small.state();
    return result;
  }

  const SmallModel model_{"llama_gqa", DType::bfloat16, 1, 16};
  std::string directory_;
};

TEST_F(DurableRanks, GoOnWhereverOneEnds) {
  struct Shape {
    int stage;
    UpdateTime update;
    Tier weights;
  };
  for (const Shape& of : {Shape{3, UpdateTime::in_next_forward, Tier::nvme}, Shape{2, UpdateTime::after, Tier::nvme},
                          Shape{1, UpdateTime::in_next_forward, Tier::device}, Shape{0, UpdateTime::after, Tier::device}}) {
    const Plan plan = plan_for(of.stage, of.update, of.weights);
    Choices in_core = uniform_choices(model_, 1, StateForm::exact, 2, true, Tier::device);
    in_core.sharding = {.ranks = kRanks, .group = kRanks, .stage = 0};
    SmallTraining plain(model_, plan_of(model_, in_core), directory_);
    plain.load_weights();
    const Result whole = plain.train(kSteps);
    for (const auto when : {EndingTransport::When::before, EndingTransport::When::behind}) {
      for (int call = 2; call <= 5; ++call) {
        const int ending = call % kRanks;
        SCOPED_TRACE(fmt::format("stage {} {}: rank {} ends {} commit {}", of.stage, name_of(of.update), ending,
                                 when == EndingTransport::When::before ? "before" : "behind", call));
        const std::int64_t given_out = run_to_the_end_of(ending, call, when, plan);
        const Result rest = go_on(plan, given_out);
        EXPECT_TRUE(std::ranges::equal(rest.losses, std::span(whole.losses).last(rest.losses.size())));
        EXPECT_TRUE(rest.state == whole.state);
        for (int rank = 0; rank < kRanks; ++rank) std::filesystem::remove_all(directory_of(rank));
        if (HasFailure()) return;
      }
    }
  }
}

}  // namespace
}  // namespace spillway
