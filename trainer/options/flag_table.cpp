#include "trainer/options/flag_table.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "memory/base/error.h"
#include "trainer/options/flag_choices.h"

namespace spillway {
namespace {

using nlohmann::json;
using Bound = FlagValue::Bound;

constexpr std::int64_t kMostSteps = std::int64_t{1} << 40;
constexpr std::int64_t kMostSequences = std::int64_t{1} << 30;  // a product of two stays below 2^63
constexpr std::initializer_list<StateForm> kStates = {StateForm::exact, StateForm::compact};
constexpr std::initializer_list<Tier> kUpdatesOn = {Tier::host, Tier::device};
constexpr double kInfinity = std::numeric_limits<double>::infinity();

template <HasNames E>
json choice_json(E value) {
  return name_of(value).empty() ? json() : json(name_of(value));
}
template <HasNames E>
json choice_json(const std::optional<E>& value) {
  return value ? choice_json(*value) : json(kNone);
}

// Sets a word, or the number of micro-batches that go through all units together.
void set_order(MemoryOptions& memory, const FlagValue& value) {
  const std::string text = value.text();
  const bool is_number =
      !text.empty() && text.size() <= 7 && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
  if (value_of<OrderChoice>(text)) return set_choice(memory.order, value);
  if (!is_number || std::stoll(text) == 0)
    value.refuse(text, names_of<OrderChoice>(", ") + ", or how many micro-batches go through all units together");
  memory.order = OrderChoice::groups;
  memory.order_group = std::stoll(text);
}
json order_json(const MemoryOptions& memory) {
  return memory.order == OrderChoice::groups ? json(fmt::format("{}", memory.order_group)) : choice_json(memory.order);
}

void set_stage(ParallelOptions& parallel, const FlagValue& value) {
  const std::string text = value.text();
  if (text == "auto") return parallel.zero_stage.reset();
  if (text.size() != 1 || text[0] < '0' || text[0] > '3') value.refuse(text, "auto, 0, 1, 2, 3");
  parallel.zero_stage = text[0] - '0';
}
json stage_json(const ParallelOptions& parallel) {
  return json(parallel.zero_stage ? fmt::format("{}", *parallel.zero_stage) : "auto");
}

template <typename T>
json optional_json(const std::optional<T>& value) {
  return value ? json(*value) : json(nullptr);
}
json text_json(const std::string& text) { return text.empty() ? json(nullptr) : json(text); }
json list_json(const std::vector<std::string>& texts) { return texts.empty() ? json(nullptr) : json(texts); }
json size_json(const std::optional<Bytes>& bytes) { return bytes ? json(exact_size(*bytes)) : json(nullptr); }
json positive_json(std::int64_t value) { return value == 0 ? json(nullptr) : json(value); }  // 0 stands for "not given"

void set_device(RunOptions& options, const FlagValue& value) {
  const std::string& text = value.text();
  constexpr std::string_view kAllowed = "auto, cpu, cpu-apart, cuda, or cuda:N with N from 0 to 1023";
  options.memory.device_index = 0;
  if (text == "auto") {
    options.memory.device = DeviceChoice::automatic;
    return;
  }
  if (text == "cpu") {
    options.memory.device = DeviceChoice::cpu;
    return;
  }
  if (text == "cpu-apart") {
    options.memory.device = DeviceChoice::cpu_apart;
    return;
  }
  if (!text.starts_with("cuda")) value.refuse(text, kAllowed);
  options.memory.device = DeviceChoice::cuda;
  if (text == "cuda") return;
  const char* first = text.data() + 5;
  const char* last = text.data() + text.size();
  int index = -1;
  if (text.size() < 6 || text[4] != ':') value.refuse(text, kAllowed);
  const auto [end, error] = std::from_chars(first, last, index);
  if (error != std::errc() || end != last || index < 0 || index > 1023) value.refuse(text, kAllowed);
  options.memory.device_index = index;
}

json device_json(const RunOptions& options) {
  if (options.memory.device == DeviceChoice::automatic) return nullptr;
  if (options.memory.device == DeviceChoice::cpu) return "cpu";
  if (options.memory.device == DeviceChoice::cpu_apart) return "cpu-apart";
  return options.memory.device_index == 0 ? "cuda" : fmt::format("cuda:{}", options.memory.device_index);
}

// Reads DIR[=SIZE]. A directory's own name may contain '=': an existing directory is meant whole; otherwise the last '='
// separates the size, and only if a number follows it ("a=5/" is a name).
void set_nvme(RunOptions& options, const FlagValue& value) {
  options.memory.nvme.clear();
  for (const std::string& text : value.texts()) {
    NvmeDirectory directory{text, std::nullopt};
    std::error_code ignored;
    const std::size_t equals = std::filesystem::is_directory(text, ignored) ? std::string::npos : text.rfind('=');
    if (equals != std::string::npos) {
      const std::string_view right = std::string_view(text).substr(equals + 1);
      if (const std::optional<Bytes> size = try_parse_size(right)) {
        if (*size == 0) value.refuse(text, "DIR, or DIR=SIZE with a SIZE above 0");
        directory = {text.substr(0, equals), size};
      } else if (!right.empty() && (right[0] == '-' || (right[0] >= '0' && right[0] <= '9')) && right.find('/') == right.npos) {
        value.refuse(text, "DIR, or DIR=SIZE with SIZE in bytes or with KiB, MiB, GiB or TiB");
      }
    }
    if (directory.path.empty()) value.refuse(text, "DIR, or DIR=SIZE, with a directory before the '='");
    options.memory.nvme.push_back(std::move(directory));
  }
}

json nvme_json(const RunOptions& options) {
  std::vector<std::string> texts;
  for (const NvmeDirectory& directory : options.memory.nvme) {
    const std::size_t equals = directory.path.rfind('=');
    const bool could_be_size = equals != std::string::npos && directory.path.find('/', equals) == std::string::npos;
    texts.push_back(directory.size  ? fmt::format("{}={}", directory.path, exact_size(*directory.size))
                    : could_be_size ? directory.path + "/"  // still reads as a name once the directory is gone
                                    : directory.path);
  }
  return list_json(texts);
}

double at_least_zero(const FlagValue& value) { return value.real(0, Bound::included, kInfinity, Bound::excluded); }
double below_one(const FlagValue& value) { return value.real(0, Bound::included, 1, Bound::excluded); }
std::int64_t steps(const FlagValue& value, std::int64_t least) { return value.integer(least, kMostSteps); }

using F = FlagKind;

// Adds the rows of one group; the help lists them under one heading.
class FlagRows {
 public:
  FlagRows(std::vector<Flag>& table, const char* group) : table_(table), group_(group) {}
  // The lambdas capture nothing, so they are plain functions: a row is data.
  void operator()(const char* name, std::string value, F kind, const char* help, void (*set)(RunOptions&, const FlagValue&),
                  json (*get)(const RunOptions&)) const {
    table_.push_back({name, group_, std::move(value), kind, help, set, get});
  }

 private:
  std::vector<Flag>& table_;
  const char* group_;
};

#define SET [](RunOptions & o, const FlagValue& v)
#define GET [](const RunOptions& o) -> json

void add_model(std::vector<Flag>& table) {
  const FlagRows add(table, "Model");
  add(
      "model", "PATH|NAME", F::text,
      "a Hugging Face directory, a config.json, or a name from the built-in catalogue; a directory's weights are read, others "
      "are drawn from --seed",
      SET { o.model.model = v.text(); }, GET { return text_json(o.model.model); });
  add(
      "seed", "N", F::integer, "of drawn weights, data order and rounding", SET { o.model.seed = v.unsigned_integer(); },
      GET { return o.model.seed; });
  add(
      "init", names_of<WeightInit>("|"), F::text,
      "weights of a directory: its own, which must be there (checkpoint), or drawn from --seed (random)",
      SET { set_choice(o.model.init, v); }, GET { return choice_json(o.model.init); });
}

void add_data(std::vector<Flag>& table) {
  const FlagRows add(table, "Data");
  add(
      "data", "PATH", F::list,
      "files or directories: .txt, .jsonl (input_ids with optional labels, text, or messages), .bin (token files)",
      SET { o.data.data = v.texts(); }, GET { return list_json(o.data.data); });
  add(
      "eval-data", "PATH", F::list, "the same, to evaluate on", SET { o.data.eval_data = v.texts(); },
      GET { return list_json(o.data.eval_data); });
  add(
      "tokenizer", "PATH|bytes", F::text, "of text; bytes: one token a byte (default: the model's own)",
      SET { o.data.tokenizer = v.text(); }, GET { return text_json(o.data.tokenizer); });
  add(
      "data-format", names_of<DataFormat>("|"), F::text, "of .bin files: auto reads the header of llm.c, u16 is raw",
      SET { set_choice(o.data.format, v); }, GET { return choice_json(o.data.format); });
  add(
      "data-order", names_of<DataOrder>("|"), F::text, "shuffled: by --seed, a new permutation each epoch",
      SET { set_choice(o.data.order, v); }, GET { return choice_json(o.data.order); });
  add(
      "truncate", "", F::boolean, "cut JSONL rows longer than the sequence rather than refuse them",
      SET { o.data.truncate = v.text() == "true"; }, GET { return o.data.truncate; });
  add(
      "skip-bad-lines", "", F::boolean, "leave out rows of JSONL that are not right, and count them",
      SET { o.data.skip_bad_lines = v.text() == "true"; }, GET { return o.data.skip_bad_lines; });
  add(
      "drop-last", "", F::boolean,
      "leave out the last sequences of an epoch where they do not fill a step (else the next epoch does)",
      SET { o.data.drop_last = v.text() == "true"; }, GET { return o.data.drop_last; });
  add(
      "train-on", names_of<TrainOn>("|"), F::text, "turns of a conversation that have loss; this version: all",
      SET { set_choice(o.data.train_on, v); }, GET { return choice_json(o.data.train_on); });
}

void add_batch(std::vector<Flag>& table) {
  const FlagRows add(table, "Batch");
  add(
      "micro-batch-size", "N", F::integer, "sequences of a micro-batch on a rank",
      SET { o.batch.micro_batch_size = v.integer(1, kMostSequences); }, GET { return o.batch.micro_batch_size; });
  add(
      "global-batch-size", "N", F::integer, "sequences of a step over all ranks (default: one micro-batch a rank)",
      SET { o.batch.global_batch_size = v.integer(1, kMostSequences); },
      GET { return positive_json(o.batch.global_batch_size); });
  add(
      "seq-length", "N", F::integer, "tokens trained of a sequence (default: the model's longest, at most 1024)",
      SET { o.batch.seq_length = v.integer(1, kMostSequences); }, GET { return positive_json(o.batch.seq_length); });
  add("train-iters", "N", F::integer, "steps", SET { o.batch.train_iters = steps(v, 1); }, GET { return o.batch.train_iters; });
}

void add_optimizer(std::vector<Flag>& table) {
  const FlagRows add(table, "Optimizer");
  add(
      "optimizer", names_of<OptimizerChoice>("|"), F::text, "", SET { set_choice(o.optimizer.optimizer, v); },
      GET { return choice_json(o.optimizer.optimizer); });
  add(
      "weight-decay", "R", F::real, "on parameters of two or more dimensions only",
      SET { o.optimizer.weight_decay = at_least_zero(v); }, GET { return o.optimizer.weight_decay; });
  add("adam-beta1", "R", F::real, "", SET { o.optimizer.adam_beta1 = below_one(v); }, GET { return o.optimizer.adam_beta1; });
  add("adam-beta2", "R", F::real, "", SET { o.optimizer.adam_beta2 = below_one(v); }, GET { return o.optimizer.adam_beta2; });
  add(
      "adam-eps", "R", F::real, "", SET { o.optimizer.adam_eps = v.real(0, Bound::excluded, kInfinity, Bound::excluded); },
      GET { return o.optimizer.adam_eps; });
  add(
      "clip-grad", "R", F::real, "largest norm of the whole gradient; 0: no clipping",
      SET { o.optimizer.clip_grad = at_least_zero(v); }, GET { return o.optimizer.clip_grad; });
  add(
      "expected-clip-rate", "R", F::real,
      "share of steps in which clipping is expected to act; the planner weighs speculation with it",
      SET { o.optimizer.expected_clip_rate = v.real(0, Bound::included, 1, Bound::included); },
      GET { return o.optimizer.expected_clip_rate; });
}

void add_learning_rate(std::vector<Flag>& table) {
  const FlagRows add(table, "Learning rate");
  add("lr", "R", F::real, "after warm-up", SET { o.schedule.lr = at_least_zero(v); }, GET { return o.schedule.lr; });
  add(
      "min-lr", "R", F::real, "at the end of the decay", SET { o.schedule.min_lr = at_least_zero(v); },
      GET { return o.schedule.min_lr; });
  add(
      "lr-warmup-iters", "N", F::integer, "steps of linear warm-up", SET { o.schedule.lr_warmup_iters = steps(v, 0); },
      GET { return o.schedule.lr_warmup_iters; });
  add(
      "lr-decay-iters", "N", F::integer, "step at which the decay, warm-up included, has ended (default: --train-iters)",
      SET { o.schedule.lr_decay_iters = steps(v, 1); }, GET { return optional_json(o.schedule.lr_decay_iters); });
  add(
      "lr-decay-style", names_of<DecayStyle>("|"), F::text, "wsd: constant, then linear over the last --lr-wsd-decay-iters",
      SET { set_choice(o.schedule.lr_decay_style, v); }, GET { return choice_json(o.schedule.lr_decay_style); });
  add(
      "lr-wsd-decay-iters", "N", F::integer, "of wsd, its last steps (default: a tenth of the decay steps)",
      SET { o.schedule.lr_wsd_decay_iters = steps(v, 1); }, GET { return optional_json(o.schedule.lr_wsd_decay_iters); });
}

void add_precision(std::vector<Flag>& table) {
  const FlagRows add(table, "Precision");
  add(
      "dtype", names_of<DType>("|"), F::text, "of the computation; this version: bf16, fp32",
      SET { set_choice(o.precision.dtype, v); }, GET { return choice_json(o.precision.dtype); });
  add(
      "state", names_of<StateForm>("|", kStates), F::text, "stored weights and moments: exact 12 bytes a parameter, compact 8",
      SET { set_choice(o.precision.state, v, kStates); }, GET { return choice_json(o.precision.state); });
}

void add_memory_and_planning(std::vector<Flag>& table) {
  const FlagRows add(table, "Memory and planning");
  add("device", "auto|cpu|cpu-apart|cuda[:N]", F::text,
      "what computes (default: the first GPU where this program can use one, else the CPU; of plan, the device of --profile). "
      "cpu-apart: the CPU with memory apart from the host's, to try what a GPU's tiers do without one; slower",
      set_device, device_json);
  add(
      "device-memory", "SIZE", F::size, "budget; with --device cpu a part of RAM (default: what is free, of a GPU less a margin)",
      SET { o.memory.budget[Tier::device] = v.size(1); }, GET { return size_json(o.memory.budget[Tier::device]); });
  add(
      "host-memory", "SIZE", F::size,
      "budget of the host's memory for a device of its own (default: what is available less a margin)",
      SET { o.memory.budget[Tier::host] = v.size(0); }, GET { return size_json(o.memory.budget[Tier::host]); });
  add("nvme", "DIR[=SIZE]", F::list, "directory for state that does not fit; repeat it to stripe over several (default: none)",
      set_nvme, nvme_json);
  add(
      "parameter-tier", names_of<std::optional<Tier>>("|"), F::text, "where weights rest; auto: the planner's choice",
      SET { set_choice(o.memory.parameter_tier, v); }, GET { return choice_json(o.memory.parameter_tier); });
  add(
      "optimizer-tier", names_of<std::optional<Tier>>("|"), F::text, "where optimizer states rest",
      SET { set_choice(o.memory.optimizer_tier, v); }, GET { return choice_json(o.memory.optimizer_tier); });
  add(
      "activation-tier", names_of<SavedRequest>("|"), F::text, "where activations wait for the backward pass",
      SET { set_choice(o.memory.activation_tier, v); }, GET { return choice_json(o.memory.activation_tier); });
  add(
      "update-on", names_of<std::optional<Tier>>("|", kUpdatesOn), F::text,
      "where the optimizer runs: on a device with memory of its own, or on its host; same bits",
      SET { set_choice(o.memory.update_on, v, kUpdatesOn); }, GET { return choice_json(o.memory.update_on); });
  add(
      "order", names_of<OrderChoice>("|") + "|N", F::text,
      "horizontal: micro-batch by micro-batch; vertical: unit by unit, each for all of them; N: for groups of so many",
      SET { set_order(o.memory, v); }, GET { return order_json(o.memory); });
  add(
      "update", names_of<std::optional<UpdateTime>>("|"), F::text, "when weights are updated; none of them changes the result",
      SET { set_choice(o.memory.update, v); }, GET { return choice_json(o.memory.update); });
  add(
      "durability", names_of<Durability>("|"), F::text,
      "what a kill goes back to: the last step (two slots on NVMe) or the last checkpoint (one) (default: step where --nvme has "
      "room; another run may then turn what a killed one left there into a checkpoint of that run, where it is asked for it "
      "refuses)",
      SET { set_choice(o.memory.durability, v); }, GET { return choice_json(o.memory.durability); });
  add(
      "durability-interval", "N", F::integer,
      "where steps are durable: every N-th is; 0: each, or as seldom as keeps the copying of state on the device "
      "below a fiftieth of the time",
      SET { o.memory.durability_interval = steps(v, 0); }, GET { return o.memory.durability_interval; });
  add(
      "threads", "N", F::integer,
      "that compute and update (default: the cores that affinity and the control group's quota give the process)",
      SET { o.parallel.threads = v.integer(1, 1024); }, GET { return positive_json(o.parallel.threads); });
  add(
      "plan", "FILE", F::text, "run exactly this saved plan", SET { o.memory.plan = v.text(); },
      GET { return text_json(o.memory.plan); });
  add(
      "profile", "NAME|FILE", F::text, "plan for this machine profile: a file, or a machine that plan knows by name",
      SET { o.memory.profile = v.text(); }, GET { return text_json(o.memory.profile); });
}

void add_ranks(std::vector<Flag>& table) {
  const FlagRows add(table, "Ranks");
  add(
      "ranks", "N", F::integer,
      "data-parallel ranks on this host, threads of this process that share its cores, its memory and its drives; torchrun, "
      "mpirun "
      "and Slurm start processes instead, and say how many; several are trained on the CPU, and planned for GPUs",
      SET { o.parallel.ranks = v.integer(1, 1 << 20); }, GET { return o.parallel.ranks; });
  add(
      "zero-stage", "auto|0..3", F::text,
      "what is sharded over ranks: 0 nothing (DDP), 1 and 2 optimizer states and gradients, 3 weights, too; none of them changes "
      "the result (default: the fastest)",
      SET { set_stage(o.parallel, v); }, GET { return stage_json(o.parallel); });
  add(
      "zero-group-size", "N", F::integer,
      "ranks that share one copy of what is sharded: a power of two that divides the ranks, or all (default: all)",
      SET { o.parallel.zero_group_size = v.integer(1, 1 << 20); }, GET { return positive_json(o.parallel.zero_group_size); });
  add(
      "collectives", names_of<CollectivesChoice>("|"), F::text,
      "how ranks talk: as threads of this process, or over TCP where a launcher started them; parameter-server: rank 0 adds up "
      "all gradients and sends the sums back, with "
      "the "
      "same result and more to do for it",
      SET { set_choice(o.parallel.collectives, v); }, GET { return choice_json(o.parallel.collectives); });
  add(
      "reduce-algorithm", names_of<ReduceAlgorithm>("|"), F::text,
      "how gradients are added over ranks: along one tree, whatever is sharded; or round a ring, as the textbooks have it, with "
      "bits of its own",
      SET { set_choice(o.parallel.reduce_algorithm, v); }, GET { return choice_json(o.parallel.reduce_algorithm); });
  add(
      "rendezvous-timeout", "S", F::integer, "seconds that ranks which a launcher started wait for each other",
      SET { o.parallel.rendezvous_timeout = v.integer(1, 1 << 20); }, GET { return o.parallel.rendezvous_timeout; });
  add(
      "rendezvous-port", "N", F::integer, "on which rank 0 of a launcher's listens (default: MASTER_PORT + 1, or 29501)",
      SET { o.parallel.rendezvous_port = v.integer(1, 65535); }, GET { return positive_json(o.parallel.rendezvous_port); });
  add(
      "sum-groups", "G", F::integer, "groups of micro-batches over which gradients are summed along a tree; this version: 1",
      SET { o.parallel.sum_groups = v.integer(1, 1 << 20); }, GET { return o.parallel.sum_groups; });
}

void add_run_directory(std::vector<Flag>& table) {
  const FlagRows add(table, "Run directory");
  add(
      "save", "DIR", F::text, "where run.json, plan.json, log.jsonl and checkpoints go (default: nothing is saved)",
      SET { o.checkpoint.save = v.text(); }, GET { return text_json(o.checkpoint.save); });
  add(
      "load", "DIR", F::text, "go on with this run directory; its run.json is read before --config and flags",
      SET { o.checkpoint.load = v.text(); }, GET { return text_json(o.checkpoint.load); });
  add(
      "save-interval", "N", F::integer,
      "steps between checkpoints, copied beside training where steps are durable; 0: at the end only",
      SET { o.checkpoint.save_interval = steps(v, 0); }, GET { return o.checkpoint.save_interval; });
  add(
      "keep-last", "N", F::integer, "checkpoints kept; 0: all", SET { o.checkpoint.keep_last = steps(v, 0); },
      GET { return o.checkpoint.keep_last; });
}

void add_output(std::vector<Flag>& table) {
  const FlagRows add(table, "Output");
  add(
      "log-interval", "N", F::integer, "steps between lines in a pipe or file (log.jsonl has every step)",
      SET { o.log.log_interval = steps(v, 1); }, GET { return o.log.log_interval; });
  add(
      "eval-interval", "N", F::integer, "steps between evaluations on --eval-data", SET { o.log.eval_interval = steps(v, 1); },
      GET { return o.log.eval_interval; });
  add(
      "drift-threshold", "R", F::real,
      "share by which steps may take longer than planned before the log says, once, which lane and operations; 0: off",
      SET { o.log.drift_threshold = at_least_zero(v); }, GET { return o.log.drift_threshold; });
  add(
      "tensorboard", "DIR", F::text, "write loss, norm, rate, speed and evaluations as TensorBoard reads them",
      SET { o.log.tensorboard = v.text(); }, GET { return text_json(o.log.tensorboard); });
  add(
      "csv", "FILE", F::text, "write what log.jsonl has as a table, too", SET { o.log.csv = v.text(); },
      GET { return text_json(o.log.csv); });
  add(
      "sample-interval", "N", F::integer, "steps between samples of what the model says after --sample-prompt; 0: none",
      SET { o.log.sample_interval = steps(v, 0); }, GET { return o.log.sample_interval; });
  add(
      "sample-prompt", "TEXT", F::text, "what samples go on from, greedily", SET { o.log.sample_prompt = v.text(); },
      GET { return text_json(o.log.sample_prompt); });
  add(
      "sample-tokens", "N", F::integer, "tokens of a sample; each takes a forward over one micro-batch",
      SET { o.log.sample_tokens = v.integer(1, 1 << 20); }, GET { return o.log.sample_tokens; });
  add(
      "format", names_of<OutputFormat>("|"), F::text, "of plan, and of --print-config", SET { set_choice(o.log.format, v); },
      GET { return choice_json(o.log.format); });
  add(
      "out", "FILE", F::text, "the file to write (default: standard output)", SET { o.log.out = v.text(); },
      GET { return text_json(o.log.out); });
  add(
      "nvme-tbw", "SIZE", F::text,
      "bytes that each drive of --nvme is rated to have written to it, as in 600TB: plan says how many steps that is",
      SET { o.log.nvme_tbw = v.size(1, SizeUnits::binary_and_decimal); }, GET { return size_json(o.log.nvme_tbw); });
}

#undef SET
#undef GET

std::vector<Flag> make_table() {
  std::vector<Flag> table;
  for (const auto add : {add_model, add_data, add_batch, add_optimizer, add_learning_rate, add_precision, add_memory_and_planning,
                         add_ranks, add_run_directory, add_output})
    add(table);
  return table;
}

}  // namespace

std::span<const Flag> flag_table() {
  static const std::vector<Flag> table = make_table();  // constant: made once, never changed
  return table;
}

const Flag* find_flag(std::string_view name) {
  const auto table = flag_table();
  const auto found = std::ranges::find(table, name, &Flag::name);
  return found == table.end() ? nullptr : &*found;
}

std::vector<std::string> flag_names() {
  std::vector<std::string> names;
  for (const Flag& flag : flag_table()) names.push_back(flag.name);
  return names;
}

}  // namespace spillway
