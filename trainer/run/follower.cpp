#include "trainer/run/follower.h"

#include <fmt/core.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <memory>
#include <optional>

#include "collectives/communicator.h"
#include "files/posix_file.h"
#include "memory/base/error.h"
#include "memory/passes/validate.h"
#include "offload/remote_rank.h"
#include "trainer/plan/planned_run.h"
#include "trainer/plan/prepared_model.h"
#include "trainer/plan/saved_plan.h"
#include "trainer/run/rank_store.h"
#include "trainer/run/team_agreement.h"
#include "trainer/run/team_messages.h"
#include "trainer/run/team_network.h"

namespace spillway {
namespace {

// Signals that a launcher sends to all of its processes are rank 0's concern, which says what to do.
void leave_signals_to_rank_0() {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) std::signal(signal, SIG_IGN);
}

// Rank 0's plan as a file of this process, as plans are loaded from files.
class PlanFile {
 public:
  explicit PlanFile(const std::string& text)
      : path_((std::filesystem::temp_directory_path() / fmt::format("spillway-plan-{}.json", getpid())).string()) {
    write_text_file(path_, text);
  }
  ~PlanFile() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  PlanFile(const PlanFile&) = delete;
  PlanFile& operator=(const PlanFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

RunOptions with_plan(RunOptions options, const std::string& plan) {
  options.memory.plan = plan;
  options.memory.profile.clear();
  options.model.init = WeightInit::random;  // rank 0 reads them, so that this host need not have them
  return options;
}

// This process's rank under rank 0's plan.
class FollowingRank {
 public:
  FollowingRank(const RunOptions& options, ProcessTeam& team, const BeginOrder& order)
      : file_(order.plan),
        options_(with_plan(options, file_.path())),
        model_(options_),
        planned_(plan_run_on(machine_of_plan(file_.path()).value(), options_, model_, Where::here)),
        plan_(fitting(planned_)),
        store_(options_, plan_, model_.of(plan_).graph, team.rank(), order.durable, order.orphans, {}),
        memory_(model_.device(team.rank()).make_rank_memory(model_.pool_of(team.rank()))),
        network_(model_.device(team.rank()), team, order.nccl),
        communicator_(network_.transport(), plan_.choices.sharding, *memory_, sum_by(options_.parallel)) {
    validate(plan_, model_.of(plan_).graph);
    const ExecutorOptions executor{
        .plan = &plan_, .model = &model_.of(plan_), .evaluation = &model_.evaluation_of(plan_), .seed = options_.model.seed};
    const RankResources with{.device = &model_.device(team.rank()),
                             .pool = &model_.pool_of(team.rank()),
                             .store = store_.store(),
                             .durability = store_.durability()};
    executor_.emplace(executor, with, &communicator_, &team.transport(TeamChannel::commits));
  }

  RankExecutor& executor() { return *executor_; }
  Store* store() { return store_.store(); }

 private:
  static const Plan& fitting(const PlannedRun& planned) {
    if (planned.outcome.plan) return *planned.outcome.plan;
    throw BudgetError(fmt::format("the plan of rank 0 needs {} bytes on the {} tier, which has {} here", planned.outcome.needed,
                                  name_of(planned.outcome.short_tier), planned.outcome.budget));
  }

  const PlanFile file_;
  const RunOptions options_;
  PreparedModel model_;
  const PlannedRun planned_;
  const Plan& plan_;
  RankStore store_;
  const std::unique_ptr<RankMemory> memory_;
  TeamNetwork network_;
  Communicator communicator_;
  std::optional<RankExecutor> executor_;
};

}  // namespace

int follow(RunOptions options, ProcessTeam& team) {
  leave_signals_to_rank_0();
  Socket& control = team.control(0);
  std::optional<FollowingRank> rank;
  for (;;) {
    Message question = rank ? serve(control, rank->executor()) : next_question(control);
    const auto asked = question.get<TeamQuestion>();
    if (asked == TeamQuestion::end) {
      const int exit_code = question.get<std::int32_t>();
      rank.reset();
      if (question.get<bool>()) team.leave();
      return exit_code;
    }
    try {
      Message words;
      switch (asked) {
        case TeamQuestion::look: {
          const ProcessHere process = process_here(options);
          options.memory.settled = {.bytes = process.budgets, .of = {}};  // rank 0 plans with these, or with less
          words = message_of(process);
          break;
        }
        case TeamQuestion::begin: rank.emplace(options, team, begin_order_in(question)); break;
        case TeamQuestion::keep_store:
          if (rank->store() != nullptr) rank->store()->keep();
          break;
        case TeamQuestion::discard_store:
          if (rank->store() != nullptr) rank->store()->discard();
          break;
        case TeamQuestion::end: break;
      }
      answer(control, words);
    } catch (const std::exception& error) {
      answer_error(control, error);
    }
  }
}

}  // namespace spillway
