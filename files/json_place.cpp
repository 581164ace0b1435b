#include "files/json_place.h"

#include <fmt/ranges.h>

#include <charconv>
#include <nlohmann/json.hpp>
#include <utility>

#include "files/strict_json.h"
#include "memory/base/error.h"

namespace spillway {

JsonPlace::JsonPlace(const nlohmann::json& value, std::string file, std::string_view help, FileOf whose)
    : value_(&value), file_(std::move(file)), help_(help), whose_(whose) {}

JsonPlace::JsonPlace(const nlohmann::json* value, const JsonPlace& parent, std::string path)
    : value_(value), file_(parent.file_), path_(std::move(path)), help_(parent.help_), whose_(parent.whose_) {}

void JsonPlace::refuse(std::string_view why, std::string_view help) const {
  const std::string_view said = help.empty() ? help_ : help, what = path_.empty() ? "the file" : std::string_view(path_);
  if (whose_ == FileOf::user) throw InputError(fmt::format("{}: {} {}", file_, what, why), std::string(said));
  throw IoError(fmt::format("{} is damaged: {} {}", file_, what, why), std::string(said));
}

void JsonPlace::refuse_as(std::string_view allowed) const {
  refuse(fmt::format("is {}; {} is allowed", shown(*value_), allowed));
}

void JsonPlace::refuse_as_one_of(std::span<const std::string_view> names) const {
  refuse_as(fmt::format("one of {}", fmt::join(names, ", ")));
}

const nlohmann::json& JsonPlace::json() const {
  if (value_ == nullptr) refuse("is missing");
  return *value_;
}

JsonPlace JsonPlace::at(std::string_view key) const {
  if (!json().is_object()) refuse_as("an object");
  const auto found = value_->find(key);
  return {found == value_->end() ? nullptr : &*found, *this, path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key)};
}

JsonPlace JsonPlace::at(std::size_t index) const {
  if (index >= size()) refuse(fmt::format("has {} entries, not {} or more", size(), index + 1));
  return {&(*value_)[index], *this, fmt::format("{}[{}]", path_, index)};
}

bool JsonPlace::has(std::string_view key) const { return at(key).is_there(); }

bool JsonPlace::is_null() const { return value_ != nullptr && value_->is_null(); }

std::vector<std::string> JsonPlace::keys() const {
  if (!json().is_object()) refuse_as("an object");
  std::vector<std::string> keys;
  for (const auto& [key, value] : value_->items()) keys.push_back(key);
  return keys;
}

std::size_t JsonPlace::size() const {
  if (!json().is_array()) refuse_as("an array");
  return value_->size();
}

double JsonPlace::number(double least, double most) const {
  // Written so that a NaN compares as outside.
  if (!json().is_number() || !(value_->get<double>() >= least && value_->get<double>() <= most))
    refuse_as(fmt::format("a number from {} to {}", least, most));
  return value_->get<double>();
}

std::int64_t JsonPlace::integer(std::int64_t least, std::int64_t most) const {
  const bool small = json().is_number_integer() && !(value_->is_number_unsigned() && value_->get<std::uint64_t>() > INT64_MAX);
  if (!small || value_->get<std::int64_t>() < least || value_->get<std::int64_t>() > most)
    refuse_as(fmt::format("a whole number from {} to {}", least, most));
  return value_->get<std::int64_t>();
}

bool JsonPlace::boolean() const {
  if (!json().is_boolean()) refuse_as("true or false");
  return value_->get<bool>();
}

bool JsonPlace::boolean_or(bool unset) const { return is_set() ? boolean() : unset; }

const std::string& JsonPlace::text() const {
  if (!json().is_string()) refuse_as("a string");
  return value_->get_ref<const std::string&>();
}

std::uint64_t JsonPlace::hash() const {
  constexpr std::size_t digits = 16;
  std::uint64_t value = 0;
  const std::string text = json().is_string() ? value_->get<std::string>() : std::string();
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (text.size() != digits || error != std::errc() || end != text.data() + digits) refuse_as("a text of 16 hexadecimal digits");
  return value;
}

std::string plain_text(const nlohmann::json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

}  // namespace spillway
