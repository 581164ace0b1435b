// Several ranks of one process: whatever is sharded, wherever it rests and whoever is late, the bits are those of as many ranks
// that each have everything on their device.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <mutex>
#include <thread>

#include "memory/base/error.h"
#include "tests/collectives/late_transport.h"
#include "tests/memory/drawn_choices.h"
#include "tests/nvme/faulty_queue.h"
#include "tests/offload/small_training.h"

namespace spillway {
namespace {

constexpr std::int64_t kSequence = 16, kSteps = 3;

class Ranks : public ::testing::Test {
 protected:
  Ranks() {
    std::string pattern = ::testing::TempDir() + "ranks_XXXXXX";
    directory_ = mkdtemp(pattern.data());
  }
  ~Ranks() override { std::filesystem::remove_all(directory_); }

  std::string new_directory() {
    const std::string path = fmt::format("{}/{}", directory_, count_++);
    std::filesystem::create_directory(path);
    return path;
  }

  Choices choices(int ranks, int micro_batches, StateForm form = StateForm::exact, bool clip = true) const {
    Choices choices = uniform_choices(model_, 1, form, micro_batches, clip, Tier::device);
    choices.sharding = {.ranks = ranks, .group = ranks, .stage = 0};
    set_order(choices, Order::vertical);
    return choices;
  }

  Result train(const Choices& choices, std::optional<std::uint64_t> late = std::nullopt) {
    SmallTraining training(model_, plan_of(model_, choices), new_directory());
    if (late)
      training.set_around([seed = *late](Transport& inner, TeamChannel) { return std::make_unique<LateTransport>(inner, seed); });
    training.load_weights();
    return training.train(kSteps);
  }

  const SmallModel model_{"llama_gqa", DType::bfloat16, 1, kSequence};
  std::string directory_;
  int count_ = 0;
};

// The same step with everything on each rank's device, in the plainest order.
Choices plain_of(const Choices& choices) {
  Choices plain = choices;
  plain.sharding.stage = 0;
  plain.sharding.group = plain.sharding.ranks;
  plain.slots = 1;
  plain.durable_every = 0;
  plain.update = UpdateTime::after;
  plain.ahead = 0;
  set_all(plain.blocks, &BlockPlace::deferred, Deferred::no);
  for (const auto tier : {&BlockPlace::weight, &BlockPlace::optimizer, &BlockPlace::gradient})
    set_all(plain.blocks, tier, Tier::device);
  for (UnitPlace& place : plain.units) place = {Saved::keep, Boundary::keep, Tier::nvme};
  set_group(plain, 1);
  return plain;
}

TEST_F(Ranks, BitsDoNotDependOnWhatIsShardedOrWhereItRests) {
  for (std::uint64_t seed = 0; seed < 24; ++seed) {
    Draw draw(seed);
    const int ranks = 1 + draw.up_to(3), micro_batches = draw.any(1, 2, 4);
    const StateForm form = draw.any(StateForm::exact, StateForm::compact);
    const UpdateTime update = draw.any(UpdateTime::after, UpdateTime::in_backward, UpdateTime::in_next_forward);
    const bool clip = update != UpdateTime::in_backward || draw.any(false, true);
    Choices of = choices(ranks, micro_batches, form, clip);
    of.sharding.stage = draw.any(0, 1, 2, 3);
    of.sharding.group = ranks == 4 ? draw.any(4, 2, 1) : ranks;
    of.update = update;
    of.ahead = draw.any(0 * kKiB, 512 * kKiB, 4 * kMiB);
    of.update_chunk = draw.any(4096, 1 << 20);
    if (draw.any(false, true)) set_group(of, 1);
    for (UnitPlace& place : of.units)
      place = {draw.any(Saved::keep, Saved::recompute, Saved::spill), draw.any(Boundary::keep, Boundary::spill), Tier::nvme};
    const bool takes_back = speculates(of);
    of.slots = takes_back ? 2 : draw.any(1, 2);
    for (BlockPlace& place : of.blocks) {
      place.optimizer = takes_back ? Tier::nvme : draw.any(Tier::device, Tier::nvme);
      place.weight = takes_back                        ? Tier::nvme
                     : place.optimizer == Tier::device ? Tier::device
                                                       : draw.any(Tier::device, Tier::nvme);
      place.gradient = draw.any(Tier::device, Tier::nvme);
    }
    SCOPED_TRACE(fmt::format("seed {}: ranks {} group {} stage {} micro-batches {} {} {} slots {} ahead {} clip {}", seed, ranks,
                             of.sharding.group, of.sharding.stage, micro_batches, order_words(of), name_of(update), of.slots,
                             of.ahead, clip));
    const Result ours = train(of, seed), plain = train(plain_of(of));
    EXPECT_EQ(ours.losses, plain.losses);
    EXPECT_EQ(ours.norms, plain.norms);
    EXPECT_TRUE(ours.state == plain.state);
    if (HasFailure()) break;
  }
}

// The sums of ranks are rounded where one rank's would be: close, and for the first loss the same.
TEST_F(Ranks, TrainAsOneRankDoes) {
  const Result one = train(choices(1, 4));
  for (const int ranks : {2, 4}) {
    Choices of = choices(ranks, 4 / ranks);
    of.sharding.stage = 3;
    const Result several = train(of);
    EXPECT_EQ(several.losses[0], one.losses[0]);
    for (std::size_t step = 0; step < one.losses.size(); ++step) {
      EXPECT_NEAR(several.losses[step], one.losses[step], 1e-4 * one.losses[step]);
      EXPECT_NEAR(several.norms[step], one.norms[step], 1e-4 * one.norms[step]);
    }
  }
}

TEST_F(Ranks, EvaluateAMicroBatchEach) {
  Choices of = choices(2, 1);
  for (const int stage : {0, 3}) {
    of.sharding.stage = stage;
    SmallTraining two(model_, plan_of(model_, of, true), new_directory());
    SmallTraining one(model_, plan_of(model_, choices(1, 1), true), new_directory());
    two.load_weights(), one.load_weights();
    const FillTokens fill = two.data().of_step(5);
    const double of_first = one.executor().evaluate(fill);
    const double of_second = one.executor().evaluate([&](int, const MicroBatchRows& rows) { fill(1, rows); });
    EXPECT_EQ(two.executor().evaluate(fill), of_first + of_second);
  }
}

// Bytes sent in a step, summed over ranks, are the closed form: 4 bytes a parameter and rank for a sum to parts, 2 for a gather
// of bf16 weights, and control words.
TEST_F(Ranks, SendWhatTheClosedFormSays) {
  for (const int ranks : {2, 3, 4}) {
    for (const int stage : {0, 1, 2, 3}) {
      Choices of = choices(ranks, 2);
      of.sharding.stage = stage;
      SmallTraining training(model_, plan_of(model_, of), new_directory());
      training.load_weights();
      training.train(2);
      Bytes gathers = 0, sums = 0, words = 0;
      for (const Op& op : training.plan().step.ops) {
        if (op.lane != Lane::network) continue;
        if (op.block < 0) {
          words += op.bytes * ranks;
          continue;
        }
        const Bytes elements = training.graph().blocks[op.block].elements;
        (op.kind == OpKind::gather ? gathers : sums) += elements * (ranks - 1);
      }
      Bytes parameters = 0;
      for (const ParameterBlock& block : training.graph().blocks) parameters += block.elements * (ranks - 1);
      EXPECT_EQ(sums, parameters);
      if (stage == 1 || stage == 2) {
        EXPECT_EQ(gathers, parameters);
      }
      EXPECT_EQ(training.last().moved[Lane::network], (stage == 0 ? 8 : 4) * sums + 2 * gathers + words) << ranks << " " << stage;
    }
  }
}

// A transport of rank 1 whose n-th call comes late by far more than the patience.
class OnceLate final : public PassingTransport {
 public:
  using PassingTransport::PassingTransport;
  void exchange(std::span<const Send> sends, std::span<const Receive> receives) override {
    if (rank() == 1 && ++calls_ == 5) std::this_thread::sleep_for(std::chrono::milliseconds(600));
    inner_.exchange(sends, receives);
  }

 private:
  int calls_ = 0;
};

TEST_F(Ranks, WhoIsWaitedForIsTold) {
  Choices of = choices(2, 1);
  of.sharding.stage = 3;
  SmallTraining training(model_, plan_of(model_, of), new_directory());
  std::mutex mutex;
  std::vector<std::string> told;
  training.set_say(
      [&](const std::string& words) {
        const std::lock_guard lock(mutex);
        told.push_back(words);
      },
      std::chrono::milliseconds(200));
  training.set_around([](Transport& inner, TeamChannel) { return std::make_unique<OnceLate>(inner); });
  training.load_weights();
  training.train(1);
  training.end();
  ASSERT_EQ(told.size(), 1U);
  EXPECT_THAT(told.front(), testing::MatchesRegex("rank 0 has been in operation [0-9]+, .*, for 0 s, and waits for rank 1"));
}

// One rank's tokens make a loss that is not finite: all stop at that step, in the words of one rank, and keep the state before.
TEST_F(Ranks, StopTogetherWhereOneLossIsNotFinite) {
  for (const UpdateTime update : {UpdateTime::after, UpdateTime::in_next_forward}) {
    Choices of = choices(4, 2);
    of.sharding.stage = 3;
    of.update = update;
    SmallTraining training(model_, plan_of(model_, of), new_directory());
    training.set_around([](Transport& inner, TeamChannel) { return std::make_unique<LateTransport>(inner, 3); });
    training.load_weights();
    training.submit(1);
    EXPECT_EQ(training.executor().wait().stopped, "");
    StepSettings settings = training.settings(2);
    settings.counted_tokens = 0;
    training.executor().submit(settings, training.data().of_step(1));
    training.submit(3);
    const StepOutcome outcome = training.executor().wait();
    EXPECT_EQ(outcome.stopped, "the loss is infinite");
    EXPECT_TRUE(outcome.state_intact);
    training.executor().wait();  // of a step behind it, whose collectives have all come
    SmallTraining plain(model_, plan_of(model_, plain_of(of)), new_directory());
    plain.load_weights();
    plain.train(1);
    EXPECT_TRUE(training.state() == plain.state());
  }
}

// Only one rank has the token whose embedding is not a number: its loss is none, and all ranks stop for it.
TEST_F(Ranks, StopTogetherWhereOneRankAloneSeesIt) {
  for (const int stage : {0, 1, 3}) {
    Choices of = choices(2, 1);
    of.sharding.stage = stage;
    SmallTraining training(model_, plan_of(model_, of), new_directory());
    training.load_weights();
    std::vector<std::int32_t> tokens[2] = {std::vector<std::int32_t>(kSequence), std::vector<std::int32_t>(kSequence)},
                              targets = tokens[0];
    for (int rank = 0; rank < 2; ++rank) training.data().of_step(0)(rank, {.tokens = tokens[rank], .targets = targets});
    const auto alone =
        std::ranges::find_if(tokens[1], [&](std::int32_t token) { return std::ranges::count(tokens[0], token) == 0; });
    ASSERT_NE(alone, tokens[1].end());
    const std::vector<ParameterBlock>& blocks = training.graph().blocks;
    int spoilt = 0;
    for (int block = 0; block < std::ssize(blocks); ++block) {
      for (const TensorPiece& piece : blocks[static_cast<std::size_t>(block)].pieces) {
        const std::int64_t row = *alone - piece.row_begin;
        if (!blocks[static_cast<std::size_t>(block)].looked_up || row < 0 || row >= piece.rows) continue;
        const std::int64_t element = piece.begin + row * piece.columns, chunk = element / kBlockElements * kBlockElements;
        const Arena staging(2 * kBlockElements, "weights");
        const std::span<std::byte> data(staging.data(), 2 * kBlockElements);
        training.executor().read_state(block, StateKind::weight, chunk, data);
        reinterpret_cast<std::uint16_t*>(data.data())[element - chunk] = 0x7fc0;  // NaN
        training.executor().write_state(block, StateKind::weight, chunk, data);
        ++spoilt;
      }
    }
    ASSERT_EQ(spoilt, 1);
    training.submit(1);
    const StepOutcome outcome = training.executor().wait();
    EXPECT_EQ(outcome.stopped, "the loss is NaN");
    EXPECT_TRUE(outcome.state_intact);
  }
}

// A weight that is not a number on one rank's part: the norm tells all ranks.
TEST_F(Ranks, StopTogetherWhereOneGradientIsNotFinite) {
  for (const int stage : {0, 2, 3}) {
    Choices of = choices(2, 1);
    of.sharding.stage = stage;
    SmallTraining training(model_, plan_of(model_, of), new_directory());
    training.load_weights(1e18F);
    training.submit(1);
    const StepOutcome outcome = training.executor().wait();
    EXPECT_NE(outcome.stopped, "") << stage;
    EXPECT_TRUE(outcome.state_intact);
  }
}

// The disk of one rank fails in the third step: everybody is woken, and the error is that of the disk.
TEST_F(Ranks, AnErrorOfOneEndsAllWithItsReason) {
  Choices of = choices(3, 2);
  of.sharding.stage = 3;
  set_all(of.blocks, &BlockPlace::optimizer, Tier::nvme);
  std::atomic<bool> breaks{false};
  int queues = 0;
  StoreOptions store;
  store.decorate = [&](std::unique_ptr<IoQueue> queue) -> std::unique_ptr<IoQueue> {
    FaultPlan faults;
    const bool is_of_rank_0 = queues++ == 0;
    faults.fault = [&breaks, is_of_rank_0](const IoRequest&, int) {
      return breaks && is_of_rank_0 ? Fault{Fault::Kind::error, 28} : Fault{};  // ENOSPC
    };
    return std::make_unique<FaultyQueue>(std::move(queue), faults);
  };
  SmallTraining training(model_, plan_of(model_, of), new_directory(), store);
  training.load_weights();
  training.train(2);
  breaks = true;
  const auto go_on = [&] {
    for (std::int64_t step = 3; step < 6; ++step) {
      training.submit(step);
      training.executor().wait();
    }
  };
  try {
    go_on();
    ADD_FAILURE() << "went on without a disk";
  } catch (const AbortedError& error) {
    ADD_FAILURE() << "heard of, not told: " << error.what();
  } catch (const IoError& error) {
    EXPECT_NE(std::string(error.what()).find("No space left"), std::string::npos) << error.what();
  }
}

// A run that ends while steps are under way ends.
TEST_F(Ranks, EndWithStepsUnderWay) {
  Choices of = choices(4, 1);
  of.sharding.stage = 3;
  SmallTraining training(model_, plan_of(model_, of), new_directory());
  training.load_weights();
  training.submit(1);
  training.submit(2);
  training.end();
}

}  // namespace
}  // namespace spillway
