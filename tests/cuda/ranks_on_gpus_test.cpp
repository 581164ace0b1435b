// Ranks with an emulated GPU each: whatever is sharded, wherever it rests and is updated, and however late a device or a rank is,
// the bits are those of as many ranks that each have everything on their GPU.
// Not here: the command on several GPUs (tests/command/gpu_ranks_test.py), the kernels alone (rank_kernels_test.cpp).
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "models/cuda/cuda_scratch.h"
#include "tests/collectives/late_transport.h"
#include "tests/memory/drawn_choices.h"
#include "tests/offload/small_training.h"

namespace spillway {
namespace {

constexpr int kSteps = 2;

class RanksOnGpus : public testing::Test {
 protected:
  RanksOnGpus() : model_("llama_gqa", DType::bfloat16, 1, 12, 1, std::nullopt, cuda::scratch_bytes) {
    ::setenv("SPILLWAY_SIMT_DEVICES", "4", 1);
    model_.other_device = [this] {
      ::setenv("SPILLWAY_SIMT_SEED", std::to_string(seed_).c_str(), 1);
      const auto gpus = std::ssize(find_gpus().usable);  // a machine with one shares it
      return make_cuda_device(static_cast<int>(next_device_++ % gpus));
    };
    directory_ = std::filesystem::temp_directory_path() / fmt::format("spillway_gpu_ranks_{}", ::getpid());
    std::filesystem::create_directories(directory_);
  }
  ~RanksOnGpus() override {
    ::unsetenv("SPILLWAY_SIMT_DEVICES");
    std::filesystem::remove_all(directory_);
  }

  Choices choices(int ranks, StateForm form, bool clip) const {
    Choices choices = uniform_choices(model_, 0, form, 2, clip, Tier::device);
    choices.chain = Chain::device_host_nvme;
    choices.update_tier = Tier::device;
    choices.sharding = {.ranks = ranks, .group = ranks, .stage = 0};
    set_all(choices.units, &UnitPlace::spill, Tier::host);
    return choices;
  }
  Result trained(const Choices& choices) {
    const std::string directory = fmt::format("{}/{}", directory_.string(), count_++);
    std::filesystem::create_directory(directory);
    next_device_ = 0;
    SmallTraining training(model_, plan_of(model_, choices), directory);
    training.set_around([seed = seed_](Transport& inner, TeamChannel) {
      return std::make_unique<LateTransport>(inner, static_cast<std::uint64_t>(seed));
    });
    training.load_weights();
    return training.train(kSteps);
  }

  SmallModel model_;
  int seed_ = 0, next_device_ = 0, count_ = 0;
  std::filesystem::path directory_;
};

TEST_F(RanksOnGpus, BitsDoNotDependOnWhatIsShardedOrWhereItRests) {
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    Draw draw(seed);
    const int ranks = 2 + draw.up_to(2);
    const StateForm form = draw.any(StateForm::exact, StateForm::compact);
    const UpdateTime update = draw.any(UpdateTime::after, UpdateTime::in_backward, UpdateTime::in_next_forward);
    const bool clip = update != UpdateTime::in_backward && draw.any(false, true);
    const Choices plain = choices(ranks, form, clip);
    Choices of = plain;
    of.sharding.stage = draw.any(0, 2, 3);
    of.sharding.group = ranks == 4 ? draw.any(4, 2) : ranks;
    of.update = update;
    of.update_tier = draw.any(Tier::device, Tier::host);
    of.ahead = draw.any(0 * kKiB, 512 * kKiB);
    of.slots = draw.any(1, 2);
    if (draw.any(false, true)) set_group(of, 1);
    for (UnitPlace& place : of.units)
      place = {draw.any(Saved::keep, Saved::recompute, Saved::spill), draw.any(Boundary::keep, Boundary::spill),
               draw.any(Tier::host, Tier::nvme)};
    for (BlockPlace& place : of.blocks) {
      place.optimizer = draw.any(Tier::device, Tier::host, Tier::nvme);
      place.weight = place.optimizer == Tier::device ? Tier::device : draw.any(Tier::device, place.optimizer);
      place.gradient = of.update_tier == Tier::host ? Tier::host : draw.any(Tier::device, Tier::host);
    }
    SCOPED_TRACE(fmt::format("seed {}: ranks {} group {} stage {} {} {} on {} slots {} ahead {} clip {}", seed, ranks,
                             of.sharding.group, of.sharding.stage, order_words(of), name_of(update), name_of(of.update_tier),
                             of.slots, of.ahead, clip));
    seed_ = static_cast<int>(seed);
    const Result ours = trained(of), in_core = trained(plain);
    EXPECT_EQ(ours.losses, in_core.losses);
    EXPECT_EQ(ours.norms, in_core.norms);
    EXPECT_TRUE(ours.state == in_core.state);
    if (HasFailure()) break;
  }
}

// A loss that is not finite stops all ranks at the same step, in the words of one rank.
TEST_F(RanksOnGpus, StopTogether) {
  for (const int stage : {0, 3}) {
    Choices of = choices(2, StateForm::exact, true);
    of.sharding.stage = stage;
    next_device_ = 0;
    SmallTraining training(model_, plan_of(model_, of), directory_.string());
    training.load_weights();
    StepSettings settings = training.settings(1);
    settings.counted_tokens = 0;
    training.executor().submit(settings, training.data().of_step(0));
    const StepOutcome lost = training.executor().wait();
    EXPECT_EQ(lost.stopped, "the loss is infinite");
    EXPECT_TRUE(lost.state_intact);
  }
}

}  // namespace
}  // namespace spillway
