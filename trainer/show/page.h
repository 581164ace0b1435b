// One self-contained HTML page: style, script and data in one file, nothing fetched. Shared by plans and runs.
// Not here: the figures of a plan (plan_page.h) or a run (run_report.h), the drawing (page/page.js).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "memory/base/types.h"
#include "memory/plan/timeline.h"

namespace spillway {

// The page of `data`. Names are shown as text, whatever they contain.
std::string html_page(const nlohmann::ordered_json& data);

struct ShownOperation {
  std::string_view kind, lane;
  std::string_view of;  // the unit or the block; empty: neither
  int micro_batch = -1;
  Bytes bytes = 0;
  Span planned;
  std::optional<Span> recorded;
};

// Says which of `turns` turns a timeline shows, if not all.
std::string words_of_turns(int turns);

// A labelled moment of the timeline.
struct TimelineMark {
  double at_s = 0;
  std::string word;
};

// The lanes over time; an operation's id is its index in `operations`.
nlohmann::ordered_json timeline_data(std::span<const ShownOperation> operations, std::span<const TimelineMark> marks,
                                     std::string_view note);

// A table. Column names of figures end in '#'; every row has as many cells as there are columns.
nlohmann::ordered_json table_data(std::string_view title, std::string_view note, std::span<const std::string_view> columns,
                                  const std::vector<std::vector<std::string>>& rows);

}  // namespace spillway
