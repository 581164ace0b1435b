// JSON of the template language: rows that are read, and what | tojson writes, both as Python's json module has them.
// Not here: which arguments tojson takes (template_filters.cpp).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "trainer/chat/template_value.h"

namespace spillway {

// One JSON value, or a TemplateProblem: no JSON, or nested deeper than a template may look. Of a key given twice the last counts.
TemplateValue read_template_json(std::string_view text);

struct TemplateJsonStyle {
  std::optional<std::string> indent;  // one step of it; without, all is on one line
  std::string between_items = ", ";
  std::string after_key = ": ";
  enum class Escapes : std::uint8_t { control_characters, all_but_ascii } escapes = Escapes::control_characters;
  enum class Order : std::uint8_t { as_given, by_key } order = Order::as_given;
};

std::string write_template_json(const TemplateValue& value, const TemplateJsonStyle& style, std::size_t longest);

}  // namespace spillway
