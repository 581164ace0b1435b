// Values of the template language. Templates are written for Python's values, so these behave like them: a tuple is no list, the
// results of map and select can be read once, 1 == True, and == ignores the order of a dictionary.
// Not here: JSON (template_json.h), text (template_text.h), filters and methods (template_call.h).
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "trainer/chat/template_problem.h"

namespace spillway {

// Bytes [first, second) of a text, ascending; none within another.
using TemplateSpans = std::vector<std::pair<std::size_t, std::size_t>>;

// A text, and the bytes of it that {% generation %} blocks made, one span for each block.
struct TemplateText {
  std::string text;
  TemplateSpans generated;
};

struct TemplateDictionary;
struct TemplateSequence;
struct TemplateSpace;
struct TemplateLoop;
struct TemplateMethod;
struct TemplateMacro;

// Cheap to copy: texts and containers are shared and do not change. Namespaces, loops and iterators do change; Python shares
// them, too.
class TemplateValue {
 public:
  enum class Kind : std::uint8_t {
    undefined,
    none,
    boolean,
    integer,
    large_integer,  // more than 64 bits: digits to print
    real,
    text,
    markup,  // text from | safe: text that is added to it is escaped
    list,
    tuple,
    range,
    keys,  // keys() of a dictionary; values and pairs likewise
    values,
    pairs,
    iterator,
    dictionary,
    space,  // namespace()
    loop,
    method,    // a value's method, not called yet
    function,  // a function of the language
    macro      // a macro of the template, or caller() of a call block
  };
  using Items = std::vector<TemplateValue>;
  using Entry = std::pair<TemplateValue, TemplateValue>;
  using Entries = std::vector<Entry>;

  TemplateValue() = default;  // undefined
  TemplateValue(std::nullptr_t) : kind_(Kind::none) {}
  TemplateValue(std::same_as<bool> auto value) : kind_(Kind::boolean), held_(value) {}
  TemplateValue(std::integral auto value)
    requires(!std::same_as<decltype(value), bool>)
      : kind_(Kind::integer), held_(static_cast<std::int64_t>(value)) {}
  TemplateValue(double value) : kind_(Kind::real), held_(value) {}
  TemplateValue(std::string text, Kind kind = Kind::text) : TemplateValue(TemplateText{std::move(text), {}}, kind) {}
  TemplateValue(TemplateText text, Kind kind) : kind_(kind), held_(std::make_shared<const TemplateText>(std::move(text))) {}
  TemplateValue(std::string_view text) : TemplateValue(std::string(text)) {}
  TemplateValue(const char* text) : TemplateValue(std::string(text)) {}

  static TemplateValue sequence(Kind kind, Items items);
  static TemplateValue list(Items items) { return sequence(Kind::list, std::move(items)); }
  static TemplateValue dictionary(Entries entries);  // a later entry of the same key wins, in the first one's place
  static TemplateValue space(std::shared_ptr<TemplateSpace> space) { return {Kind::space, std::move(space)}; }
  static TemplateValue loop(std::shared_ptr<TemplateLoop> loop) { return {Kind::loop, std::move(loop)}; }
  static TemplateValue method(TemplateValue of, std::string name);
  static TemplateValue macro(TemplateMacro macro);

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_defined() const { return kind_ != Kind::undefined; }
  bool is_text() const { return kind_ == Kind::text || kind_ == Kind::markup; }
  bool is_number() const { return kind_ >= Kind::boolean && kind_ <= Kind::real; }
  bool is_whole() const { return kind_ == Kind::integer || kind_ == Kind::boolean; }
  bool is_sequence() const { return kind_ >= Kind::list && kind_ <= Kind::iterator; }

  // Each accessor is valid only for its kinds.
  bool boolean() const { return std::get<bool>(held_); }
  std::int64_t integer() const { return is(Kind::boolean) ? (boolean() ? 1 : 0) : std::get<std::int64_t>(held_); }
  double real() const { return is(Kind::real) ? std::get<double>(held_) : static_cast<double>(integer()); }
  const TemplateText& marked_text() const { return *std::get<std::shared_ptr<const TemplateText>>(held_); }
  const std::string& text() const { return marked_text().text; }  // or digits, or a name
  TemplateSequence& sequence() const { return *std::get<std::shared_ptr<TemplateSequence>>(held_); }
  const TemplateDictionary& dictionary() const { return *std::get<std::shared_ptr<const TemplateDictionary>>(held_); }
  TemplateSpace& space() const { return *std::get<std::shared_ptr<TemplateSpace>>(held_); }
  TemplateLoop& loop() const { return *std::get<std::shared_ptr<TemplateLoop>>(held_); }
  const TemplateMethod& method() const { return *std::get<std::shared_ptr<const TemplateMethod>>(held_); }
  const TemplateMacro& macro() const { return *std::get<std::shared_ptr<const TemplateMacro>>(held_); }
  const void* identity() const;

  int depth() const;            // nesting of containers
  std::int64_t weight() const;  // about how many bytes a walk through all of it reads

 private:
  using Held =
      std::variant<std::monostate, bool, std::int64_t, double, std::shared_ptr<const TemplateText>,
                   std::shared_ptr<TemplateSequence>, std::shared_ptr<const TemplateDictionary>, std::shared_ptr<TemplateSpace>,
                   std::shared_ptr<TemplateLoop>, std::shared_ptr<const TemplateMethod>, std::shared_ptr<const TemplateMacro>>;
  TemplateValue(Kind kind, Held held) : kind_(kind), held_(std::move(held)) {}

  Kind kind_ = Kind::undefined;
  Held held_;
};

struct TemplateSequence {
  TemplateValue::Items items;
  std::size_t taken = 0;  // items that an iterator has given out
  bool is_left = false;   // an iterator that in Python would still have items, unknown to us
  int depth = 1;
  std::int64_t weight = 0;
};

struct TemplateSpace {
  TemplateValue::Entries entries;
};

struct TemplateLoop {
  TemplateValue::Items items;
  std::size_t index0 = 0;
};

struct TemplateMethod {
  TemplateValue of;
  std::string name;
};

struct TemplateStatement;
// Macros are in variables alone, never within other values, so each is gone before the scope that it was defined in.
struct TemplateMacro {
  const TemplateStatement* statement;
  std::size_t scope;  // that it was defined in
};

// Some of the bytes of a text, with their spans; `part` points into `of`.
TemplateValue part_of_text(const TemplateValue& of, std::string_view part);
TemplateValue as_text(const TemplateValue& value);  // itself if it is text, else printed
// As it stands in markup: with <, > and their like escaped, unless it is markup.
TemplateValue escaped_text(const TemplateValue& value);
// Adds a text at the end, with its spans.
void append_text(TemplateText& to, const TemplateText& text);

// The value of a key, or null. Throws a TemplateProblem for an unhashable key.
const TemplateValue* find_entry(const TemplateValue& dictionary, const TemplateValue& key);
const TemplateValue::Entries& entries_of(const TemplateValue& dictionary);
bool is_hashable(const TemplateValue& value);

bool is_true(const TemplateValue& value);
bool are_equal(const TemplateValue& left, const TemplateValue& right);
// Negative, 0 or positive. Throws a TemplateProblem if Python has no order for them or we do not compare them.
int order_of(const TemplateValue& left, const TemplateValue& right, std::string_view what_for);
bool contains(const TemplateValue& whole, const TemplateValue& part);

// The items that a loop over the value visits, in order. For an iterator, the items not taken yet, which are then taken.
TemplateValue::Items items_of(const TemplateValue& value);
TemplateValue first_of(const TemplateValue& value);  // consumes it, if it is an iterator
std::int64_t length_of(const TemplateValue& value);

// Marks an iterator as abandoned, because it was made into another one or a loop over it stopped early: Python reads each item
// when it is asked for it, we read all at once. Any later reader of the iterator is refused.
void leave_iterator(const TemplateValue& value);

std::string_view kind_name(const TemplateValue& value);
std::string in_quotes(std::string_view text);  // for messages: on one line, and short
// Text as Python's str() gives it.
std::string printed(const TemplateValue& value);
std::string printed_real(double value);

}  // namespace spillway
