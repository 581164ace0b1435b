#include "trainer/options/flag_table.h"

#include <algorithm>

#include "trainer/options/flag_rows.h"

namespace spillway {
namespace {

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
  add(
      "keep-best", "", F::boolean,
      "also save and keep the checkpoint of the lowest eval_loss, one before the first step included (--step best takes it)",
      SET { o.checkpoint.keep_best = v.text() == "true"; }, GET { return o.checkpoint.keep_best; });
}

void add_output(std::vector<Flag>& table) {
  const FlagRows add(table, "Output");
  add(
      "log-interval", "N", F::integer, "steps between lines in a pipe or file (log.jsonl has every step)",
      SET { o.log.log_interval = steps(v, 1); }, GET { return o.log.log_interval; });
  add(
      "eval-interval", "N", F::integer,
      "steps between evaluations on --eval-data or --eval-split; there is one before the first step, too",
      SET { o.log.eval_interval = steps(v, 1); }, GET { return o.log.eval_interval; });
  add(
      "early-stopping-patience", "N", F::integer, "stop after N evaluations in a row without gain",
      SET { o.stopping.patience = v.integer(1, kMostSteps); }, GET { return optional_json(o.stopping.patience); });
  add(
      "early-stopping-threshold", "R", F::real, "what eval_loss must fall by, from the lowest so far, to be a gain",
      SET { o.stopping.threshold = at_least_zero(v); }, GET { return o.stopping.threshold; });
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
      "sample-chat", "TEXT", F::text, "the same, from what a user says: the model's chat template makes the prompt",
      SET { o.log.sample_chat = v.text(); }, GET { return text_json(o.log.sample_chat); });
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

std::vector<Flag> make_table() {
  std::vector<Flag> table;
  for (const auto add : {add_training_flags, add_memory_flags, add_ranks_flags, add_run_directory, add_output}) add(table);
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
