#include "trainer/options/deepspeed/deepspeed_keys.h"

#include <algorithm>
#include <iterator>

#include "trainer/words/nearest_name.h"

namespace spillway {
namespace {

using K = DeepSpeedKind;
using F = DeepSpeedFate;

constexpr std::string_view kZero = "zero_optimization", kParam = "zero_optimization.offload_param",
                           kOptimizer = "zero_optimization.offload_optimizer";
constexpr std::string_view kPlanned =
    "the plan sizes buffers, orders transfers and overlaps them itself (spillway plan shows it)";
constexpr std::string_view kDrives = "reads and writes follow what the drives were measured to do (spillway probe)";
constexpr std::string_view kKept =
    "the planner chooses what is kept from forward to backward, computed again or moved (--activation-tier forces it)";
constexpr std::string_view kSums = "gradients are summed in fp32, along one tree";
constexpr std::string_view kWhole = "weights and gradients are sent whole: nothing is quantised";
constexpr std::string_view kOneStep = "every step takes the whole model and the whole batch: no such thing is trained here";
constexpr std::string_view kOneDevice =
    "a model is not cut over devices (what does not fit moves to --nvme, or --ranks shard it)";
constexpr std::string_view kCurves = "nothing is sent out (--tensorboard DIR and --csv FILE write curves)";
constexpr std::string_view kTimes = "log.jsonl has the times and bytes of every step, and spillway report draws them";
constexpr std::string_view kCheckpoints =
    "checkpoints have all that a run needs, on any number of ranks, and spillway export writes the weights";
constexpr std::string_view kMaster = "weights keep an fp32 master, and moments are fp32 (--state compact stores both in 8 bytes)";
constexpr std::string_view kGroups = "--zero-group-size N has N ranks share one copy";
constexpr std::string_view kNoAmp = "apex is not here: fp16.enabled scales losses, and bf16.enabled needs no scale";
constexpr std::string_view kFound =
    "the planner divides the update between device and host by their speed (--update-on forces it)";

constexpr DeepSpeedKey kTable[] = {
    // The size of a step, and what it prints.
    {"", "train_batch_size", K::integer},
    {"", "train_micro_batch_size_per_gpu", K::integer},
    {"", "gradient_accumulation_steps", K::integer},
    {"", "gradient_clipping", K::real},
    {"", "steps_per_print", K::integer},
    {"", "wall_clock_breakdown", K::boolean, F::noted, kTimes, "false"},
    {"", "dump_state", K::boolean, F::noted, kTimes, "false"},
    {"", "memory_breakdown", K::boolean, F::noted, kTimes, "false"},
    {"", "timers", K::feature, F::noted, kTimes},
    {"", "flops_profiler", K::feature, F::noted, kTimes},
    {"", "comms_logger", K::feature, F::noted, kTimes},
    {"", "wandb", K::feature, F::noted, kCurves},
    {"", "comet", K::feature, F::noted, kCurves},
    {"", "communication_data_type", K::text, F::noted, kSums, "\"fp32\""},
    {"", "seq_parallel_communication_data_type", K::text, F::noted, kSums, "\"fp32\""},
    {"", "prescale_gradients", K::boolean, F::noted, kSums, "false"},
    {"", "sparse_gradients", K::boolean, F::noted, kSums, "false"},
    {"", "gradient_predivide_factor", K::real, F::noted, kSums, "1.0"},
    {"", "gradient_accumulation_dtype", K::text, F::noted, kSums, "\"fp32\""},
    {"", "disable_allgather", K::boolean, F::noted, kPlanned, "false"},
    {"", "zero_allow_untested_optimizer", K::boolean, F::silent},
    {"", "zero_force_ds_cpu_optimizer", K::boolean, F::silent},
    {"", "compile", K::block, F::silent},
    {"", "autotuning", K::feature, F::noted, kPlanned},
    {"", "elasticity", K::feature, F::refused, "a run goes on with other ranks by --load, at the batch size that it has"},
    {"", "amp", K::feature, F::refused, kNoAmp},
    {"", "curriculum_learning", K::feature, F::refused, kOneStep},
    {"", "data_efficiency", K::feature, F::refused, kOneStep},
    {"", "progressive_layer_drop", K::feature, F::refused, kOneStep},
    {"", "eigenvalue", K::feature, F::refused, kOneStep},
    {"", "quantize_training", K::feature, F::refused, kOneStep},
    {"", "zenflow", K::feature, F::refused, kOneStep},
    {"", "compression_training", K::block, F::refused, kOneStep, "{}"},
    {"", "sparse_attention", K::block, F::refused, "attention is that of the model's config.json", "{}"},
    {"", "hybrid_engine", K::feature, F::noted, "spillway generate makes text"},
    {"", "tensor_parallel", K::block, F::refused, kOneDevice, "{}"},
    {"", "pipeline", K::block, F::refused, kOneDevice, "{}"},
    {"", "sequence_parallel_size", K::integer, F::refused, kOneDevice, "1"},
    {"", "data_types", K::block},
    {"data_types", "grad_accum_dtype", K::text, F::noted, kSums, "\"fp32\""},
    {"", "checkpoint", K::block, F::noted, kCheckpoints, "{}"},
    {"", "nebula", K::feature, F::noted, kCheckpoints},
    {"", "load_universal_checkpoint", K::boolean, F::noted, kCheckpoints, "false"},

    {"", "optimizer", K::block},
    {"optimizer", "type", K::text},
    {"optimizer", "legacy_fusion", K::boolean, F::silent},
    {"optimizer", "params", K::block},
    {"optimizer.params", "lr", K::real},
    {"optimizer.params", "betas", K::reals},
    {"optimizer.params", "eps", K::real},
    {"optimizer.params", "weight_decay", K::real},
    {"optimizer.params", "torch_adam", K::boolean},
    {"optimizer.params", "adam_w_mode", K::boolean, F::refused, "decay is AdamW's, apart from the gradient", "true"},
    {"optimizer.params", "bias_correction", K::boolean, F::refused, "Adam's moments are corrected for their beginning", "true"},
    {"optimizer.params", "amsgrad", K::boolean, F::refused, "there is no such variant of Adam here", "false"},
    {"optimizer.params", "fp32_optimizer_states", K::boolean, F::noted, kMaster, "true"},

    {"", "scheduler", K::block},
    {"scheduler", "type", K::text},
    {"scheduler", "params", K::block},
    {"scheduler.params", "warmup_min_lr", K::real},
    {"scheduler.params", "warmup_max_lr", K::real},
    {"scheduler.params", "warmup_num_steps", K::integer},
    {"scheduler.params", "warmup_type", K::text},
    {"scheduler.params", "total_num_steps", K::integer},
    {"scheduler.params", "warmup_min_ratio", K::real},
    {"scheduler.params", "cos_min_ratio", K::real},
    {"scheduler.params", "last_batch_iteration", K::real, F::refused, "a run goes on by --load, which has its step", "-1"},

    {"", "fp16", K::block},
    {"fp16", "enabled", K::boolean},
    {"fp16", "auto_cast", K::boolean, F::silent},
    {"fp16", "fp16_master_weights_and_grads", K::boolean, F::noted, kMaster, "false"},
    {"fp16", "consecutive_hysteresis", K::boolean},
    {"fp16", "loss_scale", K::real},
    {"fp16", "min_loss_scale", K::real},
    {"fp16", "initial_scale_power", K::integer},
    {"fp16", "loss_scale_window", K::integer},
    {"fp16", "hysteresis", K::integer},
    {"", "bf16 bfloat16", K::block},
    {"bf16", "enabled", K::boolean},
    {"bf16", "check_grad_overflow", K::boolean, F::silent},
    {"bf16", "immediate_grad_update", K::boolean, F::silent},
    {"bf16", "bf16_master_weights_and_grads", K::boolean, F::noted, kMaster, "false"},
    {"bf16", "bf16_optimizer_states", K::boolean, F::noted, kMaster, "false"},

    {"", "tensorboard", K::block},
    {"tensorboard", "enabled", K::boolean},
    {"tensorboard", "output_path", K::text},
    {"tensorboard", "job_name", K::text},
    {"", "csv_monitor", K::block},
    {"csv_monitor", "enabled", K::boolean},
    {"csv_monitor", "output_path", K::text},
    {"csv_monitor", "job_name", K::text},

    {"", "zero_optimization", K::block},
    {kZero, "stage", K::integer},
    {kZero, "offload_param", K::block},
    {kZero, "offload_optimizer", K::block},
    {kZero, "cpu_offload", K::boolean},
    {kZero, "cpu_offload_param", K::boolean},
    {kZero, "cpu_offload_use_pin_memory", K::boolean, F::noted, kPlanned},
    {kZero, "mics_shard_size", K::real},
    {kZero, "mics_hierarchical_params_gather", K::boolean, F::noted, kGroups, "false"},
    {kZero, "zero_hpz_partition_size", K::integer, F::noted, kGroups, "1"},
    {kZero, "zero_quantized_weights", K::boolean, F::noted, kWhole, "false"},
    {kZero, "zero_quantized_nontrainable_weights", K::boolean, F::noted, kWhole, "false"},
    {kZero, "zero_quantized_gradients", K::boolean, F::noted, kWhole, "false"},
    {kZero, "zeropp_loco_param", K::block, F::noted, kWhole, "{}"},
    {kZero, "zenflow", K::block, F::refused, kOneStep, "{}"},
    {kZero, "contiguous_gradients", K::boolean, F::noted, kPlanned},
    {kZero, "reduce_scatter", K::boolean, F::noted, kPlanned},
    {kZero, "reduce_bucket_size", K::integer, F::noted, kPlanned},
    {kZero, "use_multi_rank_bucket_allreduce", K::boolean, F::noted, kPlanned},
    {kZero, "allgather_partitions", K::boolean, F::noted, kPlanned},
    {kZero, "allgather_bucket_size", K::integer, F::noted, kPlanned},
    {kZero, "overlap_comm", K::boolean, F::noted, kPlanned},
    {kZero, "round_robin_gradients", K::boolean, F::noted, kPlanned, "false"},
    {kZero, "sub_group_size", K::integer, F::noted, kPlanned},
    {kZero, "stage3_prefetch_bucket_size prefetch_bucket_size", K::integer, F::noted, kPlanned},
    {kZero, "stage3_param_persistence_threshold param_persistence_threshold", K::integer, F::noted, kPlanned},
    {kZero, "stage3_model_persistence_threshold model_persistence_threshold", K::real, F::noted, kPlanned},
    {kZero, "stage3_max_live_parameters max_live_parameters", K::integer, F::noted, kPlanned},
    {kZero, "stage3_max_reuse_distance max_reuse_distance", K::integer, F::noted, kPlanned},
    {kZero, "stage3_module_granularity_threshold module_granularity_threshold", K::integer, F::noted, kPlanned, "0"},
    {kZero, "stage3_use_all_reduce_for_fetch_params use_all_reduce_for_fetch_params", K::boolean, F::noted, kPlanned, "false"},
    {kZero, "stage3_gather_16bit_weights_on_model_save gather_16bit_weights_on_model_save", K::boolean, F::noted, kCheckpoints,
     "false"},
    {kZero, "stage3_gather_fp16_weights_on_model_save gather_fp16_weights_on_model_save", K::boolean, F::noted, kCheckpoints,
     "false"},
    {kZero, "elastic_checkpoint", K::boolean, F::noted, kCheckpoints, "false"},
    {kZero, "load_from_fp32_weights", K::boolean, F::noted, kCheckpoints, "true"},
    {kZero, "pipeline_loading_checkpoint", K::boolean, F::silent},
    {kZero, "ignore_unused_parameters", K::boolean, F::silent},
    {kZero, "legacy_stage1", K::boolean, F::silent},
    {kZero, "memory_efficient_linear", K::boolean, F::silent},
    {kZero, "override_module_apply", K::boolean, F::silent},
    {kZero, "log_trace_cache_warnings", K::boolean, F::silent},
    {kZero, "enable_sanity_checks", K::boolean, F::silent},
    {kZero, "leaf_module", K::block, F::silent},

    {kParam, "device", K::text},
    {kParam, "nvme_path", K::text},
    {kParam, "pin_memory", K::boolean, F::noted, kPlanned},
    {kParam, "buffer_count", K::integer, F::noted, kPlanned},
    {kParam, "buffer_size", K::integer, F::noted, kPlanned},
    {kParam, "max_in_cpu", K::integer, F::noted, kPlanned},
    {kOptimizer, "device", K::text},
    {kOptimizer, "nvme_path", K::text},
    {kOptimizer, "pin_memory", K::boolean, F::noted, kPlanned},
    {kOptimizer, "buffer_count", K::integer, F::noted, kPlanned},
    {kOptimizer, "pipeline_read", K::boolean, F::noted, kPlanned},
    {kOptimizer, "pipeline_write", K::boolean, F::noted, kPlanned},
    {kOptimizer, "fast_init", K::boolean, F::noted, kPlanned},
    {kOptimizer, "ratio", K::real, F::noted, kFound, "1.0"},

    {"", "aio", K::block},
    {"aio", "block_size", K::integer, F::noted, kDrives},
    {"aio", "queue_depth", K::integer, F::noted, kDrives},
    {"aio", "intra_op_parallelism thread_count", K::integer, F::noted, kDrives},
    {"aio", "single_submit", K::boolean, F::noted, kDrives},
    {"aio", "overlap_events", K::boolean, F::noted, kDrives},
    {"aio", "use_gds", K::boolean, F::noted, kDrives, "false"},

    {"", "activation_checkpointing", K::block},
    {"activation_checkpointing", "partition_activations", K::boolean, F::noted, kKept, "false"},
    {"activation_checkpointing", "cpu_checkpointing", K::boolean, F::noted, kKept, "false"},
    {"activation_checkpointing", "contiguous_memory_optimization", K::boolean, F::noted, kKept, "false"},
    {"activation_checkpointing", "synchronize_checkpoint_boundary", K::boolean, F::noted, kKept, "false"},
    {"activation_checkpointing", "number_checkpoints", K::integer, F::noted, kKept},
    {"activation_checkpointing", "profile", K::boolean, F::noted, kTimes, "false"},
};

}  // namespace

bool refuses_unknown_keys(std::string_view block) {
  constexpr std::string_view kStrict[] = {kZero, kParam, kOptimizer, "fp16", "bf16", "tensorboard", "csv_monitor"};
  return std::ranges::find(kStrict, block) != std::end(kStrict);
}

const DeepSpeedKey* find_deepspeed_key(std::string_view block, std::string_view name) {
  const auto* found =
      std::ranges::find_if(kTable, [&](const DeepSpeedKey& key) { return key.block == block && has_word(key.names, name); });
  return found == std::end(kTable) ? nullptr : found;
}

std::vector<std::string> deepspeed_names(std::string_view block) {
  std::vector<std::string> names;
  for (const DeepSpeedKey& key : kTable) {
    if (key.block != block) continue;
    for (std::string_view rest = key.names; !rest.empty();) {
      const std::size_t end = std::min(rest.find(' '), rest.size());
      names.emplace_back(rest.substr(0, end));
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
  }
  return names;
}

}  // namespace spillway
