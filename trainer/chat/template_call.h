// Filters, tests, functions and methods of the template language: one table of signatures, by which every call is checked before
// it is made. An argument that Python's has and ours has not is refused by name, like one that neither has: none is ignored.
// Not here: what each of them does (template_filters.cpp, template_methods.cpp).
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
  enum class Is : std::uint8_t { optional, needed, unknown };  // unknown: Python's, and not in this version
  std::string_view name;
  Is is = Is::optional;
};

class TemplateCall;

struct TemplateSignature {
  enum class Names : std::uint8_t { may_be_used, are_positions, go_on };  // go_on: what fits no parameter is kept for the callee
  std::string_view what;                                                  // for messages: "the filter trim"
  std::string_view name;
  std::vector<TemplateParameter> parameters;
  Names names = Names::may_be_used;
  TemplateValue (*run)(const TemplateCall& call) = nullptr;
};

// Why a call with that many arguments and these names does not fit; empty where it does.
std::string problem_of_call(const TemplateSignature& signature, std::size_t values, std::span<const std::string> names);

// A call as its callee sees it: what it works on, and the arguments by parameter.
class TemplateCall {
 public:
  TemplateCall(const TemplateSignature& signature, const TemplateValue& self, const TemplateArguments& arguments,
               TemplateWork& work);

  const TemplateValue& self() const { return self_; }
  const TemplateValue* given(std::size_t parameter) const { return bound_[parameter]; }  // null: was not given
  const TemplateValue& needed(std::size_t parameter) const { return *bound_[parameter]; }
  const TemplateArguments& all() const { return arguments_; }
  TemplateWork& work() const { return work_; }
  TemplateValue run() const { return signature_.run(*this); }

  bool is_true_at(std::size_t parameter) const;                                // false where it was not given
  bool is_given_at(std::size_t parameter) const;                               // and is not none
  const std::string& text_at(std::size_t parameter) const;                     // which must be text
  std::int64_t whole_at(std::size_t parameter, std::int64_t otherwise) const;  // whole number, where it was given

 private:
  [[noreturn]] void refuse(std::size_t parameter) const;

  const TemplateSignature& signature_;
  const TemplateValue& self_;
  const TemplateArguments& arguments_;
  TemplateWork& work_;
  std::vector<const TemplateValue*> bound_;  // [parameters]
};

// Checks and makes a call.
TemplateValue call_template(const TemplateSignature& signature, const TemplateValue& self, const TemplateArguments& arguments,
                            TemplateWork& work);

// Null where there is none of that name.
const TemplateSignature* find_template_filter(std::string_view name);
const TemplateSignature* find_template_test(std::string_view name);
const TemplateSignature* find_template_function(std::string_view name);
// A method of that kind of value; one that Python has and we have not is a TemplateProblem.
const TemplateSignature& template_method(const TemplateValue& of, std::string_view name);

// What `value.name` and value["name"] are in Jinja: the first takes Python's methods before keys, the other keys before methods.
TemplateValue member_of(const TemplateValue& value, const std::string& name);
TemplateValue item_of(const TemplateValue& value, const TemplateValue& key);

// Made values, with their limits.
TemplateValue made_text(const TemplateCall& call, std::string text);  // markup where self is
TemplateValue joined_text(const TemplateValue::Items& items, const TemplateValue& between, TemplateWork& work);
TemplateValue::Items items_with_limits(const TemplateValue& value, TemplateWork& work);
TemplateValue pairs_of(const TemplateValue& dictionary, TemplateValue::Kind kind);
void check_text_size(std::size_t bytes);
void check_item_count(std::size_t items);

}  // namespace spillway
