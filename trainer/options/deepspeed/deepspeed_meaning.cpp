#include "trainer/options/deepspeed/deepspeed_meaning.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <utility>

#include "files/strict_json.h"
#include "trainer/options/deepspeed/deepspeed_rates.h"
#include "trainer/options/deepspeed/deepspeed_says.h"
#include "trainer/words/quantity.h"

namespace spillway {
namespace {

using nlohmann::json;

constexpr std::string_view kTrain = "train_batch_size", kMicro = "train_micro_batch_size_per_gpu",
                           kAccumulation = "gradient_accumulation_steps";
constexpr std::int64_t kMostOfAStep = std::int64_t{1} << 30;  // as --global-batch-size has it

// Any two of the three sizes give the third; one alone leaves one micro-batch in a step.
class BatchSizes {
 public:
  BatchSizes(DeepSpeedSayings& say, const BesideDeepSpeed& beside)
      : say_(say), beside_(beside), ranks_(beside.options.parallel.ranks) {}

  void read() {
    const std::optional<std::int64_t> train = size(kTrain), accumulation = size(kAccumulation);
    std::optional<std::int64_t> micro = size(kMicro);
    if (is_wrong_) return;
    const std::int64_t rounds = accumulation.value_or(1);
    const bool takes_flag = say_.walk().is_automatic(kMicro) || beside_.is_given("micro-batch-size");
    if (!micro && train && !takes_flag) {
      if (*train % (rounds * ranks_) != 0) return refuse_sum(*train, 1, rounds);
      micro = *train / (rounds * ranks_);
      say_.add("micro-batch-size", *micro, std::string(kTrain));
    } else if (micro) {
      say_.add("micro-batch-size", *micro, std::string(kMicro));
    }
    const std::int64_t of_rank = micro.value_or(beside_.options.batch.micro_batch_size);
    const bool can_multiply =
        of_rank <= kMostOfAStep && rounds <= kMostOfAStep / of_rank && ranks_ <= kMostOfAStep / (of_rank * rounds);
    if (accumulation && !can_multiply)
      return say_.walk().refuse(kAccumulation, fmt::format("{}", rounds), "sizes that give at most 2^30 sequences a step");
    if (train && accumulation && *train != of_rank * rounds * ranks_) return refuse_sum(*train, of_rank, rounds);
    if (train) {
      say_.add("global-batch-size", *train, std::string(kTrain));
    } else if (accumulation) {
      say_.add("global-batch-size", of_rank * rounds * ranks_, std::string(kAccumulation));
    }
  }

 private:
  std::optional<std::int64_t> size(std::string_view key) {
    const json* const value = say_.walk().find(key);
    if (value == nullptr) return std::nullopt;
    if (*value > kMostOfAStep || *value < 1) {
      is_wrong_ = true;
      say_.walk().refuse(key, shown(*value), "a whole number from 1 to 2^30, or \"auto\"");
      return std::nullopt;
    }
    return value->get<std::int64_t>();
  }

  void refuse_sum(std::int64_t train, std::int64_t micro, std::int64_t rounds) {
    say_.walk().refuse(kTrain, fmt::format("{}", train),
                       fmt::format("{}{} of micro-batches of {} x {} of {} x {}", micro == 1 ? "a multiple of " : "",
                                   micro * rounds * ranks_, micro, rounds, kAccumulation, counted(ranks_, "rank")));
  }

  DeepSpeedSayings& say_;
  const BesideDeepSpeed& beside_;
  std::int64_t ranks_;
  bool is_wrong_ = false;
};

void read_optimizer(DeepSpeedSayings& say) {
  if (!say.walk().has("optimizer")) return;
  const std::string type = say.lowered("optimizer.type");
  if (type.empty()) return say.walk().refuse("optimizer.type", "none", "Adam, AdamW");
  if (type != "adam" && type != "adamw")
    return say.walk().refuse("optimizer.type", shown(*say.walk().find("optimizer.type")), "Adam, AdamW");
  const bool of_torch = say.boolean("optimizer.params.torch_adam") && type == "adamw";
  say.real("weight-decay", "optimizer.params.weight_decay", of_torch ? 0.01 : 0.0);
  say.real("adam-eps", "optimizer.params.eps", 1e-8);
  say.real("lr", "optimizer.params.lr", 1e-3);
  const std::string key = "optimizer.params.betas";
  if (const json* betas = say.walk().find(key)) {
    say.add("adam-beta1", (*betas)[0], key);
    say.add("adam-beta2", (*betas)[1], key);
  } else if (!say.walk().is_automatic(key)) {
    say.assume("adam-beta1", 0.9, key);
    say.assume("adam-beta2", 0.999, key);
  }
}

// The scale that is the file's in every step, or what its policy goes by; 0 stands for the policy.
void read_loss_scale(DeepSpeedSayings& say) {
  DeepSpeedWalk& walk = say.walk();
  const json* const fixed = walk.find("fp16.loss_scale");
  if (fixed != nullptr && *fixed != 0) return say.add("loss-scale", *fixed, "fp16.loss_scale");
  if (fixed != nullptr) say.add("loss-scale", "dynamic", "fp16.loss_scale");
  const std::string power_key = "fp16.initial_scale_power";
  if (const json* const power = walk.find(power_key)) {
    constexpr int kMostPower = 64;
    if (*power < 0 || *power > kMostPower)
      walk.refuse(power_key, shown(*power), fmt::format("0 to {}", kMostPower));
    else
      say.add("initial-loss-scale", std::ldexp(1.0, power->get<int>()), power_key);
  }
  constexpr std::pair<const char*, const char*> kSame[] = {{"loss-scale-window", "fp16.loss_scale_window"},
                                                           {"hysteresis", "fp16.hysteresis"},
                                                           {"consecutive-hysteresis", "fp16.consecutive_hysteresis"},
                                                           {"min-loss-scale", "fp16.min_loss_scale"}};
  for (const auto& [flag, key] : kSame) {
    if (const json* const value = walk.find(key)) say.add(flag, *value, key);
  }
}

// Without a block, or with "auto", the type is that of --dtype; DeepSpeed takes fp32 where both blocks are off.
void read_precision(DeepSpeedSayings& say) {
  const bool fp16 = say.boolean("fp16.enabled"), bf16 = say.boolean("bf16.enabled");
  DeepSpeedWalk& walk = say.walk();
  if (fp16 && bf16) return walk.refuse("fp16.enabled", "true together with bf16.enabled", "one of them");
  if (fp16) say.add("dtype", "fp16", "fp16.enabled");
  const bool by_flag = walk.is_automatic("fp16.enabled") && say.beside().options.precision.dtype == DType::float16;
  if (fp16 || by_flag) return read_loss_scale(say);
  if (bf16) return say.add("dtype", "bf16", "bf16.enabled");
  if (walk.is_automatic("fp16.enabled") || walk.is_automatic("bf16.enabled")) return;
  if (walk.has("bf16.enabled")) return say.add("dtype", "fp32", "bf16.enabled");
  if (walk.has("fp16.enabled")) say.assume("dtype", "fp32", "fp16.enabled");
}

// Where one of the two offload blocks, or the old key for it, puts its bytes.
void read_offload(DeepSpeedSayings& say, const std::string& what, const char* tier, const std::string& old_key,
                  std::vector<std::string>& directories) {
  DeepSpeedWalk& walk = say.walk();
  const std::string block = "zero_optimization." + what, key = block + ".device";
  const std::string before = "zero_optimization." + old_key;
  const json* const old = walk.find(before);
  if (old != nullptr && walk.has(block))
    walk.problems.push_back(fmt::format("{}: found together with {}, which took its place, allowed: one of them", before, block));
  const std::string device = say.lowered(key);
  if (device == "cpu" || (old != nullptr && *old == true)) return say.add(tier, "host", device.empty() ? before : key);
  if (device.empty() || device == "none") return;
  if (device != "nvme") return walk.refuse(key, shown(*walk.find(key)), "none, cpu, nvme");
  say.add(tier, "nvme", key);
  const json* const path = walk.find(block + ".nvme_path");
  if (path != nullptr && !path->get_ref<const std::string&>().empty()) {
    const auto& directory = path->get_ref<const std::string&>();
    if (std::ranges::find(directories, directory) == directories.end()) directories.push_back(directory);
  } else if (!say.beside().is_given("nvme")) {
    walk.refuse(block + ".nvme_path", "none with device nvme", "a directory, here or by --nvme DIR");
  }
}

void read_zero(DeepSpeedSayings& say) {
  DeepSpeedWalk& walk = say.walk();
  const std::string stage = "zero_optimization.stage";
  if (const json* value = walk.find(stage)) {
    if (*value > 3) {
      walk.refuse(stage, shown(*value), "0 to 3");
    } else {
      say.add("zero-stage", *value, stage);
    }
  }
  const std::string shard = "zero_optimization.mics_shard_size";
  if (const json* value = walk.find(shard)) {
    if (*value > 0) say.add("zero-group-size", *value, shard);
  }
  std::vector<std::string> directories;
  read_offload(say, "offload_param", "parameter-tier", "cpu_offload_param", directories);
  read_offload(say, "offload_optimizer", "optimizer-tier", "cpu_offload", directories);
  if (!directories.empty()) say.add_texts("nvme", directories, "zero_optimization.offload_*.nvme_path");
}

// A monitor that is on, and where it writes: output_path/job_name.
void read_monitor(DeepSpeedSayings& say, const std::string& block, const char* flag, const char* ending) {
  if (!say.boolean(block + ".enabled")) return;
  const json *const path = say.walk().find(block + ".output_path"), *const job = say.walk().find(block + ".job_name");
  std::string directory = path == nullptr ? "" : path->get<std::string>();
  if (directory.empty()) {
    if (!say.beside().is_given(flag))
      say.walk().note(fmt::format("no output_path is given: --{} says where", flag), block + ".enabled");
    return;
  }
  if (!directory.ends_with('/')) directory += '/';
  say.add(flag, directory + (job == nullptr ? "DeepSpeedJobName" : job->get<std::string>()) + ending, block + ".output_path");
}

}  // namespace

std::vector<DeepSpeedSays> meaning_of_deepspeed(DeepSpeedWalk& walk, const BesideDeepSpeed& beside) {
  DeepSpeedSayings say(walk, beside);
  BatchSizes(say, beside).read();
  if (const json* clip = walk.find("gradient_clipping")) say.add("clip-grad", *clip, "gradient_clipping");
  if (const json* print = walk.find("steps_per_print")) say.add("log-interval", *print, "steps_per_print");
  read_optimizer(say);
  read_deepspeed_rates(say);
  read_precision(say);
  read_zero(say);
  read_monitor(say, "tensorboard", "tensorboard", "");
  read_monitor(say, "csv_monitor", "csv", ".csv");
  return say.take();
}

}  // namespace spillway
