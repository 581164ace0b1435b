// JSON of the template language: reads rows and writes for | tojson, both as Python's json module does.
// Not here: the arguments of tojson (template_filters.cpp).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "trainer/chat/template_value.h"

namespace spillway {

// Reads one JSON value. Throws a TemplateProblem if it is not JSON or is nested deeper than a template may look. If a key is
// given twice, the last one counts.
TemplateValue read_template_json(std::string_view text);

struct TemplateJsonStyle {
  std::optional<std::string> indent;  // one step of indentation; without it, all is on one line
  std::string between_items = ", ";
  std::string after_key = ": ";
  enum class Escapes : std::uint8_t { control_characters, all_but_ascii } escapes = Escapes::control_characters;
  enum class Order : std::uint8_t { as_given, by_key } order = Order::as_given;
};

std::string write_template_json(const TemplateValue& value, const TemplateJsonStyle& style, std::size_t longest);

}  // namespace spillway
