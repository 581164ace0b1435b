#include "trainer/run/team_agreement.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "memory/base/error.h"
#include "offload/remote_rank.h"
#include "trainer/host/host.h"
#include "trainer/keep/run_files.h"
#include "trainer/options/adapter_of.h"
#include "trainer/options/model_of.h"
#include "trainer/plan/budgets.h"
#include "trainer/run/team_messages.h"
#include "trainer/words/quantity.h"

namespace spillway {
namespace {

// Free memory differs a little from one moment to the next, also on one host.
bool is_clearly_less(Bytes bytes, Bytes than) { return bytes < than - than / 10; }

void say_who_is_bound(const std::vector<ProcessHere>& processes, const ProcessTeam& team, const std::string& by,
                      const LogSink& say) {
  const auto lacks = [](const ProcessHere& process) { return process.share - process.cores; };
  const auto worst = std::ranges::max_element(processes, {}, lacks);
  if (lacks(*worst) <= 0) return;
  const auto rank = static_cast<int>(worst - processes.begin());
  const auto others = std::ranges::count_if(processes, [&](const ProcessHere& process) { return lacks(process) > 0; }) - 1;
  say(fmt::format(
      "{} bound {}{} to {}, and a rank's share of the host is {}: bind ranks to none (mpirun --bind-to none, srun "
      "--cpu-bind=none), or to their shares",
      by, rank == 0 ? "rank 0" : team.name_of(rank), others > 0 ? fmt::format(" and {}", counted(others, "other")) : "",
      counted(worst->cores, "core"), worst->share));
}

}  // namespace

ProcessHere process_here(const RunOptions& options) {
  ProcessHere process;
  for (const auto& [name, value] : properties_of(model_of(options, Weights::if_there).config))
    process.model.emplace_back("--model: " + name, value);
  if (const std::optional<AdapterSpec> adapter = adapter_spec_of(options))
    process.model.emplace_back("--adapter", fmt::format("rank {}, scale {}, dropout {}, targets {}", adapter->rank,
                                                        adapter->scale, adapter->dropout, fmt::join(adapter->targets, " ")));
  MachineProfile here;  // which is not measured yet: memory is asked of the system
  here.devices = options.gpu ? 1 : 0;
  process.budgets = budgets_of_run(options, here, Where::here);
  process.share = std::max(1, cores_of_host() / static_cast<int>(options.parallel.ranks_here()));
  process.cores = is_bound_to_cores() ? usable_threads() : process.share;
  return process;
}

Message message_of(const ProcessHere& process) {
  Message message;
  put_flags(message, process.model);
  for (const Tier tier : kAll<Tier>) message.put(process.budgets[tier]);
  message.put(std::int32_t{process.cores}), message.put(std::int32_t{process.share});
  return message;
}

ProcessHere process_in(Message& message) {
  ProcessHere process{.model = get_flags(message), .budgets = {}};
  for (const Tier tier : kAll<Tier>) process.budgets[tier] = message.get<Bytes>();
  process.cores = message.get<std::int32_t>();
  process.share = message.get<std::int32_t>();
  return process;
}

void agree(ProcessTeam& team, RunOptions& options, const LogSink& say) {
  Message question;
  question.put(TeamQuestion::look);
  for (int rank = 1; rank < team.ranks(); ++rank) send_question(team.control(rank), question);
  std::vector<ProcessHere> processes = {process_here(options)};
  for (int rank = 1; rank < team.ranks(); ++rank) {
    Message words = receive_answer(team.control(rank));
    processes.push_back(process_in(words));
    if (const std::string why = disagreement(processes.front().model, rank, processes.back().model); !why.empty())
      throw InputError(why, "All ranks of a run have the same model; each needs its config.json at the same path.");
  }
  SettledBudgets settled;
  for (const Tier tier : kAll<Tier>) {
    const auto least = std::ranges::min_element(processes, {}, [tier](const ProcessHere& of) { return of.budgets[tier]; });
    const Bytes own = processes.front().budgets[tier];
    settled.bytes[tier] = least->budgets[tier];
    if (!is_clearly_less(settled.bytes[tier], own)) continue;
    settled.of[tier] = team.name_of(static_cast<int>(least - processes.begin()));
    say(fmt::format("{} has {} for the {} tier, and rank 0 has {}: all ranks plan with the least", settled.of[tier],
                    rounded_size(settled.bytes[tier]), name_of(tier), rounded_size(own)));
  }
  options.memory.settled = std::move(settled);
  say_who_is_bound(processes, team, options.parallel.launch->by, say);
}

}  // namespace spillway
