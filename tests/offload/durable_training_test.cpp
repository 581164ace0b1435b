// Steps are made durable while training goes on: a hold, an end or damage meanwhile leaves the state of a step, to the bit.
#include <fstream>
#include <random>
#include <set>

#include "tests/offload/durable_training.h"

namespace spillway {
namespace {

// Steps go on beside a state that is held, and the store's record names that state until the hold ends.
TEST_F(DurableTraining, a_state_that_is_held_stays_while_steps_go_on) {
  for (const DurableCase& of : durable_cases()) {
    if (of.clip && of.update == UpdateTime::in_backward) continue;
    SCOPED_TRACE(of.name);
    const Plan plan = plan_for(of);
    Begun run(*this, of, plan, of.interval, DirectIo::automatic);
    SmallTraining& small = run.small;
    std::uint64_t held = 0;
    {
      small.submit(1);
      small.executor().wait();
      small.executor().flush();
      const StateHold hold = small.executor().hold_state(1);
      held = digest_of_record(run.store, run.durability.identity, 1);
      for (std::int64_t step = 2; step <= kSteps; ++step) {
        small.submit(step);
        small.executor().wait();
        EXPECT_EQ(digest_of_record(run.store, run.durability.identity, 1), held);
      }
    }
    EXPECT_EQ(digest(small.state()), states(of).at(kSteps));
    small.executor().hold_state(kSteps);
    EXPECT_NE(digest_of_record(run.store, run.durability.identity, kSteps), held);
  }
}

// A run ends between two steps that overlap: the step under way writes over durable state only once the step before is durable,
// too.
TEST_F(DurableTraining, an_end_beside_a_step_under_way_leaves_what_is_durable) {
  int overlapped = 0;
  for (const DurableCase& of : durable_cases()) {
    if (of.clip && of.update == UpdateTime::in_backward) continue;  // steps do not overlap
    SCOPED_TRACE(of.name);
    const Plan plan = plan_for(of);
    Begun run(*this, of, plan, 1, DirectIo::automatic);
    run.small.submit(1);
    for (std::int64_t step = 2; step <= kSteps; ++step) {
      run.small.submit(step);
      run.small.executor().wait();
      ++overlapped;
    }
    run.small.end();
    CommitLog log(run.store, run.durability.identity);
    digest_of_record(run.store, run.durability.identity, log.newest().value().step);
  }
  EXPECT_GT(overlapped, 10);
}

// This holds whichever operation reads the bit, and whoever checks that read: the lane, or the update that is first to take it.
TEST_F(DurableTraining, a_flipped_bit_is_named_and_the_step_before_stays) {
  std::mt19937_64 random(5);
  int flipped = 0;
  for (const DurableCase& of : durable_cases()) {
    const Plan plan = plan_for(of);
    const DurableLayout layout = durable_layout(plan, model_.of(plan).graph);
    std::set<std::string> kinds;
    for (std::size_t index = 0; index < layout.state.arrays.size(); ++index) {
      const std::string& name = layout.state.arrays[index].name;
      // Takes the first array of each kind, and others now and then.
      if (plan.resident[static_cast<std::size_t>(layout.state.buffer[index])].tier == Tier::device) continue;
      if (!kinds.insert(name.substr(name.rfind('/'))).second && random() % 5 != 0) continue;
      Begun run(*this, of, plan, 1, DirectIo::off);
      SmallTraining& small = run.small;
      small.submit(1);
      small.executor().wait();
      small.executor().flush();
      small.executor().hold_state(1);
      const CommitRecord before = CommitLog(run.store, run.durability.identity).newest().value();
      const DurableArray& array = before.arrays[index];
      const Bytes at = static_cast<Bytes>(random() % static_cast<std::uint64_t>(array.bytes));
      const StorePlace place = run.store.place_of(array.begin[static_cast<std::size_t>(array.slot)] + at);
      std::fstream file(place.file, std::ios::in | std::ios::out | std::ios::binary);
      file.seekg(place.offset);
      const auto byte = static_cast<char>(file.get() ^ (1 << random() % 8));
      file.seekp(place.offset);
      file.put(byte);
      file.close();
      const auto go_on = [&] {
        small.submit(2);
        small.executor().wait();
        small.executor().flush();
      };
      EXPECT_THAT([&] { go_on(); },
                  ::testing::ThrowsMessage<IoError>(::testing::AllOf(::testing::HasSubstr(name + ": damaged: bytes"),
                                                                     ::testing::HasSubstr("spillway-store.bin"))))
          << of.name << ", byte " << at;
      EXPECT_EQ(CommitLog(run.store, run.durability.identity).newest().value(), before);
      ++flipped;
      if (HasFailure()) return;
    }
  }
  EXPECT_GT(flipped, 50);
}

// State that rests on the device is read from its copy in the store, in either slot: the error names damage where it was read.
TEST_F(DurableTraining, a_flipped_bit_of_a_copy_is_named_where_it_is) {
  const DurableCase of = {"all on the device", Tier::device, Tier::device};
  const Plan plan = plan_for(of);
  std::set<int> slots;
  for (const std::int64_t steps : {0, 1}) {
    Begun run(*this, of, plan, 1, DirectIo::off);
    if (steps == 1) {
      run.small.submit(1);
      run.small.executor().wait();
      run.small.executor().hold_state(1);
    }
    run.durability.from = CommitLog(run.store, run.durability.identity).newest();
    ASSERT_EQ(run.durability.from.value().step, steps);
    for (const DurableArray& array : run.durability.from->arrays) {
      const Bytes at = array.bytes - 1, extent = at / array.extent_bytes * array.extent_bytes;
      const Bytes begin = array.begin[static_cast<std::size_t>(array.slot)];
      slots.insert(array.slot);
      const auto flip = [&] {
        const StorePlace place = run.store.place_of(begin + at);
        std::fstream file(place.file, std::ios::in | std::ios::out | std::ios::binary);
        file.seekg(place.offset);
        const auto byte = static_cast<char>(file.get() ^ 4);
        file.seekp(place.offset);
        file.put(byte);
      };
      flip();
      const StorePlace damage = run.store.place_of(begin + extent);
      EXPECT_THAT([&] { SmallTraining(model_, plan, run.store, run.durability); },
                  ::testing::ThrowsMessage<IoError>(::testing::HasSubstr(
                      fmt::format("{}: damaged: bytes {} to {}, at offset {} of {}, have", array.name, extent,
                                  std::min(extent + array.extent_bytes, array.bytes), damage.offset, damage.file))));
      flip();
      if (HasFailure()) return;
    }
    SmallTraining whole(model_, plan, run.store, run.durability);
    EXPECT_EQ(digest(whole.state()), states(of).at(static_cast<std::size_t>(steps)));
  }
  EXPECT_EQ(slots.size(), 2U);
}

}  // namespace
}  // namespace spillway
