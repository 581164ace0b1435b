#include "trainer/data/row_content.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>

#include "memory/base/error.h"
#include "trainer/data/data_source.h"
#include "trainer/data/row_reader.h"
#include "trainer/data/row_turns.h"

namespace spillway {
namespace {

enum Key : std::uint8_t {
  kInputIds,
  kLabels,
  kText,
  kMessages,
  kConversations,
  kInstruction,
  kOutput,
  kPrompt,
  kCompletion,
  kChosen,
  kRejected,
  kKeys,
  kOther = kKeys
};
constexpr std::array<std::string_view, kKeys> kNames = {"input_ids",     "labels",      "text",    "messages",
                                                        "conversations", "instruction", "output",  "prompt",
                                                        "completion",    "chosen",      "rejected"};
using KeySet = std::array<bool, kKeys>;

Key key_named(std::string_view name) { return static_cast<Key>(std::ranges::find(kNames, name) - kNames.begin()); }

// The keys that tell a shape, and the others that are read in it.
struct ShapeKeys {
  Key first;
  std::optional<Key> second;
  std::vector<std::string_view> others;
};
const std::array<ShapeKeys, 6>& shapes() {
  static const std::array<ShapeKeys, 6> kShapes = {ShapeKeys{kInputIds, std::nullopt, {"labels"}},
                                                   ShapeKeys{kText, std::nullopt, {}},
                                                   ShapeKeys{kMessages, std::nullopt, {"tools"}},
                                                   ShapeKeys{kConversations, std::nullopt, {"system", "tools"}},
                                                   ShapeKeys{kInstruction, kOutput, {"input", "system", "history", "tools"}},
                                                   ShapeKeys{kPrompt, kCompletion, {"tools"}}};
  return kShapes;
}
std::string name_of(const ShapeKeys& shape) {
  return shape.second ? fmt::format("\"{}\" and \"{}\"", kNames[shape.first], kNames[*shape.second])
                      : fmt::format("\"{}\"", kNames[shape.first]);
}
bool has_all(const ShapeKeys& shape, const KeySet& keys) { return keys[shape.first] && (!shape.second || keys[*shape.second]); }
bool reads_key(const ShapeKeys& shape, std::string_view key) {
  return !key.empty() && (key == kNames[shape.first] || (shape.second && key == kNames[*shape.second]) ||
                          std::ranges::find(shape.others, key) != shape.others.end());
}

// Takes ids, labels and text as the parser meets them, and notes the keys.
class ShapeReader final : public RowReader<ShapeReader> {
 public:
  ShapeReader(RowContent& content, const RowLimits& limits) : content_(content), limits_(limits) {
    for (const ShapeKeys& shape : shapes()) names_shape_ = names_shape_ || is_named(shape);
    restart();
  }

  bool enter(const std::string& name) {
    key_ = key_of(name);
    return key_ == kOther || once(keys_[key_], name);
  }
  bool take(std::string& text) {
    if (depth() != 1 || key_ != kText) return other("a string");
    key_ = kOther;
    content_.text.swap(text);
    return true;
  }
  bool real(const std::string& text) { return depth() == 1 && key_ == kText ? refuse_text("a number") : other(text); }
  bool open(std::string_view found) {
    if (depth() == 0 || (depth() == 1 && key_ == kText)) return other(found);
    return (depth() == 1 && found == "an array") || inner(found);
  }
  // Refuses a value that is not a whole number in a list, if its key is read.
  bool other(std::string_view found) {
    if (depth() == 0) return refuse(found, "an object a line");
    if (depth() == 1 && is_list())
      return refuse(fmt::format("\"{}\" is {}", column_of(key_), found), "an array of whole numbers");
    if (depth() == 1 && key_ == kText && found != "null") return refuse_text(found);
    if (depth() == 1 && key_ != kOther && found == "null") nulls_[key_] = true;
    return depth() == 1 || inner(found);
  }
  bool number(std::int64_t value) {
    if (depth() == 1 && key_ == kText) return refuse_text("a number");
    if (depth() != 2 || !is_list()) return other(std::to_string(value));
    const bool is_label = key_ == kLabels;
    std::vector<std::int32_t>& list = is_label ? content_.labels : content_.ids;
    std::int64_t& found = is_label ? labels_found_ : content_.ids_found;
    const bool in_vocabulary = value >= 0 && value < limits_.vocabulary;
    if (!in_vocabulary && !(is_label && value == kNoLoss)) {
      const std::string shown = value == std::numeric_limits<std::int64_t>::max() ? "a number above 2^31" : std::to_string(value);
      return refuse(fmt::format("{} {} at position {}", is_label ? "label" : "token", shown, found),
                    fmt::format("0 to {} (the vocabulary of the model){}", limits_.vocabulary - 1,
                                is_label ? ", or -100 for no loss" : ""));
    }
    if (found < limits_.most) list.push_back(static_cast<std::int32_t>(value));
    ++found;
    return true;
  }
  bool reads(std::string_view name, const std::vector<std::string_view>& keys) const {
    KeySet there = {};
    const std::string_view key = limits_.columns.key_of(name, DataColumns::Level::row);
    for (const std::string_view other : keys) {
      if (const Key known = key_of(other); known != kOther) there[known] = true;
    }
    if (!names_shape_ && (key == "labels" || key == "input_ids")) return true;
    return std::ranges::any_of(
        shapes(), [&](const ShapeKeys& shape) { return may_be(shape) && has_all(shape, there) && reads_key(shape, key); });
  }
  void restart() {
    content_.ids.clear();
    content_.labels.clear();
    content_.text.clear();
    content_.ids_found = labels_found_ = 0;
    keys_ = nulls_ = {};
    key_ = kOther;
  }
  // Called after the last byte of `line`: the row is of one shape, or `problem` says why not.
  bool finish(std::string_view) {
    KeySet there = keys_;
    for (std::size_t key = 0; key < kKeys; ++key) there[key] = there[key] && !nulls_[key];
    if (there[kChosen] && there[kRejected] && !names_shape_)
      return refuse("\"chosen\" and \"rejected\", a preference pair",
                    "one answer a row: keep the chosen one, as \"messages\" or \"completion\"");
    for (const ShapeKeys& shape : shapes()) {
      if (!may_be(shape) || !has_all(shape, there)) continue;
      if (shape_ != nullptr)
        return refuse(fmt::format("both {} and {}, two shapes of a row", name_of(*shape_), name_of(shape)), "one of them");
      shape_ = &shape;
    }
    if (keys_[kLabels] && !there[kInputIds] && !names_shape_) return refuse("\"labels\" without \"input_ids\"", "both");
    if (shape_ == nullptr) return refuse_shapeless(there);
    content_.has_labels = keys_[kLabels];
    return shape_->first != kInputIds || finish_ids();
  }
  Key first_key() const { return shape_->first; }

 private:
  bool finish_ids() {
    if (content_.has_labels && labels_found_ != content_.ids_found) {
      return refuse(fmt::format("{} labels for {} input_ids", labels_found_, content_.ids_found), "as many labels as input_ids");
    }
    return content_.ids_found > 0 || refuse("no input_ids", "at least one");
  }
  bool refuse_shapeless(const KeySet& there) {
    if (names_shape_) return refuse_unnamed(there);
    for (const ShapeKeys& shape : shapes()) {
      if (!shape.second || there[shape.first] == there[*shape.second]) continue;
      const Key has = there[shape.first] ? shape.first : *shape.second, lacks = there[shape.first] ? *shape.second : shape.first;
      return refuse(fmt::format("\"{}\" without \"{}\"", kNames[has], kNames[lacks]), "both");
    }
    for (const Key key : {kText, kMessages, kConversations}) {
      if (nulls_[key]) return refuse(fmt::format("\"{}\" is null", kNames[key]), "a value");
    }
    return refuse(
        "neither \"input_ids\" nor \"text\" nor \"messages\" nor \"conversations\", nor \"prompt\" and \"completion\", nor "
        "\"instruction\" and \"output\"",
        "one of them");
  }
  bool refuse_unnamed(const KeySet& there) {
    for (const ShapeKeys& shape : shapes()) {
      for (const auto& key : {std::optional(shape.first), shape.second}) {
        if (!is_named(shape) || !key || there[*key]) continue;
        if (nulls_[*key]) return refuse(fmt::format("\"{}\" is null", column_of(*key)), "a value");
        return refuse(fmt::format("no \"{}\" in the row", column_of(*key)),
                      fmt::format("rows that have it, as --data-columns {} says", limits_.columns.text()));
      }
    }
    return true;
  }
  // --data-columns names the shape by one of its keys.
  bool is_named(const ShapeKeys& shape) const {
    return limits_.columns.mentions(kNames[shape.first]) || (shape.second && limits_.columns.mentions(kNames[*shape.second]));
  }
  bool may_be(const ShapeKeys& shape) const { return !names_shape_ || is_named(shape); }
  Key key_of(std::string_view name) const { return key_named(limits_.columns.key_of(name, DataColumns::Level::row)); }
  std::string_view column_of(Key key) const { return limits_.columns.name_of(kNames[key]); }
  bool refuse_text(std::string_view found) {
    return refuse_saying(fmt::format("\"{}\" is {}, allowed: a string", column_of(kText), found));
  }
  bool is_list() const { return key_ == kInputIds || key_ == kLabels; }
  // Refuses a value other than a whole number in a list of numbers.
  bool inner(std::string_view found) {
    return !is_list() || refuse(fmt::format("{} in \"{}\"", found, column_of(key_)), "whole numbers");
  }

  RowContent& content_;
  const RowLimits& limits_;
  bool names_shape_ = false;  // --data-columns says of which shape rows are
  const ShapeKeys* shape_ = nullptr;
  KeySet keys_ = {}, nulls_ = {};
  Key key_ = kOther;
  std::int64_t labels_found_ = 0;
};

}  // namespace

std::string read_row(std::string_view line, const RowLimits& limits, RowContent& content) {
  ShapeReader reader(content, limits);
  if (!reader.read(line)) return reader.problem();
  content.key = kNames[reader.first_key()];
  content.shape = reader.first_key() == kInputIds ? RowShape::ids : RowShape::text;
  if (reader.first_key() == kInputIds || reader.first_key() == kText) return {};
  try {
    // Parses the line once more, as a tree: such rows are short, and have few bytes for each token.
    auto turns = read_turns(reader.line(), content.key, limits.columns);
    if (auto* const texts = std::get_if<PromptAndCompletion>(&turns)) {
      content.shape = RowShape::completion;
      content.text = std::move(texts->text);
      content.completion_begin = texts->completion_begin;
    } else {
      content.shape = RowShape::conversation;
      content.conversation = std::move(std::get<Conversation>(turns));
    }
  } catch (const InputError& error) {
    return error.what();
  }
  return {};
}

}  // namespace spillway
