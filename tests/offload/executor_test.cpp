// The executor: state in and out, steps that overlap, recorded times, stopped steps; and nothing hangs when a disk fails.
#include "offload/executor.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <limits>
#include <new>
#include <thread>

#include "memory/base/error.h"
#include "models/cpu/gemm_bf16.h"
#include "tests/nvme/faulty_queue.h"
#include "tests/offload/beside_plain.h"

namespace {
// Allocations by all threads but those that are exempt.
std::atomic<bool> counting{false};
std::atomic<long> allocations{0};
thread_local bool exempt = false;

// Not inlined: the compiler would then take malloc and operator delete for a pair that does not match.
[[gnu::noinline]] void* counted(std::size_t bytes, std::size_t alignment = alignof(std::max_align_t)) noexcept {
  if (counting.load(std::memory_order_relaxed) && !exempt) allocations.fetch_add(1, std::memory_order_relaxed);
  return std::aligned_alloc(alignment, (bytes + alignment) / alignment * alignment);
}
[[gnu::noinline]] void release(void* memory) noexcept { std::free(memory); }
void* or_throw(void* memory) {
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
}  // namespace

void* operator new(std::size_t bytes) { return or_throw(counted(bytes)); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return or_throw(counted(bytes, static_cast<std::size_t>(alignment)));
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return counted(bytes); }
void* operator new(std::size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return counted(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { release(memory); }
void operator delete(void* memory, std::size_t) noexcept { release(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { release(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { release(memory); }

namespace spillway {
namespace {

constexpr std::int64_t kSequence = 16;
constexpr int kMicroBatches = 2;

class ExecutorTest : public ::testing::Test {
 protected:
  ExecutorTest() {
    std::string pattern = ::testing::TempDir() + "executor_XXXXXX";
    directory_ = mkdtemp(pattern.data());
  }
  ~ExecutorTest() override { std::filesystem::remove_all(directory_); }

  Choices choices(Tier tier, UpdateTime update = UpdateTime::after, bool clip = true) const {
    Choices choices = uniform_choices(model_, 1, StateForm::exact, kMicroBatches, clip, tier);
    choices.update = update;
    set_order(choices, Order::vertical);
    return choices;
  }

  const SmallModel model_{"llama_gqa", DType::bfloat16, 1, kSequence};
  std::string directory_;
};

constexpr UpdateTime kUpdates[] = {UpdateTime::after, UpdateTime::in_backward, UpdateTime::in_next_forward};

TEST_F(ExecutorTest, StateComesBackAsItWasWritten) {
  for (const Tier tier : {Tier::device, Tier::nvme}) {
    SmallTraining small(model_, plan_of(model_, choices(tier)), directory_);
    const auto pattern = [](int block, int kind, std::int64_t i) {
      return static_cast<std::byte>((block * 131 + kind * 17 + i * 7 + i / 251) % 256);
    };
    for (int pass = 0; pass < 2; ++pass) {
      for (int block = 0; block < static_cast<int>(small.graph().blocks.size()); ++block) {
        for (const StateArray& array : trained_state(StateForm::exact)) {
          const int kind = static_cast<int>(array.kind);
          const Bytes each = array.each();
          // In pieces, and the second half first.
          const std::int64_t elements = small.graph().blocks[block].elements,
                             half = elements / kBlockElements / 2 * kBlockElements;
          const Arena staging(elements * each, "pattern");
          for (const auto& [begin, end] : {std::pair(half, elements), std::pair(std::int64_t{0}, half)}) {
            if (begin == end) continue;
            const std::span<std::byte> range(staging.data(), static_cast<std::size_t>((end - begin) * each));
            if (pass == 0) {
              for (std::size_t i = 0; i < range.size(); ++i)
                range[i] = pattern(block, kind, begin * each + static_cast<std::int64_t>(i));
              small.executor().write_state(block, array.kind, begin, range);
            } else {
              small.executor().read_state(block, array.kind, begin, range);
              for (std::size_t i = 0; i < range.size(); ++i) {
                ASSERT_EQ(range[i], pattern(block, kind, begin * each + static_cast<std::int64_t>(i)))
                    << small.graph().blocks[block].name << " byte " << i;
              }
            }
          }
        }
      }
    }
  }
}

TEST_F(ExecutorTest, StepsThatOverlapGiveWhatStepsAloneGive) {
  for (const Tier tier : {Tier::device, Tier::nvme}) {
    for (const UpdateTime update : kUpdates) {
      const bool clip = update != UpdateTime::in_backward;
      SmallTraining overlapping(model_, plan_of(model_, choices(tier, update, clip)), directory_);
      overlapping.load_weights();
      ASSERT_TRUE(overlapping.pipelines());
      const Result together = overlapping.train(5);
      std::filesystem::create_directory(directory_ + "/single");
      SmallTraining single(model_, plan_of(model_, choices(tier, update, clip)), directory_ + "/single");
      single.load_weights();
      Result alone;
      for (std::int64_t step = 1; step <= 5; ++step) {
        single.submit(step);
        const StepOutcome outcome = single.executor().wait();
        alone.losses.push_back(outcome.loss);
        alone.norms.push_back(outcome.grad_norm);
      }
      alone.state = single.state();
      EXPECT_TRUE(alone == together) << name_of(update);
    }
  }
}

// In the recorded times, too, every operation begins after those that it waits for have ended, and each lane keeps its order.
TEST_F(ExecutorTest, TheTimelineFollowsThePlan) {
  for (const UpdateTime update : kUpdates) {
    SmallTraining small(model_, plan_of(model_, choices(Tier::nvme, update)), directory_);
    small.set_clip(1e9);
    small.load_weights();
    small.train(3);
    const std::vector<Op>& ops = small.plan().step.ops;
    const std::vector<Span>& spans = small.last().timeline.spans;
    ASSERT_EQ(spans.size(), ops.size());
    By<Lane, double> lane_end;
    double last = 0;
    for (std::size_t id = 0; id < ops.size(); ++id) {
      EXPECT_LE(spans[id].begin_s, spans[id].end_s);
      for (const Wait& wait : ops[id].waits) {
        if (wait.turn < 0) continue;
        EXPECT_GE(spans[id].begin_s, spans[wait.op].end_s) << "operation " << id << " waits for " << wait.op;
      }
      double& end = lane_end[ops[id].lane];
      EXPECT_GE(spans[id].end_s, end) << "operation " << id << " is complete before its lane's last one";
      end = spans[id].end_s;
      last = std::max(last, end);
    }
    EXPECT_GT(last, 0);
    EXPECT_LT(last, 60);
  }
}

TEST_F(ExecutorTest, BytesOfAStepAreThoseOfItsOperations) {
  for (const UpdateTime update : kUpdates) {
    SmallTraining small(model_, plan_of(model_, choices(Tier::nvme, update)), directory_);
    small.set_clip(1e9);
    expect_bytes_and_peaks_of_plan(small);
  }
}

TEST_F(ExecutorTest, EvaluationIsTheLossAndChangesNothing) {
  for (const Tier tier : {Tier::device, Tier::nvme}) {
    for (const UpdateTime update : kUpdates) {
      if (update == UpdateTime::in_backward && tier == Tier::device) continue;
      SmallTraining small(model_, plan_of(model_, choices(tier, update), true), directory_);  // with a program to evaluate by
      small.load_weights();
      double before = 0;
      for (int mb = 0; mb < kMicroBatches; ++mb) {
        const FillTokens fill = small.data().of_step(0);
        before += small.executor().evaluate([&](int, const MicroBatchRows& rows) { fill(mb, rows); });
      }
      small.submit(1);
      const double loss = small.executor().wait().loss;
      EXPECT_DOUBLE_EQ(before / static_cast<double>(small.data().counted(0)), loss);
      const auto state = small.state();
      small.executor().evaluate(small.data().of_step(3));
      EXPECT_TRUE(small.state() == state);
      EXPECT_EQ(small.executor().evaluate(small.data().of_step(3)), small.executor().evaluate(small.data().of_step(3)));
      // And the next steps are those of a run that never evaluated.
      small.submit(2);
      SmallTraining plain(model_, plan_of(model_, choices(Tier::device, UpdateTime::after)), directory_);
      plain.load_weights();
      const Result two = plain.train(2);
      EXPECT_EQ(small.executor().wait().loss, two.losses[1]);
      EXPECT_TRUE(small.state() == two.state);
    }
  }
}

TEST_F(ExecutorTest, ALossThatIsNotFiniteIsNotApplied) {
  for (const Tier tier : {Tier::device, Tier::nvme}) {
    for (const UpdateTime update : kUpdates) {
      if (update == UpdateTime::in_backward && tier == Tier::device) continue;
      SmallTraining small(model_, plan_of(model_, choices(tier, update)), directory_);
      small.load_weights();
      small.submit(1);
      EXPECT_EQ(small.executor().wait().stopped, "");
      // An infinite weight in the last norm; written as it is at rest: the high half of the master.
      const auto& blocks = small.graph().blocks;
      small.executor().flush();
      int block = -1;
      std::int64_t element = 0;
      for (int b = 0; b < static_cast<int>(blocks.size()); ++b) {
        for (const TensorPiece& piece : blocks[b].pieces) {
          if (piece.tensor == "model.norm.weight") block = b, element = piece.begin;
        }
      }
      ASSERT_GE(block, 0);
      const Arena staging(2 * blocks[block].elements, "weights");
      const std::span<std::byte> range(staging.data(), static_cast<std::size_t>(staging.bytes()));
      small.executor().read_state(block, StateKind::weight, 0, range);
      reinterpret_cast<std::uint16_t*>(staging.data())[element] = 0x7f80;
      small.executor().write_state(block, StateKind::weight, 0, range);
      const auto before = small.state();
      small.submit(2);
      const bool another = small.pipelines();
      if (another) small.submit(3);
      const StepOutcome outcome = small.executor().wait();
      EXPECT_NE(outcome.stopped, "") << name_of(update);
      EXPECT_EQ(outcome.step, 2);
      EXPECT_TRUE(outcome.state_intact);
      if (another) (void)small.executor().wait();
      EXPECT_TRUE(small.state() == before) << name_of(update) << " on " << name_of(tier);
    }
  }
}

// Data that cannot be read end the call that asked for them, and nothing else: steps under way are finished, and the same step
// may be submitted again.
TEST_F(ExecutorTest, TokensThatCannotBeFilledBeginNothing) {
  struct NoTokens {};
  for (const UpdateTime update : kUpdates) {
    const bool clip = update != UpdateTime::in_backward;
    SmallTraining small(model_, plan_of(model_, choices(Tier::nvme, update, clip), true), directory_);
    small.load_weights();
    // The first micro-batch is there, the second is not.
    const auto fails = [&](std::int64_t step) {
      const FillTokens whole = small.data().of_step(step - 1);
      small.executor().submit(small.settings(step), [=](int mb, const MicroBatchRows& rows) {
        if (mb == 1) throw NoTokens();
        whole(mb, rows);
      });
    };
    EXPECT_THROW(fails(1), NoTokens);
    Result result;
    const auto wait = [&] {
      const StepOutcome outcome = small.executor().wait();
      EXPECT_EQ(outcome.step, std::ssize(result.losses) + 1);
      result.losses.push_back(outcome.loss);
      result.norms.push_back(outcome.grad_norm);
    };
    small.submit(1);
    EXPECT_THROW(fails(2), NoTokens) << "while another is under way";
    wait();
    EXPECT_THROW(small.executor().wait(), Error) << "no step is under way";
    EXPECT_THROW(fails(2), NoTokens);
    EXPECT_THROW(small.executor().evaluate([](int, const MicroBatchRows&) { throw NoTokens(); }), NoTokens);
    small.submit(2);
    small.submit(3);
    wait();
    wait();
    EXPECT_THROW(fails(4), NoTokens);
    result.state = small.state();
    SmallTraining plain(model_, plan_of(model_, choices(Tier::device, UpdateTime::after, clip)), directory_);
    plain.load_weights();
    EXPECT_TRUE(plain.train(3) == result) << name_of(update);
    small.submit(4);
    EXPECT_THROW(fails(5), NoTokens) << "and the executor goes, with a step under way";
  }
}

// The request of one operation fails, of each in turn: wait() throws an error that names the request, and nothing hangs.
TEST_F(ExecutorTest, ADiskThatFails) {
  for (const UpdateTime update : kUpdates) {
    Choices spilling = choices(Tier::nvme, update);
    spilling.slots = 2;
    const Plan plan = plan_of(model_, spilling);
    for (int failing = 3; failing < 400; failing += 57) {
      const auto armed = std::make_shared<std::atomic<bool>>(false);
      const auto seen = std::make_shared<std::atomic<int>>(0);
      StoreOptions store;
      store.decorate = [=](std::unique_ptr<IoQueue> queue) -> std::unique_ptr<IoQueue> {
        FaultPlan faults;
        faults.fault = [=](const IoRequest&, int) {
          return armed->load() && seen->fetch_add(1) == failing ? Fault{Fault::Kind::error, EIO} : Fault{};
        };
        return std::make_unique<FaultyQueue>(std::move(queue), faults);
      };
      auto done = std::async(std::launch::async, [&] {
        SmallTraining small(model_, plan, directory_, store);
        small.set_clip(1e9);
        small.load_weights();
        armed->store(true);
        bool failed = false;
        try {
          for (std::int64_t step = 1; step <= 20; ++step) {
            small.submit(step);
            (void)small.executor().wait();
          }
        } catch (const IoError& error) {
          failed = true;
          EXPECT_NE(std::string(error.what()).find(directory_), std::string::npos) << error.what();
        }
        return failed;
      });
      ASSERT_EQ(done.wait_for(std::chrono::seconds(60)), std::future_status::ready) << "hangs";
      EXPECT_TRUE(done.get()) << name_of(update) << ", request " << failing << " of " << seen->load();
    }
  }
  EXPECT_TRUE(std::filesystem::is_empty(directory_)) << "files stay behind";
}

TEST_F(ExecutorTest, NothingIsAllocatedByLanesWhileTraining) {
  if (ops::instructions_here() != Instructions::avx512_bf16)
    GTEST_SKIP() << "by AVX2 and by AMX products are the library's, which allocates in each";
  for (const Tier tier : {Tier::device, Tier::nvme}) {
    for (const UpdateTime update : kUpdates) {
      const bool clip = update != UpdateTime::in_backward;
      SmallTraining small(model_, plan_of(model_, choices(tier, update, clip)), directory_);
      small.load_weights();
      small.train(3);  // one-time caches fill
      exempt = true;   // this thread's own tokens, outcomes and timelines
      allocations = 0;
      counting = true;
      for (std::int64_t step = 4; step <= 6; ++step) {
        small.submit(step);
        (void)small.executor().wait();
      }
      EXPECT_EQ(allocations.load(), 0) << name_of(update) << " on " << name_of(tier);
      std::thread([] { delete std::make_unique<std::array<char, 1000>>().release(); }).join();
      counting = false;
      exempt = false;
      EXPECT_GE(allocations.load(), 1) << "allocations are not counted";
    }
  }
}

}  // namespace
}  // namespace spillway
