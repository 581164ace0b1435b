// One self-contained HTML page: style, script and data in one file, nothing fetched. What a plan and a run show alike.
// Not here: which figures a plan (plan_page.h) or a run (run_report.h) shows, how they are drawn (page/page.js).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "memory/timeline.h"
#include "memory/types.h"

namespace spillway {

// The page of `data`, whose names are shown as text whatever they contain.
std::string html_page(const nlohmann::ordered_json& data);

struct ShownOperation {
  std::string_view kind, lane;
  std::string_view of;  // the unit or the block; empty: neither
  int micro_batch = -1;
  Bytes bytes = 0;
  Span planned;
  std::optional<Span> recorded;
};

// Which of so many turns a timeline shows, where that is not all of them.
std::string words_of_turns(int turns);

// A moment of the timeline with a word.
struct TimelineMark {
  double at_s = 0;
  std::string word;
};

// The lanes over time; an operation's id is its place in `operations`.
nlohmann::ordered_json timeline_data(std::span<const ShownOperation> operations, std::span<const TimelineMark> marks,
                                     std::string_view note);

// A table: columns are names, those of figures end in '#'; every row has as many cells.
nlohmann::ordered_json table_data(std::string_view title, std::string_view note, std::span<const std::string_view> columns,
                                  const std::vector<std::vector<std::string>>& rows);

}  // namespace spillway
