#include "trainer/data/row_turns.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "memory/base/error.h"
#include "trainer/chat/template_json.h"
#include "trainer/chat/template_problem.h"

namespace spillway {
namespace {

using Value = TemplateValue;
using Kind = TemplateValue::Kind;

const Value* entry_of(const Value& object, const char* key) {
  const Value* const found = find_entry(object, Value(key));
  return found == nullptr || found->is(Kind::none) ? nullptr : found;
}

[[noreturn]] void refuse(const std::string& found, const std::string& allowed) {
  throw InputError(fmt::format("found {}, allowed: {}", found, allowed));
}

std::string_view an(const Value& value) {
  if (value.is(Kind::list)) return "an array";
  if (value.is(Kind::dictionary)) return "an object";
  if (value.is(Kind::boolean)) return "a boolean";
  return value.is_text() ? "a string" : value.is_number() ? "a number" : kind_name(value);
}

// The text of a key; empty if the row lacks it.
std::string text_at(const Value& row, const char* key) {
  const Value* const found = entry_of(row, key);
  if (found == nullptr) return {};
  if (!found->is_text()) refuse(fmt::format("\"{}\" is {}", key, an(*found)), "a string");
  return found->text();
}

Value message(std::string_view role, Value content) {
  return Value::dictionary({{Value("role"), Value(role)}, {Value("content"), std::move(content)}});
}

Value parsed(const std::string& text, std::string_view what) {
  try {
    return read_template_json(text);
  } catch (const TemplateProblem&) {
    throw InputError(fmt::format("{} is not valid JSON", what));
  }
}

// Functions come as a list, or as a text with it, as data sets of other programs' have it; without a frame, they get one.
Value tools_of(const Value& row) {
  const Value* const found = entry_of(row, "tools");
  if (found == nullptr) return nullptr;
  if (!found->is_text()) return *found;
  if (found->text().empty()) return nullptr;
  const Value tools = parsed(found->text(), "\"tools\", a string,");
  if (!tools.is(Kind::list)) return tools;
  Value::Items framed;
  for (const Value& tool : tools.sequence().items) {
    const bool is_bare = tool.is(Kind::dictionary) && entry_of(tool, "function") == nullptr && entry_of(tool, "name") != nullptr;
    framed.push_back(is_bare ? Value::dictionary({{Value("type"), Value("function")}, {Value("function"), tool}}) : tool);
  }
  return framed.empty() ? Value(nullptr) : Value::list(std::move(framed));
}

// A turn of the assistant that calls functions: its text is {"name": ..., "arguments": ...}, or a list of such.
Value message_of_call(const Value& text, std::size_t i) {
  const std::string where = fmt::format("\"value\" of turn {}, a function_call,", i);
  const Value call = text.is_text() ? parsed(text.text(), where) : text;
  Value::Items calls;
  for (const Value& one : call.is(Kind::list) ? call.sequence().items : Value::Items{call}) {
    const Value* const name = one.is(Kind::dictionary) ? entry_of(one, "name") : nullptr;
    const Value* const given = one.is(Kind::dictionary) ? entry_of(one, "arguments") : nullptr;
    if (name == nullptr || given == nullptr) throw InputError(where + " has no \"name\" and \"arguments\"");
    const Value arguments = given->is_text() ? parsed(given->text(), where + " whose \"arguments\"") : *given;
    calls.push_back(
        Value::dictionary({{Value("type"), Value("function")},
                           {Value("function"), Value::dictionary({{Value("name"), *name}, {Value("arguments"), arguments}})}}));
  }
  return Value::dictionary(
      {{Value("role"), Value("assistant")}, {Value("content"), Value("")}, {Value("tool_calls"), Value::list(std::move(calls))}});
}

constexpr std::array<std::pair<std::string_view, std::string_view>, 7> kSpeakers = {{{"human", "user"},
                                                                                     {"user", "user"},
                                                                                     {"gpt", "assistant"},
                                                                                     {"assistant", "assistant"},
                                                                                     {"system", "system"},
                                                                                     {"observation", "tool"},
                                                                                     {"tool", "tool"}}};

Value message_of_turn(const Value& turn, std::size_t i) {
  if (!turn.is(Kind::dictionary)) refuse(fmt::format("turn {} is {}", i, an(turn)), "an object with \"from\" and \"value\"");
  if (entry_of(turn, "from") == nullptr && entry_of(turn, "role") != nullptr) return turn;  // a message already
  const std::string from = text_at(turn, "from");
  const Value* const value = entry_of(turn, "value");
  if (from.empty() || value == nullptr)
    refuse(fmt::format("turn {} without \"{}\"", i, from.empty() ? "from" : "value"), "both \"from\" and \"value\"");
  Value made;
  if (from == "function_call") {
    made = message_of_call(*value, i);
  } else {
    for (const auto& [speaker, role] : kSpeakers) {
      if (speaker == from) made = message(role, *value);
    }
  }
  if (!made.is_defined())
    refuse(fmt::format("turn {} from {}", i, in_quotes(from)),
           "human, user, gpt, assistant, system, observation, tool, function_call");
  const Value* const weight = entry_of(turn, "weight");
  if (weight == nullptr) return made;
  Value::Entries entries = entries_of(made);
  entries.emplace_back(Value("weight"), *weight);
  return Value::dictionary(std::move(entries));
}

void add_system(const Value& row, Value::Items& messages) {
  std::string system = text_at(row, "system");
  if (!system.empty()) messages.push_back(message("system", Value(std::move(system))));
}

Value::Items messages_of_conversations(const Value& row) {
  const Value& turns = *entry_of(row, "conversations");
  if (!turns.is(Kind::list))
    refuse(fmt::format("\"conversations\" is {}", an(turns)), "an array of objects with \"from\" and \"value\"");
  Value::Items messages;
  add_system(row, messages);
  for (std::size_t i = 0; i < turns.sequence().items.size(); ++i)
    messages.push_back(message_of_turn(turns.sequence().items[i], i));
  if (messages.empty()) refuse("no turn in \"conversations\"", "at least one");
  return messages;
}

// "history" is a list of pairs of what was said and answered before.
void add_history(const Value& row, Value::Items& messages) {
  const Value* const history = entry_of(row, "history");
  if (history == nullptr) return;
  const auto is_pair = [](const Value& pair) {
    return pair.is(Kind::list) && pair.sequence().items.size() == 2 && pair.sequence().items[0].is_text() &&
           pair.sequence().items[1].is_text();
  };
  if (!history->is(Kind::list)) refuse(fmt::format("\"history\" is {}", an(*history)), "an array of pairs of strings");
  for (const Value& pair : history->sequence().items) {
    if (!is_pair(pair)) refuse("an entry of \"history\" that is no pair of strings", "what was said and what was answered");
    messages.push_back(message("user", pair.sequence().items[0]));
    messages.push_back(message("assistant", pair.sequence().items[1]));
  }
}

Value::Items messages_of_instruction(const Value& row) {
  Value::Items messages;
  add_system(row, messages);
  add_history(row, messages);
  std::string asked = text_at(row, "instruction");
  const std::string input = text_at(row, "input");
  if (!asked.empty() && !input.empty()) asked += '\n';
  messages.push_back(message("user", Value(asked + input)));
  messages.push_back(message("assistant", Value(text_at(row, "output"))));
  return messages;
}

std::variant<Conversation, PromptAndCompletion> read_completion(const Value& row) {
  const Value &prompt = *entry_of(row, "prompt"), &completion = *entry_of(row, "completion");
  if (prompt.is_text() && completion.is_text())
    return PromptAndCompletion{prompt.text() + completion.text(), prompt.text().size()};
  if (!prompt.is(Kind::list) || !completion.is(Kind::list))
    refuse(fmt::format("\"prompt\" is {} and \"completion\" is {}", an(prompt), an(completion)),
           "two strings, or two arrays of messages");
  Value::Items messages = prompt.sequence().items;
  const std::size_t trained_from = messages.size();
  messages.insert(messages.end(), completion.sequence().items.begin(), completion.sequence().items.end());
  return Conversation{Value::list(std::move(messages)), tools_of(row), trained_from};
}

// What a speaker of ShareGPT's is called in messages; other roles are as they are.
std::string_view role_of(std::string_view speaker) {
  const auto* const found = std::ranges::find(kSpeakers, speaker, [](const auto& entry) { return entry.first; });
  return found == kSpeakers.end() ? speaker : found->second;
}

// A dictionary with our keys in place of the file's names; names that nobody reads are left out.
Value with_our_keys(const Value& of, const DataColumns& columns, DataColumns::Level level) {
  Value::Entries entries;
  for (const auto& [name, value] : entries_of(of)) {
    if (!name.is_text()) continue;
    const std::string_view key = columns.key_of(name.text(), level);
    if (key.empty()) continue;
    const bool is_speaker = key == "role" && columns.renames("role") && value.is_text();
    entries.emplace_back(Value(key), is_speaker ? Value(role_of(value.text())) : value);
  }
  return Value::dictionary(std::move(entries));
}

Value renamed(const Value& row, const DataColumns& columns) {
  constexpr std::array<std::string_view, 4> kOfMessages = {"messages", "conversations", "prompt", "completion"};
  Value::Entries entries = entries_of(with_our_keys(row, columns, DataColumns::Level::row));
  for (auto& [key, value] : entries) {
    if (!value.is(Kind::list) || std::ranges::find(kOfMessages, key.text()) == kOfMessages.end()) continue;
    Value::Items messages;
    for (const Value& message : value.sequence().items)
      messages.push_back(message.is(Kind::dictionary) ? with_our_keys(message, columns, DataColumns::Level::message) : message);
    value = Value::list(std::move(messages));
  }
  return Value::dictionary(std::move(entries));
}

}  // namespace

std::variant<Conversation, PromptAndCompletion> read_turns(std::string_view text, std::string_view key,
                                                           const DataColumns& columns) {
  Value row;
  try {
    row = read_template_json(text);
  } catch (const TemplateProblem& problem) {
    throw InputError(fmt::format("found {}", problem.found));
  }
  if (!columns.empty()) row = renamed(row, columns);
  if (key == "prompt") return read_completion(row);
  if (key == "messages") return Conversation{*entry_of(row, "messages"), tools_of(row)};
  if (key == "conversations") return Conversation{Value::list(messages_of_conversations(row)), tools_of(row)};
  return Conversation{Value::list(messages_of_instruction(row)), tools_of(row)};
}

}  // namespace spillway
