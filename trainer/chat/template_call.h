// Filters, tests, functions and methods of the template language: one table of signatures, against which every call is checked
// before it runs. An argument that Python's version takes and ours lacks is refused by name, as is an argument that neither
// takes: none is ignored.
// Not here: the callees themselves (template_filters.cpp, template_methods.cpp).
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/chat/template_limits.h"
#include "trainer/chat/template_value.h"

namespace spillway {

struct TemplateArguments {
  TemplateValue::Items values;
  std::vector<std::string> names;
  TemplateValue::Items named;  // as many as names
};

struct TemplateParameter {
  enum class Is : std::uint8_t { optional, needed, unknown };  // unknown: Python has it, this version does not
  std::string_view name;
  Is is = Is::optional;
};

class TemplateCall;

struct TemplateSignature {
  enum class Names : std::uint8_t {
    may_be_used,
    are_positions,
    go_on
  };  // go_on: arguments without a parameter are kept for the
      // callee
  std::string_view what;  // for messages: "the filter trim"
  std::string_view name;
  std::vector<TemplateParameter> parameters;
  Names names = Names::may_be_used;
  TemplateValue (*run)(const TemplateCall& call) = nullptr;
};

// Returns why a call with `values` positional arguments and these names does not fit; empty if it fits.
std::string problem_of_call(const TemplateSignature& signature, std::size_t values, std::span<const std::string> names);

// A call as its callee sees it: the value that it works on, and the arguments by parameter.
class TemplateCall {
 public:
  TemplateCall(const TemplateSignature& signature, const TemplateValue& self, const TemplateArguments& arguments,
               TemplateWork& work);

  const TemplateValue& self() const { return self_; }
  const TemplateValue* given(std::size_t parameter) const { return bound_[parameter]; }  // null: not given
  const TemplateValue& needed(std::size_t parameter) const { return *bound_[parameter]; }
  const TemplateArguments& all() const { return arguments_; }
  TemplateWork& work() const { return work_; }
  TemplateValue run() const { return signature_.run(*this); }

  bool is_true_at(std::size_t parameter) const;                                // false if not given
  bool is_given_at(std::size_t parameter) const;                               // given, and not none
  const std::string& text_at(std::size_t parameter) const;                     // throws if it is not text
  std::int64_t whole_at(std::size_t parameter, std::int64_t otherwise) const;  // a whole number; `otherwise` if not given

 private:
  [[noreturn]] void refuse(std::size_t parameter) const;

  const TemplateSignature& signature_;
  const TemplateValue& self_;
  const TemplateArguments& arguments_;
  TemplateWork& work_;
  std::vector<const TemplateValue*> bound_;  // [parameters]
};

// Checks a call and makes it.
TemplateValue call_template(const TemplateSignature& signature, const TemplateValue& self, const TemplateArguments& arguments,
                            TemplateWork& work);

// Null if there is none of that name.
const TemplateSignature* find_template_filter(std::string_view name);
const TemplateSignature* find_template_test(std::string_view name);
const TemplateSignature* find_template_function(std::string_view name);
// The method of this kind of value. If Python has the method and this version does not, throws a TemplateProblem.
const TemplateSignature& template_method(const TemplateValue& of, std::string_view name);

// `value.name` and value["name"] as in Jinja: the first looks for Python's methods before keys, the second for keys before
// methods.
TemplateValue member_of(const TemplateValue& value, const std::string& name);
TemplateValue item_of(const TemplateValue& value, const TemplateValue& key);

// Make values and check their limits.
TemplateValue made_text(const TemplateCall& call, std::string text);  // markup if self is markup
TemplateValue joined_text(const TemplateValue::Items& items, const TemplateValue& between, TemplateWork& work);
TemplateValue::Items items_with_limits(const TemplateValue& value, TemplateWork& work);
TemplateValue pairs_of(const TemplateValue& dictionary, TemplateValue::Kind kind);
void check_text_size(std::size_t bytes);
void check_item_count(std::size_t items);

}  // namespace spillway
