#include "trainer/show/page.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "memory/plan/plan.h"
#include "trainer/show/page/assets.h"
#include "trainer/words/quantity.h"

namespace spillway {
namespace {

using Json = nlohmann::ordered_json;

// Rounded to whole nanoseconds: short to write, and finer than any clock here.
std::int64_t nanoseconds(double seconds) { return std::isfinite(seconds) ? std::llround(seconds * 1e9) : 0; }

// Numbers names in the order of their first use.
class NameIndex {
 public:
  int index(std::string_view name) {
    const auto [entry, added] = indices_.try_emplace(std::string(name), static_cast<int>(list_.size()));
    if (added) list_.emplace_back(name);
    return entry->second;
  }
  const Json& list() const noexcept { return list_; }

 private:
  std::map<std::string, int, std::less<>> indices_;
  Json list_ = Json::array();
};

}  // namespace

std::string html_page(const nlohmann::ordered_json& data) {
  // ASCII only, and no '<', so that no name can form "</script" or "<!--".
  std::string text;
  for (const char c : data.dump(-1, ' ', true, Json::error_handler_t::replace)) {
    if (c == '<') {
      text += "\\u003c";
    } else {
      text += c;
    }
  }
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src 'unsafe-inline'; style-src "
      "'unsafe-inline'\">\n"
      "<meta name=\"viewport\" content=\"width=device-width\">\n<title>Spillway</title>\n<style>\n{}</style>\n</head>\n<body>\n"
      "<noscript>This page draws itself with a script.</noscript>\n<div id=\"tip\"></div>\n"
      "<script type=\"application/json\" id=\"data\">{}</script>\n<script>\n{}</script>\n</body>\n</html>\n",
      page_style().front().text, text, page_script().front().text);
}

std::string words_of_turns(int turns) {
  return turns <= kShownTurns
             ? ""
             : fmt::format(" Of the step's {} turns the first, the third and the last are shown: the others are as the third.",
                           with_commas(turns));
}

nlohmann::ordered_json timeline_data(std::span<const ShownOperation> operations, std::span<const TimelineMark> marks,
                                     std::string_view note) {
  NameIndex kinds, lanes, names;
  for (const auto& [of, _] : Names<Lane>::all) {  // in the order in which people think of lanes
    const std::string_view name = of;
    if (std::ranges::any_of(operations, [&](const ShownOperation& op) { return op.lane == name; })) lanes.index(name);
  }
  Json ops = {{"kind", Json::array()},
              {"lane", Json::array()},
              {"unit", Json::array()},
              {"micro_batch", Json::array()},
              {"bytes", Json::array()}};
  const auto add_span = [&](const std::string& what, const Span& span) {
    ops[what + "_begin"].push_back(nanoseconds(span.begin_s));
    ops[what + "_end"].push_back(nanoseconds(span.end_s));
  };
  bool recorded = false;
  for (const ShownOperation& op : operations) {
    ops["kind"].push_back(kinds.index(op.kind));
    ops["lane"].push_back(lanes.index(op.lane));
    ops["unit"].push_back(op.of.empty() ? -1 : names.index(op.of));
    ops["micro_batch"].push_back(op.micro_batch);
    ops["bytes"].push_back(op.bytes);
    add_span("planned", op.planned);
    if (op.recorded) add_span("recorded", *op.recorded), recorded = true;
  }
  Json shown_marks = Json::array();
  for (const TimelineMark& mark : marks) shown_marks.push_back({nanoseconds(mark.at_s), mark.word});
  return {{"note", note},         {"kinds", kinds.list()}, {"lanes", lanes.list()}, {"units", names.list()},
          {"recorded", recorded}, {"marks", shown_marks},  {"ops", std::move(ops)}};
}

nlohmann::ordered_json table_data(std::string_view title, std::string_view note, std::span<const std::string_view> columns,
                                  const std::vector<std::vector<std::string>>& rows) {
  Json heads = Json::array();
  for (std::string_view column : columns) {
    const bool number = column.ends_with('#');
    if (number) column.remove_suffix(1);
    heads.push_back({column, number ? "number" : ""});
  }
  return {{"title", title}, {"note", note}, {"columns", heads}, {"rows", rows}};
}

}  // namespace spillway
