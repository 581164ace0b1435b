#include "trainer/options/validate_options.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <filesystem>
#include <limits>
#include <set>

#include "memory/base/error.h"
#include "trainer/options/flag_choices.h"
#include "trainer/options/loss_scale.h"
#include "trainer/options/lr_schedule.h"
#include "trainer/words/quantity.h"
#include "trainer/words/size.h"

namespace spillway {
namespace {

[[noreturn]] void refuse_this_version(std::string_view flag, std::string_view found, std::string_view allowed) {
  throw InputError(fmt::format("{}: found {}, allowed in this version: {}", flag, found, allowed));
}

// Refuses options that this version cannot run, or that have no effect until devices have memory of their own and ranks
// communicate.
void refuse_what_is_not_there_yet(const RunOptions& options) {
  if (options.parallel.sum_groups > 1) {
    refuse_this_version("--sum-groups", fmt::format("{}", options.parallel.sum_groups),
                        "1, gradients summed over micro-batches in their order");
  }
  // Another machine's profile may have devices. The devices of this machine are checked when the run takes one.
  const bool may_be_gpu = options.memory.device == DeviceChoice::cuda || options.memory.device == DeviceChoice::automatic;
  if (options.memory.profile.empty() && !may_be_gpu) refuse_what_needs_a_device(options.memory);
}

void validate_ranks(const ParallelOptions& parallel) {
  const std::int64_t group = parallel.zero_group_size, ranks = parallel.ranks;
  if (parallel.reduce_algorithm == ReduceAlgorithm::ring && parallel.collectives == CollectivesChoice::parameter_server)
    throw InputError(
        "--reduce-algorithm: found ring with --collectives parameter-server, allowed: direct, as rank 0 adds up all");
  if (group == 0 || group == ranks) return;
  if (ranks % group == 0 && std::has_single_bit(static_cast<std::uint64_t>(group))) return;
  throw InputError(
      fmt::format("--zero-group-size: found {} with --ranks {}, allowed: a power of two that divides the ranks, or {}", group,
                  ranks, ranks),
      "Sums of such groups are nodes of the tree along which all ranks are added, so that groups change no bit.");
}

void validate_batch(BatchOptions& batch, std::int64_t ranks) {
  const std::int64_t at_once = batch.micro_batch_size * ranks;
  if (batch.global_batch_size == 0) batch.global_batch_size = at_once;
  // Data positions count the sequences of all steps in 63 bits.
  if (batch.train_iters > std::numeric_limits<std::int64_t>::max() / 2 / batch.global_batch_size) {
    throw InputError(fmt::format("--train-iters: found {} with --global-batch-size {}, allowed: below 2^62 sequences in all",
                                 batch.train_iters, batch.global_batch_size));
  }
  if (batch.global_batch_size % at_once == 0) return;
  const std::int64_t below = batch.global_batch_size / at_once * at_once;
  throw InputError(
      fmt::format("--global-batch-size: found {}, allowed: a multiple of {} (--micro-batch-size {} x {})",
                  batch.global_batch_size, at_once, batch.micro_batch_size, counted(ranks, "rank")),
      below == 0 ? fmt::format("the nearest is {}", at_once) : fmt::format("the nearest are {} and {}", below, below + at_once));
}

void validate_memory(const MemoryOptions& memory) {
  std::set<std::string> seen;
  for (const NvmeDirectory& directory : memory.nvme) {
    const std::string name = std::filesystem::path(directory.path).lexically_normal().string();
    if (!seen.insert(name.ends_with('/') && name.size() > 1 ? name.substr(0, name.size() - 1) : name).second) {
      throw InputError(fmt::format("--nvme: found \"{}\" twice, allowed: each directory once", directory.path));
    }
  }
  if (!memory.nvme.empty()) return;
  const auto needs_nvme = [](std::string_view flag) {
    throw InputError(fmt::format("{}: found nvme without --nvme, allowed: nvme together with --nvme DIR", flag));
  };
  if (memory.parameter_tier == Tier::nvme) needs_nvme("--parameter-tier");
  if (memory.optimizer_tier == Tier::nvme) needs_nvme("--optimizer-tier");
  if (memory.activation_tier == SavedRequest::nvme) needs_nvme("--activation-tier");
}

void validate_data(const DataOptions& data) {
  const auto reads_input = [](const std::vector<std::string>& paths) { return std::ranges::find(paths, "-") != paths.end(); };
  if (reads_input(data.data) && reads_input(data.eval_data)) {
    throw InputError("--eval-data: found - with --data -, allowed: standard input once",
                     "--eval-split R holds back rows of --data for evaluation.");
  }
  if (!data.split_rows) return;
  if (!data.packing)
    throw InputError("--split-rows: found without --packing, allowed: together with it",
                     "rows that are not packed are cut with --truncate");
  if (data.truncate) throw InputError("--split-rows: found with --truncate, allowed: one of the two");
}

void validate_samples(const LogOptions& log) {
  const bool prompts = !log.sample_prompt.empty(), chats = !log.sample_chat.empty(), samples = log.sample_interval > 0;
  if (prompts && chats) throw InputError("--sample-chat: found with --sample-prompt, allowed: one of the two");
  if (samples == (prompts || chats)) return;
  if (samples)
    throw InputError(
        "--sample-interval: found without --sample-prompt, allowed: together with --sample-prompt TEXT or --sample-chat TEXT");
  throw InputError(fmt::format("{}: found without --sample-interval, allowed: together with --sample-interval N",
                               prompts ? "--sample-prompt" : "--sample-chat"));
}

void validate_evaluations(const RunOptions& options) {
  constexpr const char* kEvaluates = "allowed: together with --eval-data PATH or --eval-split R";
  const bool evaluates = options.data.evaluates();
  if (options.checkpoint.keep_best && options.checkpoint.save.empty())
    throw InputError("--keep-best: found without --save, allowed: together with --save DIR");
  if (options.checkpoint.keep_best && !evaluates)
    throw InputError(fmt::format("--keep-best: found without evaluations, {}", kEvaluates));
  if (options.stopping.patience && !evaluates) {
    throw InputError(
        fmt::format("--early-stopping-patience: found {} without evaluations, {}", *options.stopping.patience, kEvaluates));
  }
  if (options.stopping.threshold > 0 && !options.stopping.patience)
    throw InputError(
        fmt::format("--early-stopping-threshold: found {} without --early-stopping-patience, allowed: together with it",
                    options.stopping.threshold));
}

void validate_rule(const ScheduleOptions& schedule) {
  if (schedule.lr_warmup_init > schedule.lr)
    throw InputError(fmt::format("--lr-warmup-init: found {}, allowed: at most --lr, {}", schedule.lr_warmup_init, schedule.lr));
  if (schedule.lr_rule == LrRule::deepspeed) {
    if (schedule.lr_decay_style == DecayStyle::wsd)
      throw InputError("--lr-decay-style: found wsd with --lr-rule deepspeed, allowed: constant, linear, cosine");
    return;
  }
  if (schedule.lr_warmup_style == WarmupStyle::log)
    throw InputError("--lr-warmup-style: found log without --lr-rule deepspeed, allowed: linear, or together with it");
}

void validate_loss_scale(const LossScaleOptions& scale) {
  const auto refuse_with = [](std::string_view flag, bool is_given, std::string_view with, std::string_view allowed) {
    if (is_given) throw InputError(fmt::format("--{}: found with {}, allowed: with {}", flag, with, allowed));
  };
  const auto refuse_all = [&](std::string_view with, std::string_view allowed) {
    refuse_with("hysteresis", scale.hysteresis.has_value(), with, allowed);
    refuse_with("consecutive-hysteresis", scale.consecutive_hysteresis, with, allowed);
    refuse_with("min-loss-scale", scale.least.has_value(), with, allowed);
  };
  if (scale.fixed) {
    const std::string with = fmt::format("--loss-scale {}", *scale.fixed);
    constexpr std::string_view kDynamic = "--loss-scale dynamic";
    refuse_with("loss-scale-policy", scale.policy.has_value(), with, kDynamic);
    refuse_with("initial-loss-scale", scale.initial.has_value(), with, kDynamic);
    refuse_with("loss-scale-window", scale.window.has_value(), with, kDynamic);
    refuse_all(with, kDynamic);
  }
  if (scale.policy == LossScalePolicy::pytorch) refuse_all("--loss-scale-policy pytorch", "deepspeed, whose it is");
  const double initial = initial_loss_scale(scale).scale, least = scale.least.value_or(0);
  if (initial < least) {
    throw InputError(fmt::format("--min-loss-scale: found {}, allowed: at most --initial-loss-scale, {}", least, initial));
  }
}

// fp16 beside what cannot go with it, and a loss scale without fp16.
void validate_precision(const PrecisionOptions& precision, const MemoryOptions& memory) {
  const bool is_half = precision.dtype == DType::float16;
  if (precision.state == StateForm::compact && precision.dtype != DType::bfloat16) {
    throw InputError(fmt::format("--state: found compact with --dtype {}, allowed: exact (compact state stores bf16)",
                                 name_of(precision.dtype)));
  }
  if (!is_half && precision.loss_scale != LossScaleOptions())
    throw InputError(
        fmt::format("--loss-scale and its kin: found with --dtype {}, allowed: with --dtype fp16", name_of(precision.dtype)),
        "bf16 and fp32 have the range of every gradient and need no loss scale.");
  if (!is_half) return;
  validate_loss_scale(precision.loss_scale);
  if (memory.device == DeviceChoice::cpu || memory.device == DeviceChoice::cpu_apart) refuse_type_of_gpus(precision);
  if (memory.update == UpdateTime::in_backward) {
    throw InputError("--update: found in-backward with --dtype fp16, allowed: auto, after, in-next-forward",
                     "Whether a step has overflowed is known behind its backward, and then nothing of it may be applied.");
  }
}

}  // namespace

void refuse_type_of_gpus(const PrecisionOptions& precision) {
  if (precision.dtype != DType::float16) return;
  throw InputError("--dtype: found fp16 on the CPU, allowed there: bf16, fp32",
                   "Every processor that runs Spillway computes in these, and neither needs a loss scale; fp16 is for GPUs.");
}

void refuse_what_needs_a_device(const MemoryOptions& memory) {
  if (memory.device == DeviceChoice::cpu_apart || memory.device == DeviceChoice::cuda) return;
  constexpr std::string_view tiers = "auto, device, nvme: the CPU is the device, and its memory the host's";
  for (const auto& [name, tier] : Names<Tier>::all) {
    if (!in_memory(tier) || tier == Tier::device) continue;
    if (memory.budget[tier]) {
      refuse_this_version(fmt::format("--{}-memory", name), exact_size(*memory.budget[tier]),
                          "--device-memory alone, as the CPU is the device and its memory the host's");
    }
    if (memory.parameter_tier == tier) refuse_this_version("--parameter-tier", name, tiers);
    if (memory.optimizer_tier == tier) refuse_this_version("--optimizer-tier", name, tiers);
    if (name_of(memory.activation_tier) == name)
      refuse_this_version("--activation-tier", name,
                          "auto, device, recompute, nvme: the CPU is the device, and its memory the host's");
    if (memory.update_on == tier)
      refuse_this_version("--update-on", name, "auto, device (the CPU, whose memory is the device's)");
  }
}

void validate(RunOptions& options) {
  refuse_what_is_not_there_yet(options);
  validate_ranks(options.parallel);
  validate_batch(options.batch, options.parallel.ranks);
  validate_memory(options.memory);
  validate_data(options.data);
  if (options.schedule.min_lr > options.schedule.lr) {
    throw InputError(fmt::format("--min-lr: found {}, allowed: at most --lr, {}", options.schedule.min_lr, options.schedule.lr));
  }
  validate_rule(options.schedule);
  // Throws if the spans do not fit one another. The steps of epochs are known later (settle_by_data).
  if (!options.batch.epochs) (void)LrSchedule(options.schedule, options.batch.train_iters);
  validate_precision(options.precision, options.memory);
  const CheckpointOptions& checkpoint = options.checkpoint;
  validate_samples(options.log);
  validate_evaluations(options);
  if (checkpoint.save.empty() && checkpoint.save_interval > 0) {
    throw InputError(
        fmt::format("--save-interval: found {} without --save, allowed: together with --save DIR", checkpoint.save_interval));
  }
}

void require_model(const RunOptions& options) {
  if (options.model.model.empty()) {
    throw InputError("--model: not given",
                     "allowed: a Hugging Face directory, a config.json, or a name from the built-in catalogue");
  }
}

void require_data(const RunOptions& options) {
  if (options.data.data.empty())
    throw InputError("--data: not given",
                     "allowed: .txt, .jsonl, .ndjson, .json and .bin files, each also as .gz or .zst, -, or directories");
}

}  // namespace spillway
