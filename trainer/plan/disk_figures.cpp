#include "trainer/plan/disk_figures.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>

#include "nvme/store.h"
#include "nvme/store_identity.h"
#include "trainer/words/quantity.h"

namespace spillway {
namespace {

// Bytes of the store's files: whole stripes if there are several directories, plus an identity in each if the store outlives its
// process. The state that rests there exists once for each rank; copies of the devices' state exist once in all.
Bytes store_files_bytes(const PlannedRun& run, const RunOptions& options) {
  const Bytes resting = run.outcome.plan->peak[Tier::nvme];
  const Bytes beside = run.durability ? run.durability->layout.store_bytes - resting : 0;
  const Bytes bytes = resting * run.request.sharding.ranks + beside;
  if (bytes == 0) return 0;
  const auto directories = static_cast<Bytes>(options.memory.nvme.size());
  return (directories > 1 ? round_up(bytes, StoreOptions{}.stripe_bytes) : bytes) +
         (run.durability ? directories * kIdentityBytes : 0);
}

Bytes state_bytes(const UnitGraph& graph, StateForm form) {
  Bytes bytes = 0;
  for (const ParameterBlock& block : graph.blocks)
    bytes += block.frozen ? 0 : block.elements * bytes_per_element(state_of(block, form));
  return bytes;
}

std::int64_t checkpoints_at_once(const RunOptions& options) {
  const std::int64_t interval = options.checkpoint.save_interval, keep_last = options.checkpoint.keep_last;
  if (options.checkpoint.save.empty()) return 0;
  const std::int64_t written = interval > 0 ? (options.batch.train_iters + interval - 1) / interval : 1;
  // The best one lies beside the others, and the next best is complete before it goes.
  const std::int64_t best = options.checkpoint.keep_best ? 2 : 0;
  return (keep_last > 0 ? std::min(written, keep_last + 1) : written) + best;
}

}  // namespace

DiskFigures disk_figures_of(const PlannedRun& run, const PreparedModel& model, const RunOptions& options,
                            const PlanFigures& figures) {
  const Plan& plan = *run.outcome.plan;
  DiskFigures disk;
  disk.nvme_bytes = store_files_bytes(run, options);
  disk.checkpoint_bytes = state_bytes(model.of(plan).graph, plan.choices.form);
  const UnitGraph& graph = model.of(plan).graph;
  const bool is_adapter = graph.trained_parameters < graph.parameters;  // which is written in fp32
  disk.export_bytes = graph.trained_parameters * (is_adapter ? 4 : size_of(options.precision.dtype));
  disk.checkpoints = checkpoints_at_once(options);
  disk.written_bytes = static_cast<double>(figures.nvme_written_bytes) * run.request.sharding.ranks + figures.durable_bytes;
  if (options.checkpoint.save_interval > 0)
    disk.checkpointed_bytes = static_cast<double>(disk.checkpoint_bytes) / static_cast<double>(options.checkpoint.save_interval);
  return disk;
}

double terabytes_in_1000_steps(double bytes_per_step) { return bytes_per_step * 1000 / 1e12; }

double steps_of_rating(const DiskFigures& disk, Bytes rated_bytes, std::size_t directories) {
  if (disk.written_bytes == 0) return std::numeric_limits<double>::infinity();
  return static_cast<double>(rated_bytes) * static_cast<double>(std::max<std::size_t>(1, directories)) / disk.written_bytes;
}

std::string rounded_terabytes(double terabytes) {
  if (terabytes > 0 && terabytes < 0.001) return "less than 0.001 TB";
  return fmt::format("{:.{}f} TB", terabytes,
                     terabytes == 0 || terabytes >= 99.95 ? 0
                     : terabytes >= 9.995                 ? 1
                     : terabytes >= 0.0995                ? 2
                                                          : 3);
}

std::string disk_words(const DiskFigures& disk, const RunOptions& options) {
  const std::string on_nvme = disk.nvme_bytes > 0
                                  ? fmt::format("{} in --nvme while the run lasts; ", rounded_size(disk.nvme_bytes))
                              : options.memory.nvme.empty() ? ""
                                                            : "nothing in --nvme; ";
  const std::string exported = fmt::format("; an export takes {}", rounded_size(disk.export_bytes));
  if (disk.checkpoints == 0)
    return fmt::format("{}a checkpoint takes {}, of which there is none without --save{}", on_nvme,
                       rounded_size(disk.checkpoint_bytes), exported);
  return fmt::format("{}{} in --save for {}{}", on_nvme, rounded_size(disk.checkpoint_bytes * disk.checkpoints),
                     disk.checkpoints == 1 ? "a checkpoint" : fmt::format("up to {} checkpoints", with_commas(disk.checkpoints)),
                     exported);
}

std::string wear_words(const DiskFigures& disk, double step_s, const RunOptions& options) {
  std::string words =
      fmt::format("{} written to NVMe in 1,000 steps", rounded_terabytes(terabytes_in_1000_steps(disk.written_bytes)));
  if (disk.checkpointed_bytes > 0)
    words += fmt::format(", and {} of checkpoints", rounded_terabytes(terabytes_in_1000_steps(disk.checkpointed_bytes)));
  if (!options.log.nvme_tbw || disk.written_bytes == 0) return words;
  const std::size_t drives = options.memory.nvme.size();
  const double steps = steps_of_rating(disk, *options.log.nvme_tbw, drives);
  return words + fmt::format("; {} rated for {}B written last{} {} ({})", drives > 1 ? "drives each" : "a drive",
                             rounded_count(static_cast<double>(*options.log.nvme_tbw)), drives > 1 ? "" : "s",
                             counted(static_cast<std::int64_t>(std::min(steps, 1e15)), "step"), rounded_time(steps * step_s));
}

}  // namespace spillway
