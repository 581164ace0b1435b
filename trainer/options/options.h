// The options of plan, train and verify: one struct that determines everything that a run does.
// Not here: how it is filled (resolve_options.h), which options go together (validate_options.h), and whether the model, the data
// and the machine fit them; the code that opens these checks that.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "memory/base/types.h"
#include "memory/plan/choice_names.h"
#include "trainer/host/launch.h"
#include "trainer/options/data_columns.h"
#include "trainer/options/eval_split.h"

namespace spillway {

enum class WeightInit : std::uint8_t { checkpoint, random };
enum class DataOrder : std::uint8_t { shuffled, sequential };
enum class DataFormat : std::uint8_t { automatic, u16 };
enum class TrainOn : std::uint8_t { assistant, last, all };
enum class TextEnds : std::uint8_t { both, none };
enum class DecayStyle : std::uint8_t { constant, linear, cosine, wsd };
enum class LrRule : std::uint8_t { spillway, deepspeed };  // lr_schedule.h says how they differ
enum class WarmupStyle : std::uint8_t { linear, log };
enum class LossScalePolicy : std::uint8_t { deepspeed, pytorch };
enum class OptimizerChoice : std::uint8_t { adamw };
enum class DeviceChoice : std::uint8_t { automatic, cpu, cuda, cpu_apart };
enum class OrderChoice : std::uint8_t { automatic, horizontal, vertical, groups };
enum class CollectivesChoice : std::uint8_t { automatic, threads, tcp, mpi, nccl, parameter_server };
enum class ReduceAlgorithm : std::uint8_t { direct, ring };
enum class OutputFormat : std::uint8_t { table, json, html };

struct ModelOptions {
  std::string model;  // a directory, a config.json or a catalogue name
  std::string hub;    // ORG/NAME@HASH, if --model said a name of the hub; then `model` is where the cache has it
  std::uint64_t seed = 1234;
  WeightInit init = WeightInit::checkpoint;  // random: drawn from the seed, even if the directory has weights
  // Coefficients of the losses of a mixture's routers, in place of the model's own; 0: no such loss.
  std::optional<double> balance_coefficient, router_z_coefficient;
  // The run directory's own copies, for a loaded run that goes on with the model that it began with. Not flags; resolve_options
  // finds them.
  std::string kept_config, kept_tokenizer;
};

// Adapters on a frozen model (adapter_of.h says what follows from these).
struct AdapterOptions {
  std::int64_t rank = 0;             // 0: not given
  std::optional<double> alpha;       // the rank where not given
  std::optional<double> dropout;     // that of --adapter, or 0, where not given
  std::vector<std::string> targets;  // names of layers, or "all-linear"; empty: not given, all-linear
  std::string directory;             // an adapter to start from, or to run
  // The run directory's own copy of adapter_config.json, for a loaded run. Not a flag.
  std::string kept_config;
};

// The folder of a run directory that has a copy of what the run read from standard input.
inline constexpr const char* kKeptInput = "standard-input";

struct DataOptions {
  std::vector<std::string> data;       // files and directories; "-": standard input
  std::vector<std::string> eval_data;  // the same
  std::string tokenizer;               // empty: the model's own; "bytes"; or a path
  DataFormat format = DataFormat::automatic;
  DataOrder order = DataOrder::shuffled;
  bool truncate = false;
  bool packing = false;     // rows lie together in sequences, as documents that do not see each other
  bool split_rows = false;  // with packing: rows longer than a sequence go on in another
  bool skip_bad_lines = false;
  DataColumns columns;                    // other names of keys
  std::optional<EvalSplit> eval_split;    // rows of `data` that are held back, by the seed, and evaluated on
  bool drop_last = false;                 // the last sequences of an epoch that do not fill a step
  TrainOn train_on = TrainOn::assistant;  // turns of a conversation that have loss
  std::string template_date;              // YYYY-MM-DD, which chat templates learn; empty: today's
  TextEnds text_ends = TextEnds::both;    // both: rows of text get the tokenizer's leading tokens and its end token
  bool evaluates() const { return !eval_data.empty() || eval_split.has_value(); }
  // With packing, once the data are read: Packs::mean_document, by which plans count the work of attention. Not a flag.
  double mean_document = 0;
};

struct BatchOptions {
  std::int64_t micro_batch_size = 1;
  std::int64_t global_batch_size = 0;  // 0 until resolved: then micro_batch_size × ranks where not given
  std::int64_t seq_length = 0;         // 0: the model's longest sequence, at most kDefaultSeqLength (see seq_length_for)
  std::int64_t train_iters = 100;
  std::optional<double> epochs;  // passes over the data; train_iters follows from it once the data are read (settle_by_data)
};

struct OptimizerOptions {
  OptimizerChoice optimizer = OptimizerChoice::adamw;
  double weight_decay = 0.01;
  double adam_beta1 = 0.9;
  double adam_beta2 = 0.999;
  double adam_eps = 1e-8;
  double clip_grad = 1.0;           // 0: off
  double expected_clip_rate = 1.0;  // share of steps in which clipping is expected to act
};

struct ScheduleOptions {
  double lr = 3e-4;
  double min_lr = 0;
  std::int64_t lr_warmup_iters = 0;
  std::optional<double> lr_warmup_fraction;        // of the decay steps, in place of lr_warmup_iters
  std::optional<std::int64_t> lr_decay_iters;      // train_iters where not given
  std::optional<std::int64_t> lr_wsd_decay_iters;  // a tenth of the decay steps where not given
  DecayStyle lr_decay_style = DecayStyle::linear;
  LrRule lr_rule = LrRule::spillway;
  double lr_warmup_init = 0;  // the rate that warm-up begins from
  WarmupStyle lr_warmup_style = WarmupStyle::linear;
};

// Of fp16 alone (loss_scale.h has the policies and the defaults of what is not given).
struct LossScaleOptions {
  std::optional<double> fixed;  // the scale of all steps; not given: the policy's
  std::optional<LossScalePolicy> policy;
  std::optional<double> initial, least;
  std::optional<std::int64_t> window, hysteresis;
  bool consecutive_hysteresis = false;
  bool operator==(const LossScaleOptions&) const = default;
};

struct PrecisionOptions {
  DType dtype = DType::bfloat16;
  StateForm state = StateForm::exact;  // exact or compact; form_of() combines it with dtype
  LossScaleOptions loss_scale;
};

// The form in which state is stored.
inline StateForm form_of(const PrecisionOptions& precision) {
  if (precision.dtype == DType::float16) return StateForm::fp16;
  return precision.dtype == DType::float32 ? StateForm::fp32 : precision.state;
}

struct NvmeDirectory {
  std::string path;
  std::optional<Bytes> size;  // all free space if not given
};

// Budgets of a rank which its process has told to others, so that they hold whatever is free later.
struct SettledBudgets {
  By<Tier, Bytes> bytes;
  By<Tier, std::string> of;  // whose they are, as all plan with the least: "rank 1 (10.0.0.2)"; empty: this process's own
};

struct MemoryOptions {
  DeviceChoice device = DeviceChoice::automatic;
  std::vector<int> gpus;                  // of cuda:N,N: one for each rank of this host; empty: the first ones
  By<Tier, std::optional<Bytes>> budget;  // limits of the tiers in memory: --device-memory and the like
  std::optional<SettledBudgets> settled;  // no flag
  std::vector<NvmeDirectory> nvme;
  // The planner chooses a value that is not given.
  std::optional<Tier> parameter_tier, optimizer_tier;
  SavedRequest activation_tier = SavedRequest::automatic;
  std::optional<Tier> update_on;  // host or device
  OrderChoice order = OrderChoice::automatic;
  std::int64_t order_group = 0;  // OrderChoice::groups only: micro-batches in each group
  std::optional<UpdateTime> update;
  Durability durability = Durability::automatic;  // automatic: step if the directories have room
  std::int64_t durability_interval = 0;           // steps from one durable step to the next; 0: the plan determines it
  std::string plan;                               // a saved plan to run
  std::string profile;                            // a machine profile to plan for: a file, or a shipped one's name
};

// The GPUs of this machine that a run takes.
struct GpuHere {
  std::vector<int> of_ranks;  // [ranks of this host]; one that appears twice is shared
  std::string name;           // of this process's first
  Bytes free = 0, total = 0;  // of GPU memory: the least share of a rank of this process, before the run took any
  int of(int rank) const { return of_ranks.at(static_cast<std::size_t>(rank)); }
};

struct ParallelOptions {
  std::int64_t ranks = 1;
  std::optional<int> zero_stage;     // not given: the fastest of those that fit
  std::int64_t zero_group_size = 0;  // 0: all ranks
  CollectivesChoice collectives = CollectivesChoice::automatic;
  ReduceAlgorithm reduce_algorithm = ReduceAlgorithm::direct;
  std::int64_t sum_groups = 1;            // groups of micro-batches; gradients are summed over the groups along a tree
  std::optional<Launch> launch;           // where a launcher started the ranks, as processes; no flag
  std::int64_t rendezvous_timeout = 300;  // seconds that ranks wait for each other
  std::int64_t rendezvous_port = 0;       // 0: as the launcher has it
  std::int64_t ranks_here() const { return launch ? launch->local_ranks : ranks; }  // on this host
  std::int64_t threads = 0;  // of all ranks; 0: as many as affinity and the control group's quota allow
};

struct CheckpointOptions {
  std::string save;
  std::string load;
  std::int64_t save_interval = 0;  // 0: at the end only
  std::int64_t keep_last = 0;      // 0: all
  bool keep_best = false;          // also the one of the lowest loss of an evaluation
};

// When training ends before its last step.
struct StoppingOptions {
  std::optional<std::int64_t> patience;  // evaluations in a row without gain
  double threshold = 0;                  // what the loss must fall by to be a gain
};

struct LogOptions {
  std::int64_t log_interval = 1;
  std::int64_t eval_interval = 1000;
  std::string tensorboard;                 // a directory for event files; empty: none
  std::string csv;                         // a file; empty: none
  std::int64_t sample_interval = 0;        // steps between samples of text; 0: none
  std::string sample_prompt, sample_chat;  // one of them where there are samples
  std::int64_t sample_tokens = 32;
  OutputFormat format = OutputFormat::table;  // format of plan and of --print-config
  std::string out;                            // output of plan
  double drift_threshold = 0.25;              // fraction over the planned step at which the log says why; 0: off
  std::optional<Bytes> nvme_tbw;              // bytes that a drive is rated to take in writes
};

struct RunOptions {
  ModelOptions model;
  AdapterOptions adapter;
  DataOptions data;
  BatchOptions batch;
  OptimizerOptions optimizer;
  ScheduleOptions schedule;
  PrecisionOptions precision;
  MemoryOptions memory;
  ParallelOptions parallel;
  CheckpointOptions checkpoint;
  StoppingOptions stopping;
  LogOptions log;
  // Not a flag: settle_device() (trainer/machine/open_device.h) sets it if --device is cuda or resolves to cuda.
  std::optional<GpuHere> gpu;

  std::int64_t micro_batches() const { return batch.global_batch_size / (batch.micro_batch_size * parallel.ranks); }
};

inline bool is_apart(const RunOptions& options) { return options.memory.device == DeviceChoice::cpu_apart; }
// Returns true if the run's device on this machine has memory of its own beside the host's.
inline bool has_own_memory(const RunOptions& options) { return is_apart(options) || options.gpu.has_value(); }

// --threads, or else the number of cores that the process may use.
int threads_of(const RunOptions& options);
int threads_of_rank(const RunOptions& options);  // its share, at least one
// Upper bound of all threads of the run, including those of lanes.
int threads_of_run(const RunOptions& options);

inline constexpr std::int64_t kDefaultSeqLength = 1024;
// Checks --seq-length against the model's longest sequence (0: no limit). Returns the default if it is not given; throws
// InputError if it is longer.
std::int64_t seq_length_for(const RunOptions& options, std::int64_t max_positions);

}  // namespace spillway
