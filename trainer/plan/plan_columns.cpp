#include "trainer/plan/plan_columns.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <vector>

#include "nvme/content_hash.h"

namespace spillway {
namespace {

using Json = nlohmann::ordered_json;

void append(std::string& text, std::int64_t number) {
  const fmt::format_int digits(number);
  text.append(digits.data(), digits.size());
}

// Builds the text of a JSON object without the object, which would take hundreds of megabytes for a large model.
class Columns {
 public:
  Columns& add(std::string_view key, const Json& value) { return add_text(key, value.dump()); }
  // `each(add)` calls add(number) or add(list) for every entry.
  template <typename Each>
  Columns& column(std::string_view key, const Each& each) {
    std::string list = "[";
    const auto add = [&](const auto& entry) {
      if (list.size() > 1) list += ',';
      if constexpr (std::is_arithmetic_v<std::decay_t<decltype(entry)>>) {
        append(list, entry);
      } else {
        list += '[';
        for (std::size_t i = 0; i < entry.size(); ++i) {
          if (i > 0) list += ',';
          append(list, entry[i]);
        }
        list += ']';
      }
    };
    each(add);
    return add_text(key, list + "]");
  }
  Columns& add_text(std::string_view key, std::string_view text) {
    fmt::format_to(std::back_inserter(text_), "{}\n  \"{}\": {}", text_.empty() ? "" : ",", key, text);
    return *this;
  }
  std::string text() const { return "{" + text_ + "\n }"; }

 private:
  std::string text_;
};

// Numbers distinct values in the order in which they first occur.
template <typename T>
class Repeated {
 public:
  int index(const T& value) {
    const auto [found, is_new] = places_.try_emplace(value, static_cast<int>(places_.size()));
    if (is_new) list_.push_back(value);
    return found->second;
  }
  const std::vector<T>& list() const { return list_; }

 private:
  std::map<T, int> places_;
  std::vector<T> list_;
};

using OperationClass = std::tuple<std::string_view, Lane, TurnSet, int, Bytes>;  // name, micro-batches, bytes
using BufferClass = std::tuple<Tier, Category, Bytes>;

Json to_json(const OperationClass& of) {
  const auto& [kind, lane, when, micro_batches, bytes] = of;
  return {
      {"kind", kind}, {"lane", name_of(lane)}, {"when", turn_words(when)}, {"micro_batches", micro_batches}, {"bytes", bytes}};
}
Json to_json(const BufferClass& of) {
  const auto& [tier, category, bytes] = of;
  return {{"tier", name_of(tier)}, {"category", name_of(category)}, {"bytes", bytes}};
}
template <typename T>
Json list_of(const Repeated<T>& classes) {
  Json list = Json::array();
  for (const T& of : classes.list()) list.push_back(to_json(of));
  return list;
}

// Hashes all fields of operations and buffers, number after number.
class Digest {
 public:
  void add(std::int64_t number) {
    numbers_.push_back(number);
    if (numbers_.size() == kAtOnce) flush();
  }
  template <typename E>
    requires std::is_enum_v<E>
  void add(E value) {
    add(static_cast<std::int64_t>(value));
  }
  void add(const Buffer& buffer) {
    add(buffer.category), add(buffer.tier), add(buffer.bytes), add(buffer.offset), add(buffer.slots);
    add(buffer.first_op), add(buffer.last_op);
  }
  void add(const Op& op) {
    add(op.kind), add(op.lane), add(op.when), add(op.unit), add(op.block), add(op.strip.first), add(op.strip.count);
    add(op.element_begin), add(op.element_end), add(op.bytes);
    for (const Operand& operand : op.operands) {
      add(operand.role), add(operand.access), add(operand.kind), add(operand.version), add(operand.buffer);
      add(operand.begin), add(operand.bytes);
    }
    for (const Wait& wait : op.waits) add(wait.op), add(wait.turn);
    add(std::int64_t{-1});
  }
  std::string text() {
    flush();
    return fmt::format("xxh3:{:016x}", hasher_.take());
  }

 private:
  static constexpr std::size_t kAtOnce = 1 << 12;
  void flush() {
    hasher_.add(std::as_bytes(std::span(numbers_)));
    numbers_.clear();
  }
  std::vector<std::int64_t> numbers_;
  ContentHasher hasher_;
};

std::string digest_of(const Plan& plan) {
  Digest digest;
  for (const Buffer& buffer : plan.resident) digest.add(buffer);
  for (const Buffer& buffer : plan.step.buffers) digest.add(buffer);
  for (const Op& op : plan.step.ops) digest.add(op);
  return digest.text();
}

void add_times(Columns& columns, const Plan& plan, const Prediction& prediction) {
  const double unit_s = prediction.step_s / 1e6;  // fine enough to keep the order at the end of a step
  const std::vector<Span>& spans = prediction.timeline.spans;
  const auto units = [&](double seconds) { return std::llround(seconds / unit_s); };
  const auto turns = [&](const auto& figure_of) {
    std::string lists;
    for (std::size_t first = 0; first < spans.size(); first += plan.step.ops.size()) {
      lists += first > 0 ? "],[" : "[[";
      for (std::size_t i = 0; i < plan.step.ops.size(); ++i) {
        if (i > 0) lists += ',';
        append(lists, figure_of(spans[first + i], i > 0 ? spans[first + i - 1].begin_s : 0));
      }
    }
    return lists + "]]";
  };
  columns.add("time_unit_s", unit_s);
  columns.add_text("begin_delta",
                   turns([&](const Span& span, double before_s) { return units(span.begin_s) - units(before_s); }));
  columns.add_text("duration", turns([&](const Span& span, double) { return units(span.end_s) - units(span.begin_s); }));
}

}  // namespace

std::vector<int> turns_shown(int turns) {
  std::vector<int> shown;
  for (int index = 0; index < shown_turns(turns); ++index) shown.push_back(shown_turn(index, turns));
  return shown;
}

std::string turn_words(TurnSet when) {
  if ((when & kEveryTurn) == kEveryTurn) return "every";
  std::vector<std::string_view> words;
  if ((when & kFirstTurn) == kWaitingTurn) words.push_back("waiting");
  if ((when & kFirstTurn & ~kWaitingTurn) != 0) words.push_back("first");
  if ((when & kMiddleTurns) != 0) words.push_back("middle");
  if ((when & kLastTurn) != 0) words.push_back("last");
  return fmt::format("{}", fmt::join(words, ", "));
}

std::string operations_text(const Plan& plan, const UnitGraph& graph, const Prediction* times) {
  const std::vector<Op>& ops = plan.step.ops;
  const int turns = turns_of(plan.choices);
  Repeated<OperationClass> classes;
  Repeated<std::string_view> names;
  Columns columns;
  columns.add("count", ops.size()).add("digest", digest_of(plan)).add("turns", turns).add("shown_turns", turns_shown(turns));
  const auto column = [&](std::string_view key, const auto& of) {
    columns.column(key, [&](const auto& add) {
      for (const Op& op : ops) add(of(op));
    });
  };
  column("class", [&](const Op& op) { return classes.index({name_of(op), op.lane, op.when, op.strip.count, op.bytes}); });
  column("of", [&](const Op& op) {
    if (op.unit < 0 && op.block < 0) return -1;
    return names.index(op.unit >= 0 ? graph.units[static_cast<std::size_t>(op.unit)].name
                                    : graph.blocks[static_cast<std::size_t>(op.block)].name);
  });
  column("micro_batch", [](const Op& op) { return op.strip.first; });
  std::vector<int> waits;
  column("waits", [&](const Op& op) {
    const auto id = static_cast<int>(&op - ops.data());
    waits.clear();
    for (const Wait& wait : op.waits) waits.push_back(wait.turn == 0 ? id - wait.op : -1 - wait.op);
    return std::span<const int>(waits);
  });
  columns.add("classes", list_of(classes)).add("names", names.list());
  if (times != nullptr) add_times(columns, plan, *times);
  return columns.text();
}

std::string buffers_text(const StepUse& use) {
  Repeated<BufferClass> classes;
  Columns columns;
  const auto column = [&](std::string_view key, const auto& of) {
    columns.column(key, [&](const auto& add) {
      for (const BufferUse& buffer : use.buffers) add(of(buffer));
    });
  };
  column("class", [&](const BufferUse& buffer) { return classes.index({buffer.tier, buffer.category, buffer.bytes}); });
  std::vector<int> ops;
  column("ops", [&](const BufferUse& buffer) {
    ops = buffer.ops;
    for (std::size_t i = 1; i < ops.size(); ++i) ops[i] -= ops[0];
    return std::span<const int>(ops);
  });
  columns.add("classes", list_of(classes));
  return columns.text();
}

}  // namespace spillway
