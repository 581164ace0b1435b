#include "trainer/show/run_record.h"

#include <fmt/core.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "files/json_place.h"
#include "files/posix_file.h"
#include "files/strict_json.h"
#include "memory/base/error.h"
#include "trainer/options/resolve_options.h"

namespace spillway {
namespace {

namespace fs = std::filesystem;

constexpr Bytes kLargestFile = Bytes{1} << 30;
constexpr int kMostKeys = 1 << 27;
constexpr double kLongest_s = 1e9;
constexpr std::int64_t kMostBytes = std::int64_t{1} << 62, kMostOperations = 1 << 28;
constexpr std::string_view kHelp = "The files of a run directory are written by spillway train; report takes them as they are.";

nlohmann::json json_of(const std::string& file) { return parse_strict_json(read_text_file(file, kLargestFile), file, kMostKeys); }

// A list that must have `count` entries.
JsonPlace column_of(const JsonPlace& table, std::string_view key, std::size_t count) {
  const JsonPlace column = table.at(key);
  if (column.size() != count) column.refuse(fmt::format("has {} entries, not {}", column.size(), count));
  return column;
}

// The entry of `list` whose index is at `place`.
JsonPlace entry_at(const JsonPlace& list, const JsonPlace& place) {
  return list.at(static_cast<std::size_t>(place.integer(0, static_cast<std::int64_t>(list.size()) - 1)));
}

Span span_of(const JsonPlace& begin, const JsonPlace& end) {
  const Span span{begin.number(-kLongest_s, kLongest_s), end.number(-kLongest_s, kLongest_s)};
  if (span.end_s < span.begin_s) end.refuse(fmt::format("is {}, before its beginning, {}", span.end_s, span.begin_s));
  return span;
}

void read_turns(RunRecord& run, const JsonPlace& ops, int group) {
  run.turns = static_cast<int>(ops.at("turns").integer(1, INT32_MAX));
  const JsonPlace shown = ops.at("shown_turns");
  if (shown.size() == 0 || shown.size() > kShownTurns) shown.refuse(fmt::format("has {} entries", shown.size()));
  const std::vector<RecordedOperation> turn = std::move(run.operations);
  const JsonPlace begins = column_of(ops, "begin_delta", shown.size()), durations = column_of(ops, "duration", shown.size());
  const double unit_s = ops.at("time_unit_s").number(1e-18, kLongest_s);
  run.operations.clear();
  for (std::size_t index = 0; index < shown.size(); ++index) {
    const int number = static_cast<int>(shown.at(index).integer(0, run.turns - 1)),
              first = static_cast<int>(run.operations.size());
    for (const JsonPlace& column : {begins.at(index), durations.at(index)}) {
      if (column.size() != turn.size()) column.refuse(fmt::format("has {} entries, not {}", column.size(), turn.size()));
    }
    double begin = 0;
    for (std::size_t id = 0; id < turn.size(); ++id) {
      RecordedOperation operation = turn[id];
      if (operation.micro_batch >= 0) operation.micro_batch += number * group;
      for (Wait& wait : operation.waits) wait.op += first;
      const double most = kLongest_s / unit_s;
      begin += begins.at(index).at(id).number(-most, most);
      if (begin < -most || begin > most)
        begins.at(index).at(id).refuse(
            fmt::format("brings the beginning to {} s, allowed: within {} s", begin * unit_s, kLongest_s));
      operation.planned = {begin * unit_s, (begin + durations.at(index).at(id).number(0, most)) * unit_s};
      run.operations.push_back(std::move(operation));
    }
  }
}

void read_operations(RunRecord& run, const JsonPlace& ops) {
  const auto count = static_cast<std::size_t>(ops.at("count").integer(0, kMostOperations));
  if (count == 0) ops.at("count").refuse("is 0: the plan has no operations");
  const JsonPlace classes = ops.at("classes"), names = ops.at("names");
  const auto column = [&](std::string_view key) { return column_of(ops, key, count); };
  const JsonPlace of_class = column("class"), whose = column("of"), micro_batch = column("micro_batch"), waits = column("waits");
  const auto most = static_cast<std::int64_t>(count) - 1;
  for (std::size_t id = 0; id < count; ++id) {
    RecordedOperation& operation = run.operations.emplace_back();
    const JsonPlace what = entry_at(classes, of_class.at(id));
    operation.id = static_cast<int>(id);
    operation.kind = what.at("kind").text();
    operation.lane = what.at("lane").named<Lane>();
    operation.bytes = what.at("bytes").integer(0, kMostBytes);
    if (whose.at(id).integer(-1, kMostOperations) >= 0) operation.of = entry_at(names, whose.at(id)).text();
    operation.micro_batch = static_cast<int>(micro_batch.at(id).integer(-1, INT32_MAX >> 1));
    const JsonPlace of = waits.at(id);
    for (std::size_t i = 0; i < of.size(); ++i) {
      const auto wait = static_cast<int>(of.at(i).integer(-1 - most, static_cast<std::int64_t>(id)));
      operation.waits.push_back(wait < 0 ? Wait{-1 - wait, -1} : Wait{static_cast<int>(id) - wait, 0});
    }
  }
}

StepUse use_of(const JsonPlace& plan, std::size_t operations) {
  StepUse use{.operations = operations};
  for (const auto& [name, tier] : Names<Tier>::all) {
    const JsonPlace resident = plan.at("resident").at(name);
    for (const auto& [what, category] : Names<Category>::all)
      use.resident[tier][category] = resident.at(what).integer(0, kMostBytes >> 4);
  }
  const JsonPlace buffers = plan.at("buffers"), classes = buffers.at("classes");
  const std::size_t count = buffers.at("class").size();
  const JsonPlace of_class = column_of(buffers, "class", count), ops = column_of(buffers, "ops", count);
  for (std::size_t i = 0; i < count; ++i) {
    const JsonPlace what = entry_at(classes, of_class.at(i));
    BufferUse buffer{.tier = what.at("tier").named<Tier>(),
                     .category = what.at("category").named<Category>(),
                     .bytes = what.at("bytes").integer(0, kMostBytes >> 32),
                     .ops = {}};
    for (std::size_t k = 0; k < ops.at(i).size(); ++k) {
      const int first = k == 0 ? 0 : buffer.ops.front();
      buffer.ops.push_back(first +
                           static_cast<int>(ops.at(i).at(k).integer(-first, static_cast<std::int64_t>(operations) - 1 - first)));
    }
    use.buffers.push_back(std::move(buffer));
  }
  return use;
}

void read_plan(RunRecord& run, const std::string& file) {
  const nlohmann::json json = json_of(file);
  const JsonPlace plan(json, file, kHelp);
  run.parameters = plan.at("model").at("parameters").integer(1, kMostBytes);
  run.tokens_per_step = plan.at("model").at("tokens_per_step").number(1, 1e15);
  const JsonPlace predicted = plan.at("predicted");
  run.planned_step_s = predicted.at("step_s").number(1e-9, kLongest_s);
  run.bound_s = predicted.at("bound_s").number(0, kLongest_s);
  run.binding_lane = predicted.at("binding_lane").named<Lane>();
  for (const auto& [name, tier] : Names<Tier>::all) {
    const JsonPlace of = plan.at("tiers").at(name);
    run.budget[tier] = of.at("budget_bytes").integer(0, kMostBytes);
    run.planned_peak[tier] = of.at("peak_bytes").integer(0, kMostBytes);
  }
  run.planned_read_bytes = plan.at("nvme_per_step").at("read_bytes").integer(0, kMostBytes);
  run.planned_written_bytes = plan.at("nvme_per_step").at("written_bytes").integer(0, kMostBytes);
  const JsonPlace ops = plan.at("ops");
  read_operations(run, ops);
  if (plan.has("buffers")) run.use = use_of(plan, run.operations.size());
  read_turns(run, ops, static_cast<int>(plan.at("choices").at("group").integer(1, INT32_MAX)));
}

void read_timeline(RunRecord& run, const std::string& file) {
  const nlohmann::json json = json_of(file);
  const JsonPlace timeline(json, file, kHelp);
  run.timed_step = timeline.at("step").integer(1, kMostBytes);
  const JsonPlace spans = timeline.at("spans");
  if (spans.size() != run.operations.size()) {
    spans.refuse(
        fmt::format("has {} entries; the plan has {} operations whose times are kept", spans.size(), run.operations.size()));
  }
  for (std::size_t id = 0; id < spans.size(); ++id) {
    const JsonPlace span = spans.at(id);
    if (span.size() != 2) span.refuse(fmt::format("has {} entries, not two", span.size()));
    run.operations[id].recorded = span_of(span.at(0), span.at(1));
  }
}

// Report treats any fault in a file that it is given as bad input.
std::vector<StepRecord> log_of(const std::string& file) {
  std::vector<StepRecord> log;
  try {
    log = read_log(file);
  } catch (const IoError& error) {
    throw InputError(error.what(), std::string(kHelp));
  }
  if (log.empty()) throw InputError(fmt::format("{}: has no whole line: the run has not finished a step", file));
  for (std::size_t i = 1; i < log.size(); ++i) {
    if (log[i].step > log[i - 1].step) continue;
    throw InputError(fmt::format("{} line {}: \"step\" is {} after {}", file, i + 1, log[i].step, log[i - 1].step),
                     std::string(kHelp));
  }
  return log;
}

}  // namespace

RunRecord read_run(const std::string& directory) {
  std::error_code ignored;
  if (!fs::is_directory(directory, ignored)) {
    throw InputError(fmt::format("{}: is not a directory", directory),
                     "Give the directory that spillway train was given by --save.");
  }
  RunRecord run;
  run.directory = directory;
  const std::string settings = directory + "/run.json", timeline = directory + "/timeline.json";
  run.options = options_from_json_text(read_text_file(settings, kLargestFile), settings);
  read_plan(run, directory + "/plan.json");
  run.log = log_of(directory + "/log.jsonl");
  if (fs::exists(timeline, ignored)) read_timeline(run, timeline);
  return run;
}

}  // namespace spillway
