// Steps are made durable on a disk that loses power or fails at any request: the store then holds the state of a step, to the
// bit, and training goes on from it as if nothing had happened.
#include <cerrno>
#include <random>
#include <set>
#include <system_error>

#include "tests/nvme/faulty_queue.h"
#include "tests/nvme/simulated_disk.h"
#include "tests/offload/durable_training.h"

namespace spillway {
namespace {

class FaultyDisk : public DurableTraining {
 protected:
  // A run that could be a process of its own: it finds out by itself whether there is a state to go on with.
  struct Attempt {
    std::int64_t began_at = 0;
    std::int64_t certain = -1;  // a step that is durable for certain; -1: none
    bool complete = false;
    std::string error;
  };
  Attempt attempt(const DurableCase& of, SimulatedDisk& disk, bool goes_on,
                  const std::function<void(StoreOptions&)>& change = {}) {
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
        // The step's run has made the step before durable.
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

  // Goes on after the fault of the disk, to the end.
  void go_on(const DurableCase& of, const Attempt& before) {
    SimulatedDisk disk(files());
    const Attempt on = attempt(of, disk, true);
    if (before.certain >= 0) {
      EXPECT_TRUE(on.complete) << of.name;
      EXPECT_GE(on.began_at, before.certain) << of.name;
    }
    EXPECT_TRUE(on.began_at % of.interval == 0 || on.began_at == kSteps) << of.name;
  }

  static std::string words_of(const DurableCase& of, std::string_view kind, const SimulatedDisk::Target& target) {
    return fmt::format("{}: {} at {} of file {}, number {} there", of.name, kind, target.event.offset, target.event.file,
                       target.place);
  }

  // Where that request fails, the run ends with an error and can be continued; where it is answered in parts, nothing is lost.
  void expect_goes_on_after(const DurableCase& of, const SimulatedDisk::Target& target) {
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

  long events_of_a_whole_run(const DurableCase& of) {
    SimulatedDisk disk(files());
    const Attempt whole = attempt(of, disk, false);
    EXPECT_TRUE(whole.complete) << of.name;
    return disk.events();
  }

  // The requests of a whole run, by kind.
  std::map<std::string, std::vector<SimulatedDisk::Target>> requests_of_a_whole_run(const DurableCase& of) {
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
    const std::vector<DurableCase> all = durable_cases();
    std::vector<long> events;
    for (const DurableCase& of : all) events.push_back(events_of_a_whole_run(of));
    ASSERT_FALSE(HasFailure());
    std::map<std::int64_t, int> durable;
    for (std::uint64_t seed = first; seed < first + seeds; ++seed) {
      const DurableCase& of = all[seed % all.size()];
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

  std::map<std::pair<std::string, Bytes>, Bytes>* where_ = nullptr;  // file, offset -> offset in the store; attempts fill it
};

TEST_F(FaultyDisk, power_lost_at_any_request) { lose_power(1, 200); }

TEST_F(FaultyDisk, SlowPowerLostManyTimes) { lose_power(1000, 10'000); }

// For every kind of request that a run makes, the first, the last and some between get every fault that a request can have: a
// fault that cannot be mended ends the run with an error that names it, and the last durable step is there.
TEST_F(FaultyDisk, every_kind_of_request_failing) {
  std::set<std::string> kinds;
  for (const std::size_t which : {1, 5}) {
    const DurableCase of = durable_cases()[which];
    for (const auto& [kind, requests] : requests_of_a_whole_run(of)) {
      kinds.insert(kind);
      for (const std::size_t share : {0, 1, 2, 3}) {
        const SimulatedDisk::Target& target = requests[(requests.size() - 1) * share / 3];
        SCOPED_TRACE(words_of(of, kind, target));
        expect_goes_on_after(of, target);
        if (share % 2 == 0) continue;  // each of these waits for its time-out
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

// Short, late and reordered results lose nothing.
TEST_F(FaultyDisk, results_that_are_short_late_and_out_of_order) {
  for (const DurableCase& of : durable_cases()) {
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

TEST_F(FaultyDisk, SlowEveryRequestFailingInTurn) {
  for (const std::size_t which : {0, 1, 2, 5}) {
    const DurableCase of = durable_cases()[which];
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
