#include "trainer/plan/plan_flags.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "files/json_place.h"
#include "trainer/options/flag_table.h"
#include "trainer/plan/budgets.h"

namespace spillway {
namespace {

// The options of the run as it was planned, without those that belong to one invocation. Choices that the search made stay open,
// and the search finds them again: if they were forced, it would have more time for the rest and might find another plan.
RunOptions as_planned(const PlannedRun& run, const PreparedModel& model, RunOptions options) {
  options.batch.seq_length = model.seq_length();
  const PlanRequest& request = run.request;
  if (!is_apart(options)) options.memory.device = has_host(request.chain) ? DeviceChoice::cuda : DeviceChoice::cpu;
  for (const Tier tier : tiers_of(request.chain)) {
    if (!in_memory(tier)) continue;
    options.memory.budget[tier] = of_flag(tier, request.budgets[tier], request.sharding.ranks);
  }
  options.memory.plan.clear();
  options.checkpoint = {};
  options.log = {};
  options.stopping = {};
  if (!run.outcome.plan) return options;
  const Choices& choices = run.outcome.plan->choices;
  if (choices.sharding.group > 1) options.parallel.zero_stage = choices.sharding.stage;
  // If there was room for two slots but none for records, not asking for durability gives the same plan.
  if (choices.slots == 1) options.memory.durability = Durability::checkpoint;
  if (run.durability) options.memory.durability = Durability::step;
  return options;
}

bool is_plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("_@%+=:,./-").find(c) != std::string_view::npos;
}

}  // namespace

std::string shell_word(std::string_view text) {
  if (!text.empty() && std::ranges::all_of(text, is_plain)) return std::string(text);
  const bool has_controls = std::ranges::any_of(text, [](char c) { return static_cast<unsigned char>(c) < 32 || c == 127; });
  std::string word = has_controls ? "$'" : "'";
  for (const char c : text) {
    if (has_controls && (static_cast<unsigned char>(c) < 32 || c == 127)) {
      word += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    } else if (has_controls && (c == '\'' || c == '\\')) {
      word += fmt::format("\\{}", c);
    } else if (c == '\'') {
      word += "'\\''";
    } else {
      word += c;
    }
  }
  return word + "'";
}

std::vector<std::string> plan_flags(const PlannedRun& run, const PreparedModel& model, const RunOptions& options) {
  const RunOptions planned = as_planned(run, model, options), defaults;
  std::vector<std::string> flags;
  for (const Flag& flag : flag_table()) {
    const nlohmann::json value = flag.get(planned);
    if (value.is_null() || value == flag.get(defaults)) continue;
    const auto add = [&](const nlohmann::json& one) {
      flags.push_back(fmt::format("--{} {}", flag.name, shell_word(plain_text(one))));
    };
    if (flag.kind == FlagKind::boolean) {
      flags.push_back("--" + flag.name);
    } else if (value.is_array()) {
      for (const nlohmann::json& one : value) add(one);
    } else {
      add(value);
    }
  }
  return flags;
}

}  // namespace spillway
