// Trainings whose steps are made durable in two directories, and comparison of a store's contents with the states of a run in
// core.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <map>

#include "memory/base/error.h"
#include "nvme/content_hash.h"
#include "tests/offload/small_training.h"

namespace spillway {

inline constexpr std::int64_t kSteps = 4, kSequence = 16;
inline constexpr int kMicroBatches = 2;

struct DurableCase {
  std::string name;
  Tier weights = Tier::nvme, optimizer = Tier::nvme;
  UpdateTime update = UpdateTime::after;
  bool clip = true;
  std::int64_t interval = 1;
  StateForm form = StateForm::exact;
  Order order = Order::vertical;
};

inline std::vector<DurableCase> durable_cases() {
  return {{"after", Tier::nvme, Tier::nvme, UpdateTime::after},
          {"in next forward", Tier::nvme, Tier::nvme, UpdateTime::in_next_forward},
          {"in backward, taken back", Tier::nvme, Tier::nvme, UpdateTime::in_backward},
          {"in backward", Tier::nvme, Tier::nvme, UpdateTime::in_backward, false},
          {"optimizer on the device", Tier::nvme, Tier::device, UpdateTime::after},
          {"weights on the device", Tier::device, Tier::nvme, UpdateTime::in_next_forward},
          {"weights on the device, every second step", Tier::device, Tier::nvme, UpdateTime::in_backward, false, 2},
          {"all on the device", Tier::device, Tier::device, UpdateTime::after},
          {"every third step", Tier::nvme, Tier::nvme, UpdateTime::in_next_forward, true, 3},
          {"every second step, compact", Tier::nvme, Tier::nvme, UpdateTime::after, true, 2, StateForm::compact},
          {.name = "after, in turns", .order = Order::horizontal},
          {.name = "in next forward, in turns", .update = UpdateTime::in_next_forward, .order = Order::horizontal},
          {.name = "taken back, in turns", .update = UpdateTime::in_backward, .order = Order::horizontal}};
}

class DurableTraining : public ::testing::Test {
 protected:
  DurableTraining() {
    const char* place = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    std::string pattern = std::string(place) + "/durability_XXXXXX";
    directory_ = mkdtemp(pattern.data());
    std::filesystem::create_directories(directory_ + "/a");
    std::filesystem::create_directories(directory_ + "/b");
  }
  ~DurableTraining() override { std::filesystem::remove_all(directory_); }

  Plan plan_for(const DurableCase& of) const {
    Choices choices = uniform_choices(model_, 1, of.form, kMicroBatches, of.clip, Tier::nvme);
    set_order(choices, of.order);
    choices.update = of.update;
    choices.durable_every = of.interval;
    set_all(choices.blocks, &BlockPlace::weight, of.weights);
    set_all(choices.blocks, &BlockPlace::optimizer, of.optimizer);
    return plan_of(model_, choices);
  }

  // The state after each step of an undisturbed run in core.
  const std::vector<std::uint64_t>& states(const DurableCase& of) {
    std::vector<std::uint64_t>& states = states_[{of.clip, of.form}];
    if (!states.empty()) return states;
    SmallTraining small(model_, plan_of(model_, uniform_choices(model_, 1, of.form, kMicroBatches, of.clip, Tier::device)),
                        directory_);
    small.load_weights();
    states.push_back(digest(small.state()));
    for (std::int64_t step = 1; step <= kSteps; ++step) {
      small.submit(step);
      small.executor().wait();
      states.push_back(digest(small.state()));
    }
    return states;
  }
  static std::uint64_t digest(const std::vector<std::vector<std::byte>>& arrays) {
    std::uint64_t digest = 0;
    for (const auto& array : arrays) digest = digest * 31 + content_hash(array);
    return digest;
  }

  // Digest of the state that the newest record names. Expects the record to be that of `step`, and every extent to have its
  // recorded hash.
  static std::uint64_t digest_of_record(Store& store, const StoreIdentity& identity, std::int64_t step) {
    CommitLog log(store, identity);
    const CommitRecord record = log.newest().value();
    EXPECT_EQ(record.step, step);
    std::uint64_t all = 0;
    auto hash = record.hashes.begin();
    for (const DurableArray& array : record.arrays) {
      const Arena staging(array.bytes, "array");
      const IoSegment segment{array.begin[static_cast<std::size_t>(array.slot)], staging.data(), array.bytes};
      log.read({&segment, 1});
      for (Bytes at = 0; at < array.bytes; at += array.extent_bytes) {
        const auto bytes = static_cast<std::size_t>(std::min(array.extent_bytes, array.bytes - at));
        EXPECT_EQ(extent_hash({staging.data() + at, bytes}), *hash) << array.name;
        all = all * 31 + *hash++;
      }
    }
    return all;
  }

  std::vector<std::string> directories() const { return {directory_ + "/a", directory_ + "/b"}; }
  std::vector<std::string> files() const { return {directory_ + "/a/spillway-store.bin", directory_ + "/b/spillway-store.bin"}; }

  StoreOptions store_options(const DurableLayout& layout) const {
    StoreOptions options;
    for (const std::string& directory : directories()) options.directories.push_back({directory, 0});
    options.bytes = layout.store_bytes;
    options.identity = StoreIdentity{.store_id = 11, .records_begin = layout.records_begin, .place_bytes = layout.place_bytes};
    return options;
  }

  // A fresh store, and a training on it whose state before the first step is durable.
  struct Begun {
    Begun(const DurableTraining& test, const DurableCase& of, const Plan& plan, std::int64_t interval, DirectIo direct)
        : durability{.identity = {},
                     .layout = durable_layout(plan, test.model_.of(plan).graph),
                     .interval = interval,
                     .from = {}},
          store(options_of(test, direct)),
          small(test.model_, plan, store, identified(test)) {
      small.load_weights();
      small.executor().hold_state(0);
      if (!of.clip) small.set_clip(0);
    }

    DurabilityOptions durability;
    Store store;
    SmallTraining small;

   private:
    StoreOptions options_of(const DurableTraining& test, DirectIo direct) const {
      StoreOptions options = test.store_options(durability.layout);
      options.direct = direct;
      return options;
    }
    const DurabilityOptions& identified(const DurableTraining& test) {
      durability.identity = identify_store(test.directories());
      return durability;
    }
  };

  const SmallModel model_{"llama_gqa", DType::bfloat16, 1, kSequence};
  std::string directory_;
  std::map<std::pair<bool, StateForm>, std::vector<std::uint64_t>> states_;
};

}  // namespace spillway
