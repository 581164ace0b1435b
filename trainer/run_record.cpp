#include "trainer/run_record.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "memory/error.h"
#include "models/posix_file.h"
#include "models/strict_json.h"
#include "trainer/json_place.h"

namespace spillway {
namespace {

namespace fs = std::filesystem;

constexpr Bytes kLargestFile = Bytes{1} << 30;
constexpr int kMostKeys = 1 << 27;
constexpr double kLongest_s = 1e9;
constexpr std::int64_t kMostBytes = std::int64_t{1} << 62;
constexpr std::string_view kHelp = "The files of a run directory are written by spillway train; report takes them as they are.";

nlohmann::json json_of(const std::string& file) { return parse_strict_json(read_text_file(file, kLargestFile), file, kMostKeys); }

template <typename T>
T named(const JsonPlace& place, int count, std::string_view what) {
  for (int i = 0; i < count; ++i) {
    if (name_of(static_cast<T>(i)) == place.text()) return static_cast<T>(i);
  }
  place.refuse(fmt::format("is {}, which is no {}", shown_name(place.text()), what));
}

Lane lane_of(const JsonPlace& place) { return named<Lane>(place, kLanes, "lane"); }

Span span_of(const JsonPlace& begin, const JsonPlace& end) {
  const Span span{begin.number(-kLongest_s, kLongest_s), end.number(-kLongest_s, kLongest_s)};
  if (span.end_s < span.begin_s) end.refuse(fmt::format("is {}, before its beginning, {}", span.end_s, span.begin_s));
  return span;
}

RecordedOperation operation_of(const JsonPlace& place, std::size_t id, std::size_t count) {
  const JsonPlace said = place.at("id");
  if (said.integer(0, INT32_MAX) != static_cast<std::int64_t>(id))
    said.refuse(fmt::format("is {}; operations stand in the order of their ids", said.integer(0, INT32_MAX)));
  RecordedOperation operation;
  operation.kind = place.at("kind").text();
  operation.lane = lane_of(place.at("lane"));
  if (place.has("unit")) {
    operation.of = place.at("unit").text();
  } else if (place.has("block")) {
    operation.of = place.at("block").text();
  }
  if (place.has("micro_batch")) operation.micro_batch = static_cast<int>(place.at("micro_batch").integer(0, INT32_MAX));
  if (place.has("bytes")) operation.bytes = place.at("bytes").integer(0, kMostBytes);
  const JsonPlace waits = place.at("waits");
  for (std::size_t i = 0; i < waits.size(); ++i) {
    const JsonPlace wait = waits.at(i);
    operation.waits.push_back({static_cast<int>(wait.at(0).integer(0, static_cast<std::int64_t>(count) - 1)),
                               static_cast<int>(wait.at(1).integer(-1, 0))});
  }
  operation.planned = span_of(place.at("begin_s"), place.at("end_s"));
  return operation;
}

StepUse use_of(const JsonPlace& plan, std::size_t operations) {
  StepUse use;
  for (int t = 0; t < kTiers; ++t) {
    const JsonPlace resident = plan.at("resident").at(name_of(static_cast<Tier>(t)));
    for (int c = 0; c < kCategories; ++c)
      use.resident[t][c] = resident.at(name_of(static_cast<Category>(c))).integer(0, kMostBytes >> 4);
  }
  const JsonPlace buffers = plan.at("buffers");
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    const JsonPlace place = buffers.at(i), ops = place.at("ops");
    BufferUse buffer{.tier = named<Tier>(place.at("tier"), kTiers, "tier"),
                     .category = named<Category>(place.at("category"), kCategories, "category"),
                     .bytes = place.at("bytes").integer(0, kMostBytes >> 32),
                     .ops = {}};
    for (std::size_t k = 0; k < ops.size(); ++k)
      buffer.ops.push_back(static_cast<int>(ops.at(k).integer(0, static_cast<std::int64_t>(operations) - 1)));
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
  run.binding_lane = lane_of(predicted.at("binding_lane"));
  for (int t = 0; t < kTiers; ++t) {
    const JsonPlace tier = plan.at("tiers").at(name_of(static_cast<Tier>(t)));
    run.budget[t] = tier.at("budget_bytes").integer(0, kMostBytes);
    run.planned_peak[t] = tier.at("peak_bytes").integer(0, kMostBytes);
  }
  run.planned_read_bytes = plan.at("nvme_per_step").at("read_bytes").integer(0, kMostBytes);
  run.planned_written_bytes = plan.at("nvme_per_step").at("written_bytes").integer(0, kMostBytes);
  const JsonPlace operations = plan.at("ops");
  const std::size_t count = operations.size();
  if (count == 0) operations.refuse("is empty");
  for (std::size_t id = 0; id < count; ++id) run.operations.push_back(operation_of(operations.at(id), id, count));
  if (plan.has("buffers")) run.use = use_of(plan, count);
}

void read_timeline(RunRecord& run, const std::string& file) {
  const nlohmann::json json = json_of(file);
  const JsonPlace timeline(json, file, kHelp);
  run.timed_step = timeline.at("step").integer(1, kMostBytes);
  const JsonPlace spans = timeline.at("spans");
  if (spans.size() != run.operations.size()) {
    spans.refuse(fmt::format("has {} entries; the plan has {} operations", spans.size(), run.operations.size()));
  }
  for (std::size_t id = 0; id < spans.size(); ++id) {
    const JsonPlace span = spans.at(id);
    if (span.size() != 2) span.refuse(fmt::format("has {} entries, not two", span.size()));
    run.operations[id].recorded = span_of(span.at(0), span.at(1));
  }
}

// Whatever is wrong with a file that report is given is bad input to it.
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
