#include "trainer/plan/would_fit.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include "memory/base/error.h"
#include "memory/base/freed_memory.h"
#include "nvme/store.h"
#include "trainer/host/host.h"
#include "trainer/machine/nvme_directories.h"
#include "trainer/machine/profile_file.h"
#include "trainer/plan/budgets.h"
#include "trainer/plan/plan_flags.h"
#include "trainer/plan/plan_request.h"
#include "trainer/plan/saved_plan.h"
#include "trainer/words/size.h"

namespace spillway {
namespace {

struct Offer {
  RunOptions options;
  FlagList flags;
};

// Rounded for reading: to whole MiB, large sizes to whole GiB.
Bytes rounded_up(Bytes bytes) { return round_up(bytes, bytes < 16 * kGiB ? kMiB : bytes < 1024 * kGiB ? kGiB : 16 * kGiB); }

// Gives the --nvme directories `bytes` in all, and none of them less than it was given.
void give_nvme(Offer& offer, Bytes bytes) {
  std::vector<NvmeDirectory>& directories = offer.options.memory.nvme;
  const auto count = static_cast<Bytes>(directories.size());
  // Several directories are filled in whole stripes.
  const Bytes share = round_up((bytes + count - 1) / count, count > 1 ? StoreOptions{}.stripe_bytes : kMiB);
  for (NvmeDirectory& directory : directories) {
    directory.size = std::max(directory.size.value_or(0), share);
    offer.flags.push_back("--nvme " + shell_word(fmt::format("{}={}", directory.path, exact_size(*directory.size))));
  }
}

// An existing directory that probably has room: the one that contains --save, else the current one.
std::string directory_near(const std::string& save) {
  std::error_code ignored;
  for (std::filesystem::path place = save; !place.empty() && place.has_relative_path(); place = place.parent_path()) {
    const std::filesystem::path parent = place.parent_path();
    if (!parent.empty() && std::filesystem::is_directory(parent, ignored)) return parent.string();
  }
  return ".";
}

void give(Offer& offer, Tier tier, Bytes bytes) {
  if (!in_memory(tier)) return give_nvme(offer, bytes);
  const std::string flag = fmt::format("--{}-memory ", name_of(tier));
  std::erase_if(offer.flags, [&](const std::string& given) { return given.starts_with(flag); });
  offer.options.memory.budget[tier] = bytes;
  offer.flags.push_back(flag + exact_size(bytes));
}

class Offers {
 public:
  Offers(const PlannedRun& run, const PreparedModel& model, const RunOptions& options)
      : run_(run), model_(model), options_(options), is_elsewhere_(is_elsewhere(options, run.machine)) {}

  // Offers a larger budget on the tier that was short.
  void add_larger_memory() {
    const Tier tier = run_.outcome.short_tier;
    const std::optional<Offer> offer = grown({options_, {}}, tier, of_flag(tier, run_.outcome.needed), run_.machine);
    if (offer) add(offer->flags, where_is_memory(tier, *offer->options.memory.budget[tier]));
  }

  // Offers a disk, with as much of the memory as is needed when everything else rests on the disk.
  void add_disk() {
    MachineProfile machine = run_.machine;
    if (machine.nvme_read_bytes == 0) {  // for a disk that does not exist yet only its room matters
      machine.nvme_read_bytes = machine.nvme_write_bytes = 2e9;
      machine.nvme_mixed_read_bytes = machine.nvme_mixed_write_bytes = 1e9;
    }
    Offer spilling{options_, {}};
    if (options_.memory.nvme.empty()) spilling.options.memory.nvme = {{directory_near(options_.checkpoint.save), std::nullopt}};
    std::optional<Offer> offer;
    const bool is_memory_short = in_memory(run_.outcome.short_tier);
    if (!is_memory_short) offer = grown(spilling, Tier::nvme, of_flag(Tier::nvme, run_.outcome.needed), machine);
    if (!offer) {  // memory is short, too, or alone
      const Bytes taken = taken_without_limit(spilling, machine);
      if (taken > run_.request.budgets[Tier::nvme]) {
        offer = grown(spilling, Tier::nvme, of_flag(Tier::nvme, taken), machine);
      } else if (spilling.flags.size() > (is_memory_short ? 1 : 0) && fits(spilling.options, model_, machine)) {
        // A larger budget of the short memory was offered already.
        add(spilling.flags, has_memory_for(spilling) ? Where::here : Where::anywhere);
      }
    }
    if (offer) add(offer->flags, has_memory_for(*offer) ? where_is_disk(offer->options.memory.nvme) : Where::anywhere);
  }

  void add_compact() {
    if (run_.request.form != StateForm::exact) return;
    RunOptions compact = options_;
    compact.precision.state = StateForm::compact;
    if (fits(compact, model_, run_.machine)) add({"--state compact"}, Where::here);
  }

  void add_smaller_micro_batches() {
    if (options_.batch.micro_batch_size == 1) return;
    RunOptions smaller = options_;
    smaller.batch.micro_batch_size = 1;
    if (smaller.micro_batches() > kMostMicroBatches) return;
    const PreparedModel model(smaller, Where::anywhere);
    if (!fits(smaller, model, run_.machine)) return;
    // Keeps the global batch size, which would otherwise follow from the micro-batch size.
    add({"--micro-batch-size 1", fmt::format("--global-batch-size {}", smaller.batch.global_batch_size)}, Where::here);
  }

  bool has_any_here() const { return !here_.empty(); }
  WouldFit take() && {
    return has_any_here() ? WouldFit{std::move(here_), Where::here} : WouldFit{std::move(elsewhere_), Where::anywhere};
  }

 private:
  struct Planned {
    PlanOutcome outcome;
    Bytes store_bytes = 0;  // on NVMe, with durable steps if they are possible; valid if there is a plan
  };
  Planned planned(const RunOptions& options, const PreparedModel& model, const MachineProfile& machine) const {
    const PlanRequest request = plan_request(options, budgets_of_run(options, machine, Where::anywhere));
    Planned planned{outcome_of(options, request, model, machine)};
    if (!planned.outcome.plan) return planned;
    const Plan& plan = *planned.outcome.plan;
    const auto durable = durability_of(options, request, planned.outcome, model.of(plan).graph, machine);
    planned.store_bytes = std::max(plan.peak[Tier::nvme], durable ? durable->layout.store_bytes : 0);
    return planned;
  }
  PlanOutcome outcome_of(const RunOptions& options, PlanRequest request, const PreparedModel& model,
                         const MachineProfile& machine) const {
    if (!options.memory.plan.empty()) return outcome_from_file(options.memory.plan, model.graphs(), machine, request);
    // The fastest plan decides how much state is copied to make steps durable; without durable steps any plan will do.
    if (options.memory.durability != Durability::step) request.goal = Goal::any;
    PlanOutcome outcome = make_plan(model.graphs(), machine, request);
    if (!outcome.plan && request.budgets[Tier::nvme] > 0 && request.goal == Goal::any) {
      // With this goal the planner only tries plans that spill, if spilling is possible; a plan entirely on the device counts,
      // too.
      PlanRequest in_core = request;
      in_core.budgets[Tier::nvme] = 0;
      if (PlanOutcome found = make_plan(model.graphs(), machine, in_core); found.plan) outcome = std::move(found);
    }
    return outcome;
  }

  // Options that contradict each other, or ask for durable steps without the room for them, count as not fitting.
  bool fits(const RunOptions& options, const PreparedModel& model, const MachineProfile& machine) const {
    try {
      return planned(options, model, machine).outcome.plan.has_value();
    } catch (const Error&) {
      return false;
    }
  }

  // Bytes on NVMe of a plan that has unlimited room there, with durable steps if they are possible; gives `offer` the memory that
  // this plan needs. 0 if there is no such plan.
  Bytes taken_without_limit(Offer& offer, const MachineProfile& machine) const {
    for (int attempt = 0; attempt < 4; ++attempt) {
      Offer unlimited = offer;
      give(unlimited, Tier::nvme, Bytes{1} << 50);
      try {
        const auto [outcome, store_bytes] = planned(unlimited.options, model_, machine);
        if (outcome.plan) return store_bytes;
        if (!in_memory(outcome.short_tier)) return 0;
        const Bytes needed = of_flag(outcome.short_tier, outcome.needed);
        give(offer, outcome.short_tier, rounded_up(needed + needed / 4 * attempt));
      } catch (const Error&) {
        return 0;
      }
    }
    return 0;
  }

  // `offer` with the smallest of a few growing sizes that a plan fits into.
  std::optional<Offer> grown(const Offer& offer, Tier tier, Bytes bytes, const MachineProfile& machine) const {
    for (int attempt = 0; attempt < 4; ++attempt, bytes += bytes / 4) {
      Offer larger = offer;
      give(larger, tier, rounded_up(bytes));
      if (fits(larger.options, model_, machine)) return larger;
    }
    return std::nullopt;
  }

  Bytes of_flag(Tier tier, Bytes needed) const { return spillway::of_flag(tier, needed, run_.request.sharding.ranks); }

  void add(FlagList flags, Where where) { (where == Where::here ? here_ : elsewhere_).push_back(std::move(flags)); }

  // `budget` is a tier's budget as its flag gives it.
  Where where_is_memory(Tier tier, Bytes budget) const {
    const int ranks = run_.request.sharding.ranks;
    Bytes there = available_memory();
    if (is_elsewhere_) {
      there = run_.machine.tier_bytes[tier];
    } else if (tier == Tier::device) {
      there /= ranks;
    } else {  // a device on the CPU and each tier below it take their memory from the host's
      for (const Tier other : tiers_of(run_.request.chain)) {
        if (other != tier && in_memory(other)) there -= run_.request.budgets[other] * ranks;
      }
    }
    return budget <= there ? Where::here : Where::anywhere;
  }

  bool has_memory_for(const Offer& offer) const {
    return std::ranges::all_of(tiers_of(run_.request.chain), [&](Tier tier) {
      const std::optional<Bytes> budget = offer.options.memory.budget[tier];
      return !in_memory(tier) || budget == options_.memory.budget[tier] || where_is_memory(tier, *budget) == Where::here;
    });
  }

  // Directories of another machine cannot be checked.
  Where where_is_disk(const std::vector<NvmeDirectory>& directories) const {
    if (is_elsewhere_) return Where::here;
    Bytes wanted = 0;
    for (const NvmeDirectory& directory : directories) wanted += *directory.size;
    try {
      return store_capacity(store_directories(directories)) >= wanted ? Where::here : Where::anywhere;
    } catch (const Error&) {
      return Where::anywhere;  // does not exist, or cannot be written
    }
  }

  const PlannedRun& run_;
  const PreparedModel& model_;
  const RunOptions& options_;
  bool is_elsewhere_;
  std::vector<FlagList> here_, elsewhere_;
};

}  // namespace

WouldFit flags_that_fit(const PlannedRun& run, const PreparedModel& model, const RunOptions& options) {
  const FreedMemoryKept freed_memory;
  Offers offers(run, model, options);
  if (in_memory(run.outcome.short_tier)) offers.add_larger_memory();
  offers.add_disk();
  offers.add_compact();
  // Comes last, because it compiles the model again.
  if (!offers.has_any_here()) offers.add_smaller_micro_batches();
  return std::move(offers).take();
}

std::string words_of(const WouldFit& would_fit) {
  if (would_fit.lists.empty()) return "Use shorter sequences, smaller micro-batches or --state compact.";
  std::string words =
      would_fit.where == Where::here ? "Each of these fits:" : "On a machine that has as much, each of these fits:";
  for (const FlagList& flags : would_fit.lists) words += fmt::format("\n  {}", fmt::join(flags, " "));
  return words;
}

}  // namespace spillway
