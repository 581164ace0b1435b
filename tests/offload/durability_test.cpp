// Steps made durable while training goes on, on a disk that loses power or fails at any request: what is found afterwards is the
// state of a step, to the bit, and training goes on from it as if nothing had been.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <set>
#include <system_error>

#include "memory/error.h"
#include "nvme/content_hash.h"
#include "tests/nvme/faulty_queue.h"
#include "tests/nvme/simulated_disk.h"
#include "tests/offload/small_training.h"

namespace spillway {
namespace {

constexpr std::int64_t kSteps = 4, kSequence = 16;
constexpr int kMicroBatches = 2;

struct Case {
  std::string name;
  Tier weights = Tier::nvme, optimizer = Tier::nvme;
  UpdateTime update = UpdateTime::after;
  bool clip = true;
  std::int64_t interval = 1;
  StateForm form = StateForm::exact;
  Order order = Order::vertical;
};

std::vector<Case> cases() {
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

class Durability : public ::testing::Test {
 protected:
  Durability() {
    const char* place = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    std::string pattern = std::string(place) + "/durability_XXXXXX";
    directory_ = mkdtemp(pattern.data());
    std::filesystem::create_directories(directory_ + "/a");
    std::filesystem::create_directories(directory_ + "/b");
  }
  ~Durability() override { std::filesystem::remove_all(directory_); }

  Plan plan_for(const Case& of) const {
    Choices choices = uniform_choices(model_, 1, of.form, kMicroBatches, of.clip, Tier::nvme);
    set_order(choices, of.order);
    choices.update = of.update;
    choices.durable_every = of.interval;
    choices.weight_tier.assign(choices.weight_tier.size(), of.weights);
    choices.optimizer_tier.assign(choices.optimizer_tier.size(), of.optimizer);
    return plan_of(model_, choices);
  }

  // The state after each step, of a run in core that nothing happens to.
  const std::vector<std::uint64_t>& states(const Case& of) {
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

  // Of what the newest record names, which is that of `step`; every extent has the hash that the record says.
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

  // A store that is fresh, and a training on it whose state before the first step is durable.
  struct Begun {
    Begun(const Durability& test, const Case& of, const Plan& plan, std::int64_t interval, DirectIo direct)
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
    StoreOptions options_of(const Durability& test, DirectIo direct) const {
      StoreOptions options = test.store_options(durability.layout);
      options.direct = direct;
      return options;
    }
    const DurabilityOptions& identified(const Durability& test) {
      durability.identity = identify_store(test.directories());
      return durability;
    }
  };

  // A run of its own process, as far as it can see: finds out whether there is a state to go on with.
  struct Attempt {
    std::int64_t began_at = 0;
    std::int64_t certain = -1;  // a step that is durable for certain; -1: none
    bool complete = false;
    std::string error;
  };
  Attempt attempt(const Case& of, SimulatedDisk& disk, bool goes_on, const std::function<void(StoreOptions&)>& change = {}) {
    Attempt result;
    try {
      const Plan plan = plan_for(of);
      const UnitGraph& graph = model_.of(plan).graph;
      DurabilityOptions durability{.identity = {}, .layout = durable_layout(plan, graph), .interval = of.interval, .from = {}};
      StoreOptions options = store_options(durability.layout);
      options.stripe_bytes = 64 * kKiB;
      options.queue = IoQueueKind::threads;
      options.depth = 4;
      options.orphans = {11};
      options.content = goes_on ? StoreContent::existing : StoreContent::fresh;
      disk.attach(options);
      if (change) change(options);
      Store store(options);
      store.keep();
      if (where_ != nullptr) {
        for (Bytes at = 0; at < options.bytes; at += kExtentAlignment) {
          const StorePlace place = store.place_of(at);
          (*where_)[{place.file, place.offset}] = at;
        }
      }
      durability.identity = identify_store(directories());
      if (goes_on) {
        durability.from = CommitLog(store, durability.identity).newest();
        if (!durability.from) return result;  // nothing was durable yet
        EXPECT_TRUE(lies_as(*durability.from, durability.layout, durability.identity));
        EXPECT_EQ(durability.from->model, model_hash(graph));
        result.began_at = result.certain = durability.from->step;
      }
      SmallTraining small(model_, plan, store, durability);
      if (goes_on) {
        EXPECT_EQ(digest(small.state()), states(of).at(static_cast<std::size_t>(result.began_at)))
            << of.name << ", step " << result.began_at;
      } else {
        small.load_weights();
        small.executor().hold_state(0);
        result.certain = 0;
      }
      if (!of.clip) small.set_clip(0);
      std::int64_t submitted = result.began_at;
      for (std::int64_t step = submitted + 1; step <= kSteps; ++step) {
        while (submitted < std::min(kSteps, small.pipelines() ? step + 1 : step)) small.submit(++submitted);
        EXPECT_EQ(small.executor().wait().step, step);
        // Its run made the step before durable.
        result.certain = std::max(result.certain, (step - 1) / of.interval * of.interval);
      }
      EXPECT_EQ(digest(small.state()), states(of).at(kSteps)) << of.name << " from step " << result.began_at;
      small.executor().hold_state(kSteps);
      result.certain = kSteps;
      result.complete = true;
    } catch (const IoError& error) {
      result.error = error.what();
    }
    return result;
  }

  // Goes on after what happened to the disk, to the end.
  void go_on(const Case& of, const Attempt& before) {
    SimulatedDisk disk(files());
    const Attempt on = attempt(of, disk, true);
    if (before.certain >= 0) {
      EXPECT_TRUE(on.complete) << of.name;
      EXPECT_GE(on.began_at, before.certain) << of.name;
    }
    EXPECT_TRUE(on.began_at % of.interval == 0 || on.began_at == kSteps) << of.name;
  }

  static std::string words_of(const Case& of, std::string_view kind, const SimulatedDisk::Target& target) {
    return fmt::format("{}: {} at {} of file {}, number {} there", of.name, kind, target.event.offset, target.event.file,
                       target.place);
  }

  // Where that request fails, the run ends by saying so, and goes on; where it is answered in parts, nothing is lost.
  void expect_goes_on_after(const Case& of, const SimulatedDisk::Target& target) {
    for (const int error : {EIO, ENOSPC}) {
      SimulatedDisk disk(files());
      disk.fail(target, error);
      const Attempt failed = attempt(of, disk, false);
      EXPECT_FALSE(failed.complete);
      EXPECT_THAT(failed.error, ::testing::AllOf(::testing::HasSubstr("spillway-store.bin"),
                                                 ::testing::HasSubstr(std::generic_category().message(error))));
      go_on(of, failed);
    }
    SimulatedDisk disk(files());
    disk.shorten(target);
    EXPECT_TRUE(attempt(of, disk, false).complete);
  }

  long events_of_a_whole_run(const Case& of) {
    SimulatedDisk disk(files());
    const Attempt whole = attempt(of, disk, false);
    EXPECT_TRUE(whole.complete) << of.name;
    return disk.events();
  }

  // A whole run's requests, by what they are.
  std::map<std::string, std::vector<SimulatedDisk::Target>> requests_of_a_whole_run(const Case& of) {
    const Plan plan = plan_for(of);
    const DurableLayout layout = durable_layout(plan, model_.of(plan).graph);
    const Bytes copies_begin = round_up(plan.peak[Tier::nvme], kExtentAlignment);
    std::map<std::pair<std::string, Bytes>, Bytes> where;
    where_ = &where;
    SimulatedDisk disk(files());
    EXPECT_TRUE(attempt(of, disk, false).complete) << of.name;
    where_ = nullptr;
    std::map<std::string, std::vector<SimulatedDisk::Target>> found;
    bool record = false;
    for (auto event = disk.log().begin(); event != disk.log().end(); ++event) {
      const SimulatedDisk::Target target{*event, static_cast<int>(std::count(disk.log().begin(), event, *event))};
      if (event->asked == IoDirection::sync) {
        found[record ? "sync of a record" : "sync of state"].push_back(target);
        continue;
      }
      const Bytes at = where.at({files()[static_cast<std::size_t>(event->file)], event->offset});
      record = at >= layout.records_begin;
      const std::string_view what = record ? "a record" : at >= copies_begin ? "a copy" : "state";
      found[fmt::format("{} of {}", event->asked == IoDirection::read ? "read" : "write", what)].push_back(target);
    }
    return found;
  }

  void lose_power(std::uint64_t first, std::uint64_t seeds) {
    const std::vector<Case> all = cases();
    std::vector<long> events;
    for (const Case& of : all) events.push_back(events_of_a_whole_run(of));
    ASSERT_FALSE(HasFailure());
    std::map<std::int64_t, int> durable;
    for (std::uint64_t seed = first; seed < first + seeds; ++seed) {
      const Case& of = all[seed % all.size()];
      SimulatedDisk disk(files());
      disk.cut_power_at(static_cast<long>(std::mt19937_64(seed)() % static_cast<std::uint64_t>(events[seed % all.size()])));
      const Attempt cut = attempt(of, disk, false);
      EXPECT_FALSE(cut.complete);
      disk.lose_power(seed);
      ++durable[cut.certain];
      go_on(of, cut);
      ASSERT_FALSE(HasFailure()) << "seed " << seed;
    }
    EXPECT_GE(durable.size(), 4U) << "power was lost at few different steps";
  }

  const SmallModel model_{"llama_gqa", DType::bfloat16, 1, kSequence};
  std::string directory_;
  std::map<std::pair<std::string, Bytes>, Bytes>* where_ = nullptr;  // filled in by attempts: file, offset -> of the store
  std::map<std::pair<bool, StateForm>, std::vector<std::uint64_t>> states_;
};

// Steps go on beside a state that is held, and the store keeps saying that state until it is let go.
TEST_F(Durability, a_state_that_is_held_stays_while_steps_go_on) {
  for (const Case& of : cases()) {
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

// An end between two steps that overlap: the one under way writes over what is durable only if what comes before it is, too.
TEST_F(Durability, an_end_beside_a_step_under_way_leaves_what_is_durable) {
  int overlapped = 0;
  for (const Case& of : cases()) {
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

// Whichever operation reads it, and whoever checks what that read: the lane, or the update that is the first to take it.
TEST_F(Durability, a_flipped_bit_is_named_and_the_step_before_stays) {
  std::mt19937_64 random(5);
  int flipped = 0;
  for (const Case& of : cases()) {
    const Plan plan = plan_for(of);
    const DurableLayout layout = durable_layout(plan, model_.of(plan).graph);
    std::set<std::string> kinds;
    for (std::size_t index = 0; index < layout.state.arrays.size(); ++index) {
      const std::string& name = layout.state.arrays[index].name;
      // Of each kind of array the first, and others now and then.
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

// What rests on the device is read out of a copy of it, in this slot or that: damage is where it was read.
TEST_F(Durability, a_flipped_bit_of_a_copy_is_named_where_it_is) {
  const Case of = {"all on the device", Tier::device, Tier::device};
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

TEST_F(Durability, power_lost_at_any_request) { lose_power(1, 200); }

TEST_F(Durability, SlowPowerLostManyTimes) { lose_power(1000, 10'000); }

// The first, the last and some between of every kind of request that a run makes, with every fault that a request can have: what
// cannot be mended ends the run with what failed, and the last durable step is there.
TEST_F(Durability, every_kind_of_request_failing) {
  std::set<std::string> kinds;
  for (const std::size_t which : {1, 5}) {
    const Case of = cases()[which];
    for (const auto& [kind, requests] : requests_of_a_whole_run(of)) {
      kinds.insert(kind);
      for (const std::size_t share : {0, 1, 2, 3}) {
        const SimulatedDisk::Target& target = requests[(requests.size() - 1) * share / 3];
        SCOPED_TRACE(words_of(of, kind, target));
        expect_goes_on_after(of, target);
        if (share % 2 == 0) continue;  // each takes its time-out
        SimulatedDisk hanging(files());
        hanging.hang(target);
        const Attempt hung =
            attempt(of, hanging, false, [](StoreOptions& options) { options.timeout = std::chrono::milliseconds(100); });
        EXPECT_FALSE(hung.complete);
        EXPECT_THAT(hung.error,
                    ::testing::ContainsRegex(
                        kind.substr(0, kind.find(' ')) +
                        " of ([0-9]+ bytes at offset [0-9]+ of )?/.*spillway-store.bin failed: no answer for 100 ms"));
        go_on(of, hung);
      }
      if (HasFailure()) return;
    }
  }
  EXPECT_THAT(kinds, ::testing::ElementsAre("read of state", "sync of a record", "sync of state", "write of a copy",
                                            "write of a record", "write of state"));
}

// Short, late and reordered results are nobody's loss.
TEST_F(Durability, results_that_are_short_late_and_out_of_order) {
  for (const Case& of : cases()) {
    SimulatedDisk disk(files());
    const FaultPlan plan{.fault =
                             [](const IoRequest&, int count) {
                               return count % 5 == 0   ? Fault{Fault::Kind::short_result, 4096}
                                      : count % 7 == 0 ? Fault{Fault::Kind::error, EAGAIN}
                                                       : Fault{};
                             },
                         .reorder = true,
                         .seed = 3};
    const Attempt run = attempt(of, disk, false, [&](StoreOptions& options) {
      options.decorate = [&](std::unique_ptr<IoQueue> inner) { return std::make_unique<FaultyQueue>(std::move(inner), plan); };
    });
    EXPECT_TRUE(run.complete) << of.name << ": " << run.error;
  }
}

TEST_F(Durability, SlowEveryRequestFailingInTurn) {
  for (const std::size_t which : {0, 1, 2, 5}) {
    const Case of = cases()[which];
    for (const auto& [kind, requests] : requests_of_a_whole_run(of)) {
      for (const SimulatedDisk::Target& target : requests) {
        SCOPED_TRACE(words_of(of, kind, target));
        expect_goes_on_after(of, target);
        if (HasFailure()) return;
      }
    }
  }
}

}  // namespace
}  // namespace spillway
