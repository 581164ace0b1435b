// What an executor is made of, what it asks for while it runs, and what it tells of a step.
// Not here: what it does (executor.h).
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "collectives/communicator.h"
#include "collectives/transport.h"
#include "memory/base/parallel.h"
#include "memory/plan/mixture_outcome.h"
#include "memory/plan/plan.h"
#include "memory/plan/timeline.h"
#include "models/unit_code.h"
#include "nvme/store.h"
#include "offload/committer.h"
#include "offload/device.h"

namespace spillway {

// What each rank has for itself: runs of one backend never overlap. All must outlive the executor.
struct RankResources {
  Device* device = nullptr;  // the executor prepares its backend for the models
  const ThreadPool* pool = nullptr;
  Store* store = nullptr;                         // null where the plan uses no NVMe
  const DurabilityOptions* durability = nullptr;  // null on all ranks: the state does not outlive the process
};

// Ranks talk on two channels, each from the thread of a lane: collectives, and word that a commit's record is written.
enum class TeamChannel : std::uint8_t { network, commits };
inline constexpr int kTeamChannels = 2;

class Rank;

struct ExecutorOptions {
  const Plan* plan = nullptr;                 // validated; must outlive the executor, like all pointers below
  const CompiledModel* model = nullptr;       // of the plan's graph
  const CompiledModel* evaluation = nullptr;  // with the tiled head; may be null where nothing is evaluated
  // The evaluation's units compiled for a single row of the same context; may be null where nothing is generated.
  const CompiledModel* one_row = nullptr;
  RankResources rank;                      // of rank 0
  std::vector<RankResources> other_ranks;  // of ranks 1, 2, …, as many as the plan has; all are threads of this process
  SumBy sum_by = SumBy::direct;
  // Where ranks are processes, in place of other_ranks: those of the others, and what rank 0 talks by on each channel. Not there:
  // all ranks are threads of this process.
  std::vector<Rank*> remote_ranks;
  std::array<Transport*, kTeamChannels> transports{};
  // For tests: puts a transport around each of a rank's. Not set: there is none.
  std::function<std::unique_ptr<Transport>(Transport&, TeamChannel)> around_transport;
  // Hears of a collective of rank 0 that has taken so long, from a thread of its own. Not set: nobody does.
  std::function<void(const std::string&)> say;
  std::chrono::milliseconds patience{10'000};
  std::uint64_t seed = 0;  // for stochastic rounding
  std::size_t ahead = 64;  // most operations of a lane on the device's stream that are not complete
};

// The arrays of a micro-batch, [n] each, or as many rows as are wanted. They come filled with zeros.
struct MicroBatchRows {
  std::span<std::int32_t> tokens, targets;
  std::span<std::int32_t> documents;  // where each row's document begins in its sequence; empty unless the model is of packs
};
// Fills a micro-batch. Micro-batches of a step are numbered over all ranks, a rank's one after the other.
using FillTokens = std::function<void(int micro_batch, const MicroBatchRows& rows)>;

struct StepOutcome {
  std::int64_t step = 0;
  double loss = 0, grad_norm = 0;
  std::optional<MixtureOutcome> mixture;  // of a model that has experts; loss is then that of its tokens and of its routers
  std::string stopped;                    // not empty: why the step was stopped: its loss, a gradient or the norm was not finite
  std::string skipped;                    // not empty: why the step applied nothing (StepSettings::skips)
  bool state_intact = true;  // of a stopped step: true: nothing was applied; false: some blocks had been updated before
  double seconds = 0;        // from the end of the step before, or from submission, to the end of this one
  By<Lane, Bytes> moved;     // bytes moved by this step's operations on each lane of all ranks, however steps overlap
  By<Tier, Bytes> peak;      // highest byte that a rank has touched on each tier so far
  Timeline timeline;         // of rank 0
};

}  // namespace spillway
