// The flags of where bytes live and who computes: device, tiers, planning, ranks.
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "memory/base/error.h"
#include "trainer/options/flag_rows.h"

namespace spillway {
namespace {

constexpr std::initializer_list<Tier> kUpdatesOn = {Tier::host, Tier::device};

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

void set_device(RunOptions& options, const FlagValue& value) {
  const std::string& text = value.text();
  constexpr std::string_view kAllowed =
      "auto, cpu, cpu-apart, cuda, cuda:N, or cuda:N,N with one for each rank; N from 0 to 1023";
  options.memory.gpus.clear();
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
  if (text.size() < 6 || text[4] != ':') value.refuse(text, kAllowed);
  const char* const last = text.data() + text.size();
  for (const char* at = text.data() + 5;; ++at) {
    int index = -1;
    const auto [end, error] = std::from_chars(at, last, index);
    const bool is_followed = end != last && *end == ',';
    if (error != std::errc() || (end != last && !is_followed) || index < 0 || index > 1023) value.refuse(text, kAllowed);
    options.memory.gpus.push_back(index);
    if (!is_followed) return;
    at = end;
  }
}

json device_json(const RunOptions& options) {
  if (options.memory.device == DeviceChoice::automatic) return nullptr;
  if (options.memory.device == DeviceChoice::cpu) return "cpu";
  if (options.memory.device == DeviceChoice::cpu_apart) return "cpu-apart";
  const std::vector<int>& gpus = options.memory.gpus;
  return gpus.empty() || gpus == std::vector{0} ? "cuda" : fmt::format("cuda:{}", fmt::join(gpus, ","));
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

}  // namespace

void add_memory_flags(std::vector<Flag>& table) {
  const FlagRows add(table, "Memory and planning");
  add("device", "auto|cpu|cpu-apart|cuda[:N,...]", F::text,
      "what computes (default: the first GPU where this program can use one, else the CPU; of plan, the device of --profile). "
      "Each rank takes a GPU, the first ones or those of cuda:N,N; one that is named twice is shared. "
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

void add_ranks_flags(std::vector<Flag>& table) {
  const FlagRows add(table, "Ranks");
  add(
      "ranks", "N", F::integer,
      "data-parallel ranks on this host, threads of this process that share its cores, its memory and its drives; torchrun, "
      "mpirun "
      "and Slurm start processes instead, and say how many. With GPUs each rank has one",
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
      "how ranks talk: as threads of this process; where a launcher started them, over TCP or MPI, or with a GPU each by NCCL; "
      "parameter-server: rank 0 adds up all gradients and sends the sums back, with the same result and more to do for it",
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

}  // namespace spillway
