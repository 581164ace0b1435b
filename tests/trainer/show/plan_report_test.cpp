// The figures of a plan, and their form in table and page. The command's own output: tests/command/plan_test.py.
#include "trainer/show/plan_report.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "memory/base/error.h"
#include "tests/trainer/temporary_directory.h"
#include "trainer/plan/disk_figures.h"
#include "trainer/plan/plan_flags.h"
#include "trainer/plan/prepared_run.h"
#include "trainer/plan/tier_picture.h"
#include "trainer/show/page.h"
#include "trainer/show/plan_page.h"
#include "trainer/words/quantity.h"

namespace spillway {
namespace {

class PlanReport : public testing::Test {
 protected:
  // Gives the tests' profile another name, spelled as in JSON.
  void name_machine(const std::string& name) {
    std::string text = content_of(SPILLWAY_TEST_DATA "/machine.json");
    options_.memory.profile = directory_.file("machine", text.replace(text.find("a made-up"), 9, name));
  }

  PlanReport() {
    options_.model.model = SPILLWAY_TEST_DATA "/golden/qwen3";
    options_.batch = {.micro_batch_size = 1, .global_batch_size = 4, .seq_length = 16, .train_iters = 3};
    options_.memory.budget[Tier::device] = 2 * kMiB;
    options_.memory.nvme = {{directory_.path(), 64 * kMiB}};
    options_.memory.profile = SPILLWAY_TEST_DATA "/machine.json";
    options_.memory.optimizer_tier = Tier::nvme;
    options_.memory.parameter_tier = Tier::nvme;
  }

  TemporaryDirectory directory_;
  RunOptions options_;
};

TEST_F(PlanReport, FiguresAreThoseOfThePlan) {
  const PreparedModel model(options_);
  const PlannedRun run = plan_run(options_, model);
  ASSERT_TRUE(run.outcome.plan);
  const PlanFigures figures = figures_of(run, model);
  EXPECT_EQ(figures.tokens_per_step, 64);
  EXPECT_DOUBLE_EQ(figures.model_flops_utilization, figures.flops_per_token * 64 / figures.step_s / 4e11);
  EXPECT_GT(figures.nvme_written_bytes, 0);
  for (const LaneFigures& lane : figures.lanes) {
    EXPECT_GT(lane.work, 0);
    EXPECT_DOUBLE_EQ(lane.share, lane.busy_s / figures.step_s);
  }
  // A matrix weight takes part in six operations for each token: in the forward, and in both products of the backward. The
  // embedding's rows are looked up, not multiplied; attention adds its own operations; the tiled head, which computes logits
  // twice, counts once.
  const auto parameters = static_cast<double>(model.tiled().graph.parameters);
  EXPECT_GT(figures.flops_per_token, 5 * parameters);
  EXPECT_LT(figures.flops_per_token, 6.5 * parameters);
  ASSERT_TRUE(run.durability);
  EXPECT_DOUBLE_EQ(figures.durable_bytes, run.durability->bytes_per_step());
}

TEST_F(PlanReport, WhatDisksTakeAndWear) {
  options_.checkpoint = {.save = directory_.path() + "/run", .load = {}, .save_interval = 2, .keep_last = 0};
  options_.batch.train_iters = 7;
  const PreparedModel model(options_);
  const PlannedRun run = plan_run(options_, model);
  ASSERT_TRUE(run.outcome.plan && run.durability);
  const PlanFigures figures = figures_of(run, model);
  const DiskFigures disk = disk_figures_of(run, model, options_, figures);
  EXPECT_EQ(disk.nvme_bytes, run.durability->layout.store_bytes + 2 * kExtentAlignment);
  EXPECT_GE(disk.checkpoint_bytes, 12 * model.tiled().graph.parameters);
  EXPECT_EQ(disk.checkpoints, 4) << "of steps 2, 4, 6 and 7";
  EXPECT_DOUBLE_EQ(disk.written_bytes, static_cast<double>(figures.nvme_written_bytes) + figures.durable_bytes);
  EXPECT_DOUBLE_EQ(disk.checkpointed_bytes, static_cast<double>(disk.checkpoint_bytes) / 2);
  const Bytes ten_steps = std::llround(10 * disk.written_bytes);
  EXPECT_NEAR(steps_of_rating(disk, ten_steps, 1), 10, 1e-6);
  EXPECT_NEAR(steps_of_rating(disk, ten_steps, 2), 20, 1e-6);
  options_.checkpoint.keep_last = 1;
  EXPECT_EQ(disk_figures_of(run, model, options_, figures).checkpoints, 2) << "the next is written before the last goes";
  options_.checkpoint.save_interval = 0;
  EXPECT_EQ(disk_figures_of(run, model, options_, figures).checkpoints, 1);
  options_.checkpoint.save.clear();
  EXPECT_EQ(disk_figures_of(run, model, options_, figures).checkpoints, 0);
}

TEST(DiskFigures, Terabytes) {
  EXPECT_DOUBLE_EQ(terabytes_in_1000_steps(123e9), 123);
  EXPECT_EQ(rounded_terabytes(123.4), "123 TB");
  EXPECT_EQ(rounded_terabytes(12.34), "12.3 TB");
  EXPECT_EQ(rounded_terabytes(0.1304), "0.13 TB");
  EXPECT_EQ(rounded_terabytes(0.0123), "0.012 TB");
  EXPECT_EQ(rounded_terabytes(0.0001), "less than 0.001 TB");
  EXPECT_EQ(rounded_terabytes(0), "0 TB");
}

// With as many tokens in a step as it says, compute has the most work; with half as many it does not.
TEST_F(PlanReport, TokensUntilComputeBindsAreThoseOfALargerPlan) {
  options_.memory.order = OrderChoice::vertical;
  options_.memory.update = UpdateTime::after;
  options_.memory.activation_tier = SavedRequest::device;
  options_.memory.budget[Tier::device] = 64 * kMiB;
  const auto planned = [&](std::int64_t sequences) {
    options_.batch.global_batch_size = sequences;
    const PreparedModel model(options_);
    return figures_of(plan_run(options_, model), model);
  };
  const PlanFigures small = planned(2);
  ASSERT_NE(small.bound.lane(), Lane::compute);
  ASSERT_TRUE(small.tokens_until_compute_binds);
  const auto enough = static_cast<std::int64_t>(*small.tokens_until_compute_binds) / 16;
  EXPECT_EQ(planned(enough + 1).bound.lane(), Lane::compute);
  EXPECT_NE(planned(std::max<std::int64_t>(1, enough / 2)).bound.lane(), Lane::compute);
}

TEST_F(PlanReport, TheTableHasHundredColumns) {
  options_.log.nvme_tbw = 600'000'000'000'000;
  name_machine(std::string(300, 'x') + "\\u001b[2J");
  const PreparedModel model(options_);
  const PlannedRun run = plan_run(options_, model);
  const std::string table = plan_table(run, model, options_);
  EXPECT_EQ(table.find('\x1b'), std::string::npos);
  std::string words;  // of the table, without its line breaks
  for (const char c : table) {
    if (const char word = c == '\n' ? ' ' : c; word != ' ' || !words.ends_with(' ')) words += word;
  }
  for (const std::string_view part : {"tier ", "lane ", "MFU", "bound", "tokens a step on", "so that it is durable",
                                      "a drive rated for 600 TB", "a kill loses up to", "spillway train --model"}) {
    EXPECT_NE(words.find(part), std::string::npos) << part << "\n" << table;
  }
  for (std::size_t at = 0; at < table.size();) {
    const std::size_t end = table.find('\n', at);
    // A single word that is longer stays whole.
    const std::string line = table.substr(at, end - at);
    if (line.find(' ', 12) != std::string::npos) {
      EXPECT_LE(line.size(), 100u) << line;
    }
    at = end + 1;
  }
}

// A step of 10 s: a buffer is in use from 8.5 s to 2.5 s of the next step, another one from 2.2 s to 5.5 s.
TEST(TierPictureTest, WhatTheStepBeforeStillUsedMakesRoom) {
  StepUse use{.operations = 2};
  use.resident[Tier::device][Category::parameters] = 5;
  use.buffers = {{.bytes = 30, .ops = {0}}, {.bytes = 20, .ops = {1}}};
  const std::vector<Span> spans = {{8.5, 12.5}, {2.2, 5.5}};
  const auto staged = [&](Bytes most) { return tier_picture(use, spans, 10, Tier::device, 10, most)[Category::staging]; };
  EXPECT_EQ(staged(55), (std::vector<Bytes>{30, 30, 50, 20, 20, 20, 0, 0, 30, 30}));
  EXPECT_EQ(staged(40), (std::vector<Bytes>{30, 30, 35, 20, 20, 20, 0, 0, 30, 30})) << "5 of 40 rest";
  EXPECT_EQ(staged(20), (std::vector<Bytes>{15, 15, 20, 20, 20, 20, 0, 0, 30, 30})) << "what this step uses is shown as it is";
}

TEST_F(PlanReport, WhatBeginsAfterTheStepIsOverIsOfTheStepBefore) {
  StepUse use{.operations = 2};
  use.buffers = {{.bytes = 30, .ops = {0}}, {.bytes = 20, .ops = {1}}};
  const std::vector<Span> spans = {{11.5, 13.5}, {2.2, 5.5}};
  const auto staged = [&](Bytes most) { return tier_picture(use, spans, 10, Tier::device, 10, most)[Category::staging]; };
  EXPECT_EQ(staged(50), (std::vector<Bytes>{0, 30, 50, 50, 20, 20, 0, 0, 0, 0}));
  EXPECT_EQ(staged(40), (std::vector<Bytes>{0, 30, 40, 40, 20, 20, 0, 0, 0, 0}));
}

TEST_F(PlanReport, TheTiersAreNeverFullerThanTheirPeak) {
  for (const OrderChoice order : {OrderChoice::vertical, OrderChoice::horizontal}) {
    options_.memory.order = order;
    const PreparedModel model(options_);
    const PlannedRun run = plan_run(options_, model);
    ASSERT_TRUE(run.outcome.plan);
    const Plan& plan = *run.outcome.plan;
    for (const Tier tier : {Tier::device, Tier::nvme}) {
      const TierPicture picture =
          tier_picture(step_use(plan), run.outcome.prediction.timeline.spans, run.outcome.prediction.step_s, tier, 100);
      Bytes resident = 0, most = 0;
      for (const Buffer& buffer : plan.resident) resident += buffer.tier == tier ? buffer.bytes * buffer.slots : 0;
      for (std::size_t column = 0; column < 100; ++column) {
        Bytes sum = 0;
        for (const std::vector<Bytes>& values : picture) {
          EXPECT_GE(values[column], 0);
          sum += values[column];
        }
        EXPECT_GE(sum, resident);
        EXPECT_LE(sum, plan.peak[tier]);
        most = std::max(most, sum);
      }
      if (tier == Tier::device) {
        EXPECT_GT(most, resident);
      }
    }
  }
}

TEST_F(PlanReport, NamesOnThePageAreText) {
  name_machine(R"(</script><img src=x onerror=alert(1)><!-- &amp; \u2028)");
  const PreparedModel model(options_);
  const std::string page = plan_page(plan_run(options_, model), model, options_);
  EXPECT_EQ(page.find("<img"), std::string::npos);
  EXPECT_EQ(page.find("<!--"), std::string::npos);
  std::size_t ends = 0;
  for (std::size_t at = page.find("</script"); at != std::string::npos; at = page.find("</script", at + 1)) ++ends;
  EXPECT_EQ(ends, 2u);  // one for the data and one for the script
  const std::size_t begin = page.find("id=\"data\">") + 10;
  const auto data = nlohmann::json::parse(page.substr(begin, page.find("</script", begin) - begin));
  EXPECT_NE(data["subtitle"].get<std::string>().find("</script><img src=x"), std::string::npos);
}

TEST(Quantity, ThreeDigits) {
  EXPECT_EQ(rounded_count(0), "0.00 ");
  EXPECT_EQ(rounded_count(8.03e12), "8.03 T");
  EXPECT_EQ(rounded_count(999.4), "999 ");
  EXPECT_EQ(rounded_count(999'600), "1.00 M");
  EXPECT_EQ(rounded_seconds(0.0123), "12.3 ms");
  EXPECT_EQ(rounded_seconds(0.9996), "1.00 s");
  EXPECT_EQ(rounded_seconds(1234.4), "1,234 s");
  EXPECT_EQ(rounded_seconds(4.2e-6), "4.20 us");
}

TEST(Quantity, OneAndMany) {
  EXPECT_EQ(counted(1, "unit"), "1 unit");
  EXPECT_EQ(counted(0, "unit"), "0 units");
  EXPECT_EQ(counted(2048, "unit"), "2,048 units");
  EXPECT_EQ(counted(1, "micro-batch", "micro-batches"), "1 micro-batch");
  EXPECT_EQ(counted(2, "micro-batch", "micro-batches"), "2 micro-batches");
}

TEST(Quantity, WrapsBetweenWordsAndKeepsUnits) {
  EXPECT_EQ(wrapped("one two three", 2, 9), "one two\n  three");
  EXPECT_EQ(wrapped("it is 1.5 GiB of it", 0, 10), "it is\n1.5 GiB of\nit");
  EXPECT_EQ(wrapped("unbreakable", 4, 6), "unbreakable");
  EXPECT_EQ(wrapped("", 4, 6), "");
}

TEST(PlanFlags, ShellWords) {
  EXPECT_EQ(shell_word("runs/first-1.0"), "runs/first-1.0");
  EXPECT_EQ(shell_word(""), "''");
  EXPECT_EQ(shell_word("a b; rm -rf $HOME"), "'a b; rm -rf $HOME'");
  EXPECT_EQ(shell_word("it's"), "'it'\\''s'");
  EXPECT_EQ(shell_word("a\nb'\x1b"), "$'a\\x0ab\\'\\x1b'");
}

}  // namespace
}  // namespace spillway
