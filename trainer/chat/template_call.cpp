#include "trainer/chat/template_call.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "trainer/chat/template_text.h"

namespace spillway {

using Value = TemplateValue;
using Kind = TemplateValue::Kind;
using Is = TemplateParameter::Is;
using Names = TemplateSignature::Names;

namespace {

std::string allowed_arguments(const TemplateSignature& signature) {
  std::vector<std::string_view> names;
  for (const TemplateParameter& parameter : signature.parameters) {
    if (parameter.is != Is::unknown) names.push_back(parameter.name);
  }
  return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "));
}

std::size_t parameter_of(const TemplateSignature& signature, std::string_view name) {
  return static_cast<std::size_t>(std::ranges::find(signature.parameters, name, &TemplateParameter::name) -
                                  signature.parameters.begin());
}

}  // namespace

std::string problem_of_call(const TemplateSignature& signature, std::size_t values, std::span<const std::string> names) {
  const std::vector<TemplateParameter>& parameters = signature.parameters;
  if (values > parameters.size() && signature.names != Names::go_on)
    return fmt::format("{} with {} arguments, allowed: {}", signature.what, values, allowed_arguments(signature));
  std::vector<bool> is_given(parameters.size());
  std::fill_n(is_given.begin(), std::min(values, parameters.size()), true);
  for (const std::string& name : names) {
    const std::size_t parameter = parameter_of(signature, name);
    if (signature.names == Names::go_on) continue;
    if (signature.names == Names::are_positions || parameter == parameters.size())
      return fmt::format("{} with {}=, allowed: {}{}", signature.what, name, allowed_arguments(signature),
                         signature.names == Names::are_positions ? ", without names" : "");
    if (is_given[parameter]) return fmt::format("{} with {} twice", signature.what, name);
    is_given[parameter] = true;
  }
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (parameters[i].is == Is::needed && !is_given[i]) return fmt::format("{} without {}", signature.what, parameters[i].name);
    if (parameters[i].is == Is::unknown && is_given[i])
      return fmt::format("{} with {}, which is not in this version", signature.what, parameters[i].name);
  }
  return "";
}

TemplateCall::TemplateCall(const TemplateSignature& signature, const Value& self, const TemplateArguments& arguments,
                           TemplateWork& work)
    : signature_(signature), self_(self), arguments_(arguments), work_(work), bound_(signature.parameters.size()) {
  if (std::string problem = problem_of_call(signature, arguments.values.size(), arguments.names); !problem.empty())
    throw TemplateProblem{std::move(problem), true};  // a wrong call is the template's fault
  for (std::size_t i = 0; i < std::min(arguments.values.size(), bound_.size()); ++i) bound_[i] = &arguments.values[i];
  for (std::size_t i = 0; i < arguments.names.size(); ++i) {
    const std::size_t parameter = parameter_of(signature, arguments.names[i]);
    if (parameter < bound_.size()) bound_[parameter] = &arguments.named[i];
  }
}

void TemplateCall::refuse(std::size_t parameter) const {
  throw TemplateProblem{fmt::format("{} with {} that is {}", signature_.what, signature_.parameters[parameter].name,
                                    kind_name(*bound_[parameter]))};
}

bool TemplateCall::is_true_at(std::size_t parameter) const { return bound_[parameter] != nullptr && is_true(*bound_[parameter]); }

bool TemplateCall::is_given_at(std::size_t parameter) const {
  return bound_[parameter] != nullptr && !bound_[parameter]->is(Kind::none);
}

const std::string& TemplateCall::text_at(std::size_t parameter) const {
  if (!bound_[parameter]->is_text()) refuse(parameter);
  return bound_[parameter]->text();
}

std::int64_t TemplateCall::whole_at(std::size_t parameter, std::int64_t otherwise) const {
  if (bound_[parameter] == nullptr) return otherwise;
  if (!bound_[parameter]->is_whole()) refuse(parameter);
  return bound_[parameter]->integer();
}

Value call_template(const TemplateSignature& signature, const Value& self, const TemplateArguments& arguments,
                    TemplateWork& work) {
  const TemplateCall call(signature, self, arguments, work);
  work.spend(self.is_text() ? self.weight() : 0);
  Value made = call.run();
  work.spend(made.is_text() ? made.weight() : 0);
  const bool loses_spans = self.is_text() && !self.marked_text().generated.empty() && made.is_text() && !made.text().empty() &&
                           made.marked_text().generated.empty();
  if (loses_spans) throw TemplateProblem{fmt::format("{} of text from a {{% generation %}} block", signature.what), true};
  return made;
}

void check_text_size(std::size_t bytes) {
  if (bytes > kLongestTemplateText) throw TemplateProblem{fmt::format("text of more than {} bytes", kLongestTemplateText)};
}

void check_item_count(std::size_t items) {
  if (items > kMostTemplateItems) throw TemplateProblem{fmt::format("a list of more than {} items", kMostTemplateItems)};
}

Value made_text(const TemplateCall& call, std::string text) {
  check_text_size(text.size());
  return {std::move(text), call.self().is(Kind::markup) ? Kind::markup : Kind::text};
}

Value joined_text(const Value::Items& items, const Value& between, TemplateWork& work) {
  const bool escapes = between.is(Kind::markup);
  TemplateText text;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i > 0) text.text += between.text();
    append_text(text, (escapes ? escaped_text(items[i]) : as_text(items[i])).marked_text());
    check_text_size(text.text.size());
  }
  work.spend(static_cast<std::int64_t>(text.text.size()));
  return {std::move(text), between.kind()};
}

Value::Items items_with_limits(const Value& value, TemplateWork& work) {
  constexpr std::int64_t kBytesOfItem = 16;
  if (value.is_text()) {
    check_item_count(static_cast<std::size_t>(count_characters(value.text())));
    work.spend(value.weight() * kBytesOfItem);
  } else if (value.is_sequence() || value.is(Kind::dictionary)) {
    const std::size_t items = value.is_sequence() ? value.sequence().items.size() : entries_of(value).size();
    work.spend(static_cast<std::int64_t>(items) * kBytesOfItem);
  }
  return items_of(value);
}

Value pairs_of(const Value& dictionary, Kind kind) {
  Value::Items pairs;
  for (const auto& [key, value] : entries_of(dictionary)) pairs.push_back(Value::sequence(Kind::tuple, {key, value}));
  return Value::sequence(kind, std::move(pairs));
}

}  // namespace spillway
