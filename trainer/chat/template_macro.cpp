#include "trainer/chat/template_macro.h"

#include <fmt/core.h>

#include <algorithm>

namespace spillway {

using Value = TemplateValue;

MacroArguments macro_arguments(const TemplateStatement& macro, const TemplateArguments& arguments) {
  MacroArguments bound;
  const std::size_t parameters = macro.names.size(), given = std::min(parameters, arguments.values.size());
  std::vector<std::string> names = arguments.names;
  Value::Items named = arguments.named;
  const auto take_named = [&](const std::string& name, Value& value) {
    const auto found = std::ranges::find(names, name);
    if (found == names.end()) return false;
    const auto at = found - names.begin();
    value = std::move(named[static_cast<std::size_t>(at)]);
    names.erase(found);
    named.erase(named.begin() + at);
    return true;
  };
  for (std::size_t i = 0; i < parameters; ++i) {
    Value value;
    if (i < given)
      value = arguments.values[i];
    else if (!take_named(macro.names[i], value))
      bound.missing.push_back(i);
    bound.values.emplace_back(macro.names[i], std::move(value));
  }
  if ((macro.uses & kUsesCaller) != 0) {
    Value caller;
    take_named("caller", caller);
    bound.values.emplace_back("caller", std::move(caller));
  }
  if ((macro.uses & kUsesKwargs) != 0) {
    Value::Entries entries;
    for (std::size_t i = 0; i < names.size(); ++i) entries.emplace_back(names[i], named[i]);
    bound.values.emplace_back("kwargs", Value::dictionary(std::move(entries)));
  } else if (!names.empty()) {
    throw TemplateProblem{fmt::format("the macro {} with {}=, which is no parameter left to give", macro.text, names[0]), true};
  }
  if ((macro.uses & kUsesVarargs) != 0) {
    const auto first = arguments.values.begin() + static_cast<std::ptrdiff_t>(given);
    bound.values.emplace_back("varargs", Value::sequence(Value::Kind::tuple, Value::Items(first, arguments.values.end())));
  } else if (arguments.values.size() > parameters) {
    throw TemplateProblem{
        fmt::format("the macro {} with {} arguments, allowed: {}", macro.text, arguments.values.size(), parameters), true};
  }
  return bound;
}

}  // namespace spillway
