// The flags of --dtype fp16, and what they do not go with.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "memory/base/error.h"
#include "tests/trainer/options/parsed_options.h"
#include "tests/trainer/temporary_directory.h"

namespace spillway {
namespace {

// A flag as typed, and its effect on the options.
struct TypedFlag {
  std::vector<const char*> words;
  bool (*is_understood)(const RunOptions&);
};
#define MAKES(condition) [](const RunOptions& o) { return condition; }

const TypedFlag kEveryFlag[] = {
    {{"--loss-scale", "dynamic"}, MAKES(!o.precision.loss_scale.fixed)},
    {{"--loss-scale-policy", "deepspeed"}, MAKES(o.precision.loss_scale.policy == LossScalePolicy::deepspeed)},
    {{"--initial-loss-scale", "1024"}, MAKES(o.precision.loss_scale.initial == 1024)},
    {{"--loss-scale-window", "7"}, MAKES(o.precision.loss_scale.window == 7)},
    {{"--hysteresis", "3"}, MAKES(o.precision.loss_scale.hysteresis == 3)},
    {{"--consecutive-hysteresis"}, MAKES(o.precision.loss_scale.consecutive_hysteresis)},
    {{"--min-loss-scale", "0.25"}, MAKES(o.precision.loss_scale.least == 0.25)}};
#undef MAKES

struct Refused {
  std::vector<const char*> words;
  const char* said;
};

TEST(Precision, Fp16HasALossScale) {
  std::vector<const char*> words = {"--dtype", "fp16"};
  const RunOptions plain = options_of(words);
  EXPECT_EQ(form_of(plain.precision), StateForm::fp16);
  EXPECT_EQ(plain.precision.loss_scale, LossScaleOptions());
  for (const TypedFlag& flag : kEveryFlag) words.insert(words.end(), flag.words.begin(), flag.words.end());
  const RunOptions o = options_of(words);
  for (const TypedFlag& flag : kEveryFlag) EXPECT_TRUE(flag.is_understood(o)) << flag.words.front();
  EXPECT_EQ(options_from_json_text(to_json(o).dump(), "run.json").precision.loss_scale, o.precision.loss_scale);
  EXPECT_EQ(options_of({"--dtype", "fp16", "--loss-scale", "128"}).precision.loss_scale.fixed, 128);
  const Refused rows[] = {
      {{"--dtype", "fp16", "--device", "cpu"}, "--dtype: found fp16 on the CPU, allowed there: bf16, fp32"},
      {{"--dtype", "fp16", "--device", "cpu-apart"}, "--dtype: found fp16 on the CPU"},
      {{"--dtype", "fp16", "--update", "in-backward"}, "--update: found in-backward with --dtype fp16, allowed: auto, after, "},
      {{"--dtype", "fp16", "--state", "compact"}, "--state: found compact with --dtype fp16, allowed: exact"},
      {{"--loss-scale", "128"}, "--loss-scale and its kin: found with --dtype bf16, allowed: with --dtype fp16"},
      {{"--dtype", "fp32", "--hysteresis", "2"}, "found with --dtype fp32"},
      {{"--dtype", "fp16", "--loss-scale", "100"}, "--loss-scale: found \"100\", allowed: a power of two"},
      {{"--dtype", "fp16", "--loss-scale", "0"}, "--loss-scale: found \"0\", allowed: "},
      {{"--dtype", "fp16", "--loss-scale", "static"}, "--loss-scale: found \"static\", allowed: "},
      {{"--dtype", "fp16", "--initial-loss-scale", "1e30"}, "--initial-loss-scale: found \"1e30\", allowed: "},
      {{"--dtype", "fp16", "--loss-scale-window", "0"}, "--loss-scale-window: found \"0\", allowed: "},
      {{"--dtype", "fp16", "--loss-scale-policy", "apex"}, "--loss-scale-policy: found \"apex\", allowed: deepspeed, pytorch"},
      {{"--dtype", "fp16", "--loss-scale", "8", "--hysteresis", "2"}, "--hysteresis: found with --loss-scale 8, allowed: with "},
      {{"--dtype", "fp16", "--loss-scale-policy", "pytorch", "--min-loss-scale", "2"},
       "--min-loss-scale: found with --loss-scale-policy pytorch, allowed: with deepspeed"},
      {{"--dtype", "fp16", "--initial-loss-scale", "4", "--min-loss-scale", "8"},
       "--min-loss-scale: found 8, allowed: at most --initial-loss-scale, 4"},
  };
  for (const Refused& row : rows) EXPECT_REFUSED(options_of(row.words), InputError, row.said);
}

// The loss scale of a run is fp16's alone.
TEST(Precision, ALoadedRunLeavesItsLossScaleBehind) {
  const TemporaryDirectory directory;
  (void)directory.file("run.json", R"({"dtype": "fp16", "initial-loss-scale": 64.0, "device": "cuda"})");
  const char* const run = directory.path().c_str();
  EXPECT_EQ(options_of({"--load", run}).precision.loss_scale.initial, 64);
  EXPECT_EQ(options_of({"--load", run, "--dtype", "bf16", "--device", "cpu"}).precision.loss_scale, LossScaleOptions());
  EXPECT_REFUSED(options_of({"--load", run, "--dtype", "bf16", "--hysteresis", "3"}), InputError, "found with --dtype bf16");
  EXPECT_REFUSED(options_of({"--load", run, "--device", "cpu"}), InputError, "--dtype: found fp16 on the CPU");
}

}  // namespace
}  // namespace spillway
