#include "trainer/keep/loss_scale_file.h"

#include <gtest/gtest.h>

#include <fstream>

#include "files/posix_file.h"
#include "memory/base/error.h"
#include "tests/trainer/temporary_directory.h"

namespace spillway {
namespace {

std::string path_in(const TemporaryDirectory& directory) { return directory.path() + "/loss-scale.jsonl"; }

TEST(LossScaleFile, HasTheStateAfterEachStep) {
  const TemporaryDirectory directory;
  EXPECT_FALSE(loss_scale_after(directory.path(), 3));
  const LossScaleOptions options{.initial = 64, .window = 3};
  std::vector<LossScaleState> states = {initial_loss_scale(options)};
  {
    LossScaleFile file(directory.path(), 0, states.front());
    for (std::int64_t step = 1; step <= 30; ++step) {
      states.push_back(next_loss_scale(options, states.back(), step % 11 == 0 || step == 12).value());
      file.note(step, states.back());
    }
  }
  for (std::int64_t step = 0; step <= 30; ++step)
    EXPECT_EQ(loss_scale_after(directory.path(), step), states[static_cast<std::size_t>(step)]) << step;
  const std::string text = read_text_file(path_in(directory), 1 << 20);
  EXPECT_LT(std::ranges::count(text, '\n'), 16) << "steps that only count have lines";

  // Begun anew at a step, as by a run that goes on from it; and copied for a checkpoint.
  const TemporaryDirectory other;
  copy_loss_scale(directory.path(), other.path(), 17);
  EXPECT_EQ(loss_scale_after(other.path(), 17), states[17]);
  const LossScaleFile again(directory.path(), 17, states[17]);
  EXPECT_EQ(loss_scale_after(directory.path(), 17), states[17]);
  EXPECT_REFUSED(loss_scale_after(directory.path(), 16), IoError, "has no state of step 16");
  remove_loss_scale(directory.path());
  EXPECT_FALSE(loss_scale_after(directory.path(), 17));
  EXPECT_REFUSED(loss_scale_of_fp16(directory.path(), 17), IoError, "is missing");
  EXPECT_EQ(loss_scale_of_fp16(other.path(), 17), states[17]);
}

TEST(LossScaleFile, LeavesOutATornLineAndNamesDamage) {
  const TemporaryDirectory directory;
  const std::string whole = R"({"step":4,"scale":8.0,"hysteresis":2,"good_steps":1,"skipped_steps":3})"
                            "\n";
  const auto write = [&](const std::string& text) { std::ofstream(path_in(directory)) << text; };
  write(whole + R"({"step":5,"sca)");
  EXPECT_EQ(loss_scale_after(directory.path(), 6), (LossScaleState{8, 2, 3, 3}));
  for (const auto& [text, part] : std::initializer_list<std::pair<std::string, const char*>>{
           {"", "has no state of step 6"},
           {"nonsense\n", "line 1"},
           {whole + "[]\n", "line 2"},
           {R"({"step":4,"scale":9,"hysteresis":2,"good_steps":1,"skipped_steps":3})"
            "\n",
            "scale is no power of two"},
           {R"({"step":4,"scale":1e300,"hysteresis":2,"good_steps":1,"skipped_steps":3})"
            "\n",
            "scale"},
           {R"({"step":4,"scale":8,"hysteresis":-1,"good_steps":1,"skipped_steps":3})"
            "\n",
            "hysteresis"},
           {R"({"step":4,"scale":8,"hysteresis":1,"good_steps":1,"skipped_steps":5})"
            "\n",
            "skipped_steps"},
           {R"({"step":4,"scale":8,"hysteresis":1})"
            "\n",
            "good_steps"}}) {
    write(text);
    EXPECT_REFUSED(loss_scale_after(directory.path(), 6), IoError, part);
  }
}

}  // namespace
}  // namespace spillway
