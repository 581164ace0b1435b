#include "trainer/options/data_columns.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>

namespace spillway {
namespace {

constexpr std::array<std::string_view, 13> kOfRows = {"input_ids",     "labels",      "text",      "messages", "tools",
                                                      "conversations", "instruction", "input",     "output",   "system",
                                                      "history",       "prompt",      "completion"};
constexpr std::array<std::string_view, 5> kOfMessages = {"role", "content", "from", "value", "weight"};

bool has(std::span<const std::string_view> keys, std::string_view key) { return std::ranges::find(keys, key) != keys.end(); }

}  // namespace

DataColumns::DataColumns(const FlagValue& value) {
  std::string_view rest = value.text();
  for (bool is_last = false; !is_last;) {
    const std::size_t comma = rest.find(',');
    is_last = comma == rest.npos;
    const std::string_view one = rest.substr(0, comma);
    if (!is_last) rest.remove_prefix(comma + 1);
    const std::size_t equals = one.find('=');
    if (equals == one.npos || equals == 0 || equals + 1 == one.size())
      value.refuse(one, "KEY=NAME, several with commas between, as in messages=chat,role=from");
    const std::string_view key = one.substr(0, equals), name = one.substr(equals + 1);
    if (!has(kOfRows, key) && !has(kOfMessages, key)) {
      value.refuse(
          one, fmt::format("our key first, one of {}; of messages {}", fmt::join(kOfRows, ", "), fmt::join(kOfMessages, ", ")));
    }
    const Level level = has(kOfRows, key) ? Level::row : Level::message;
    if (mentions(key)) value.refuse(value.text(), fmt::format("\"{}\" once", key));
    const bool is_taken =
        std::ranges::any_of(columns_, [&](const Column& other) { return other.name == name && other.level == level; });
    if (is_taken) value.refuse(value.text(), fmt::format("\"{}\" for one key", name));
    columns_.push_back({std::string(key), std::string(name), level});
  }
}

const DataColumns::Column* DataColumns::column_of(std::string_view key) const {
  const auto found = std::ranges::find(columns_, key, &Column::key);
  return found == columns_.end() ? nullptr : &*found;
}

bool DataColumns::mentions(std::string_view key) const { return column_of(key) != nullptr; }

std::string_view DataColumns::key_of(std::string_view name, Level level) const {
  for (const Column& column : columns_) {
    if (column.level == level && column.name == name) return column.key;
  }
  const Column* const own = column_of(name);
  return own != nullptr && own->level == level ? std::string_view() : name;
}

std::string_view DataColumns::name_of(std::string_view key) const {
  const Column* const column = column_of(key);
  return column == nullptr ? key : column->name;
}

std::string DataColumns::text() const {
  std::string text;
  for (const Column& column : columns_) text += fmt::format("{}{}={}", text.empty() ? "" : ",", column.key, column.name);
  return text;
}

}  // namespace spillway
