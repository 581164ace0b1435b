#include "trainer/host/json_place.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "memory/error.h"
#include "models/strict_json.h"

namespace spillway {

JsonPlace::JsonPlace(const nlohmann::json& value, std::string file, std::string_view help)
    : value_(&value), file_(std::move(file)), help_(help) {}

JsonPlace::JsonPlace(const nlohmann::json& value, const JsonPlace& parent, std::string path)
    : value_(&value), file_(parent.file_), path_(std::move(path)), help_(parent.help_) {}

void JsonPlace::refuse(std::string_view why) const {
  throw InputError(fmt::format("{}: {} {}", file_, path_.empty() ? "the file" : path_, why), std::string(help_));
}

JsonPlace JsonPlace::at(std::string_view key) const {
  if (!value_->is_object()) refuse(fmt::format("is {}, not an object", shown(*value_)));
  const std::string path = path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key);
  const auto found = value_->find(key);
  if (found == value_->end()) JsonPlace(*value_, *this, path).refuse("is missing");
  return {*found, *this, path};
}

JsonPlace JsonPlace::at(std::size_t index) const {
  if (index >= size()) refuse(fmt::format("has {} entries, not {} or more", size(), index + 1));
  return {(*value_)[index], *this, fmt::format("{}[{}]", path_, index)};
}

bool JsonPlace::has(std::string_view key) const {
  if (!value_->is_object()) refuse(fmt::format("is {}, not an object", shown(*value_)));
  return value_->contains(key);
}

std::size_t JsonPlace::size() const {
  if (!value_->is_array()) refuse(fmt::format("is {}, not an array", shown(*value_)));
  return value_->size();
}

double JsonPlace::number(double least, double most) const {
  // Written so that what is not a number at all compares as outside.
  if (!value_->is_number() || !(value_->get<double>() >= least && value_->get<double>() <= most)) {
    refuse(fmt::format("is {}, not a number from {} to {}", shown(*value_), least, most));
  }
  return value_->get<double>();
}

std::int64_t JsonPlace::integer(std::int64_t least, std::int64_t most) const {
  const bool small = value_->is_number_integer() && !(value_->is_number_unsigned() && value_->get<std::uint64_t>() > INT64_MAX);
  if (!small || value_->get<std::int64_t>() < least || value_->get<std::int64_t>() > most) {
    refuse(fmt::format("is {}, not a whole number from {} to {}", shown(*value_), least, most));
  }
  return value_->get<std::int64_t>();
}

const std::string& JsonPlace::text() const {
  if (!value_->is_string()) refuse(fmt::format("is {}, not a text", shown(*value_)));
  return value_->get_ref<const std::string&>();
}

bool JsonPlace::boolean() const {
  if (!value_->is_boolean()) refuse(fmt::format("is {}, not true or false", shown(*value_)));
  return value_->get<bool>();
}

bool JsonPlace::is_text(std::string_view text) const {
  return value_->is_string() && value_->get_ref<const std::string&>() == text;
}

std::string JsonPlace::as_said() const { return value_->dump(); }

std::string plain_text(const nlohmann::json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

}  // namespace spillway
