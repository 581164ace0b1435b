#include "trainer/run/rank_store.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "memory/base/error.h"
#include "nvme/commit_log.h"
#include "trainer/keep/durable_store.h"
#include "trainer/machine/nvme_directories.h"

namespace spillway {

std::vector<std::uint64_t> make_way_for_rank(const RunOptions& options, int rank, int ranks, const LogSink& log) {
  return make_way_in(paths_of(directories_of_rank(options.memory.nvme, rank, ranks)), log);
}

RankStore::RankStore(const RunOptions& options, const Plan& plan, const UnitGraph& graph, int rank,
                     const std::optional<DurableSteps>& durable, std::vector<std::uint64_t> orphans, const LogSink& log) {
  if (!durable && plan.peak[Tier::nvme] == 0) return;
  const int ranks = plan.choices.sharding.ranks;
  const std::vector<NvmeDirectory> directories = directories_of_rank(options.memory.nvme, rank, ranks);
  if (ranks > 1) own_directories_ = paths_of(directories);
  std::optional<DurableLayout> layout;
  if (durable) layout = durable_layout(plan, graph, rank);
  const bool goes_on = durable && durable->from_step;
  if (!goes_on) make_directories(own_directories_);
  store_ = open_store(directories, layout ? layout->store_bytes : plan.peak[Tier::nvme], [&](StoreOptions& store) {
    store.log = log;
    store.orphans = std::move(orphans);
    if (goes_on) store.content = StoreContent::existing;
    if (layout) {
      store.identity = StoreIdentity{.store_id = durable->store_id,
                                     .rank = rank,
                                     .ranks = ranks,
                                     .records_begin = layout->records_begin,
                                     .place_bytes = layout->place_bytes,
                                     .run_directory = durable->run_directory,
                                     .yields = durable->yields};
    }
  });
  if (!durable) return;
  durability_ = DurabilityOptions{
      .identity = identify_store(paths_of(directories)), .layout = *std::move(layout), .interval = durable->interval, .from = {}};
  if (!goes_on) return;
  std::vector<CommitRecord> records = CommitLog(*store_, durability_->identity).records();
  const auto found = std::ranges::find(records, *durable->from_step, &CommitRecord::step);
  if (found == records.end() || !lies_as(*found, durability_->layout, durability_->identity)) {
    throw IoError(fmt::format("{}: the store there does not hold step {} as the plan has it", directories.front().path,
                              *durable->from_step));
  }
  durability_->from = std::move(*found);
  store_->keep();
}

RankStore::~RankStore() {
  store_.reset();
  remove_empty_directories(own_directories_);
}

}  // namespace spillway
