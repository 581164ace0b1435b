// The store of one rank of a run: its directories, its files, and how its steps become durable there.
// Not here: which step a run goes on from (trainer/keep/starting_point.h), what lies in a store (offload/durable_layout.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "nvme/store.h"
#include "offload/committer.h"
#include "trainer/options/options.h"

namespace spillway {

// Stores that outlive the process, one for each rank, for a run whose steps are durable.
struct DurableSteps {
  std::uint64_t store_id = 0;
  std::string run_directory;
  bool yields = false;  // another run may take over the stores: see StoreIdentity
  std::int64_t interval = 1;
  std::optional<std::int64_t> from_step;  // the stores hold the state after this step, from which the run goes on in place
};

class RankStore {
 public:
  // Opens it where the plan has state on NVMe or steps are durable. `orphans`: stores of others that may be removed there.
  RankStore(const RunOptions& options, const Plan& plan, const UnitGraph& graph, int rank,
            const std::optional<DurableSteps>& durable, std::vector<std::uint64_t> orphans, const LogSink& log);
  // Directories of a rank of several go with their files.
  ~RankStore();
  RankStore(const RankStore&) = delete;
  RankStore& operator=(const RankStore&) = delete;

  Store* store() const { return store_.get(); }  // null where there is none
  const DurabilityOptions* durability() const {
    return durability_ ? &*durability_ : nullptr;
  }  // null where steps are not durable

 private:
  std::vector<std::string> own_directories_;  // empty for an only rank, whose directories are the user's
  std::unique_ptr<Store> store_;
  std::optional<DurabilityOptions> durability_;
};

// Makes room for the store of a rank (make_way_in()): returns the orphans there.
std::vector<std::uint64_t> make_way_for_rank(const RunOptions& options, int rank, int ranks, const LogSink& log);

}  // namespace spillway
