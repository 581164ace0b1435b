#include "trainer/show/trace_file.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace spillway {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kThreadsOfLane = 1000;  // distance of the thread ids of two lanes

// Events of one timeline. The viewer drops events that overlap within a thread, so each goes to the first free thread of its
// lane.
class Process {
 public:
  Process(Json& events, int id, std::string_view name) : events_(events), id_(id) {
    events_.push_back({{"ph", "M"}, {"pid", id_}, {"tid", 0}, {"name", "process_name"}, {"args", {{"name", name}}}});
    events_.push_back({{"ph", "M"}, {"pid", id_}, {"tid", 0}, {"name", "process_sort_index"}, {"args", {{"sort_index", id_}}}});
  }

  void add(const RecordedOperation& operation, const Span& span) {
    // Whole nanoseconds, so that an end and a begin at the same moment stay in order.
    const std::int64_t begin_ns = std::llround(span.begin_s * 1e9), end_ns = std::llround(span.end_s * 1e9);
    if (end_ns <= begin_ns) return;  // was skipped
    const int thread = thread_for(operation.lane, begin_ns, end_ns);
    Json arguments = {{"operation", operation.id}};
    if (!operation.of.empty()) arguments["of"] = operation.of;
    if (operation.micro_batch >= 0) arguments["micro_batch"] = operation.micro_batch;
    if (operation.bytes > 0) arguments["bytes"] = operation.bytes;
    arguments["planned_us"] = (operation.planned.end_s - operation.planned.begin_s) * 1e6;
    events_.push_back({{"ph", "X"},
                       {"pid", id_},
                       {"tid", thread},
                       {"ts", microseconds(begin_ns)},
                       {"dur", microseconds(end_ns - begin_ns)},
                       {"name", operation.of.empty() ? operation.kind : fmt::format("{} {}", operation.kind, operation.of)},
                       {"cat", operation.kind},
                       {"args", arguments}});
  }

 private:
  static double microseconds(std::int64_t ns) { return static_cast<double>(ns) / 1e3; }

  int thread_for(Lane lane, std::int64_t begin_ns, std::int64_t end_ns) {
    std::vector<std::int64_t>& free_at = free_at_[lane];
    const auto found = std::ranges::find_if(free_at, [&](std::int64_t at) { return at <= begin_ns; });
    const auto index = found - free_at.begin();
    const int thread = (static_cast<int>(lane) + 1) * kThreadsOfLane + static_cast<int>(index);
    if (found != free_at.end()) {
      *found = end_ns;
      return thread;
    }
    free_at.push_back(end_ns);
    const std::string name = index == 0 ? std::string(name_of(lane)) : fmt::format("{} ({})", name_of(lane), index + 1);
    events_.push_back({{"ph", "M"}, {"pid", id_}, {"tid", thread}, {"name", "thread_name"}, {"args", {{"name", name}}}});
    events_.push_back(
        {{"ph", "M"}, {"pid", id_}, {"tid", thread}, {"name", "thread_sort_index"}, {"args", {{"sort_index", thread}}}});
    return thread;
  }

  Json& events_;
  int id_;
  By<Lane, std::vector<std::int64_t>> free_at_;
};

void add_process(Json& events, int id, const std::string& name, const RunRecord& run, Span RecordedOperation::* when) {
  Process process(events, id, name);
  std::vector<int> order(run.operations.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
  std::ranges::stable_sort(order, {}, [&](int i) { return (run.operations[static_cast<std::size_t>(i)].*when).begin_s; });
  for (const int i : order)
    process.add(run.operations[static_cast<std::size_t>(i)], run.operations[static_cast<std::size_t>(i)].*when);
}

}  // namespace

std::string trace_text(const RunRecord& run) {
  Json events = Json::array();
  add_process(events, 1, fmt::format("recorded, step {}", run.timed_step.value_or(0)), run, &RecordedOperation::recorded);
  add_process(events, 2, "planned", run, &RecordedOperation::planned);
  const Json trace = {{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events)}};
  return trace.dump(-1, ' ', true, Json::error_handler_t::replace) + "\n";
}

}  // namespace spillway
