#include "trainer/options/deepspeed/deepspeed_says.h"

#include <algorithm>
#include <cctype>
#include <utility>

namespace spillway {
namespace {

using nlohmann::json;

std::string text_of(const json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

}  // namespace

void DeepSpeedSayings::put(DeepSpeedSays says) {
  const auto before = std::ranges::find(says_, says.flag, &DeepSpeedSays::flag);
  if (before == says_.end()) {
    says_.push_back(std::move(says));
  } else {
    *before = std::move(says);
  }
}

void DeepSpeedSayings::add(const std::string& flag, const json& value, const std::string& key) {
  put({flag, {text_of(value)}, key, false});
}

void DeepSpeedSayings::add_texts(const std::string& flag, const std::vector<std::string>& texts, const std::string& key) {
  put({flag, texts, key, false});
}

void DeepSpeedSayings::assume(const std::string& flag, const json& value, const std::string& key) {
  put({flag, {text_of(value)}, key, true});
}

void DeepSpeedSayings::real(const std::string& flag, const std::string& key, const json& otherwise) {
  if (const json* value = walk_.find(key)) {
    add(flag, *value, key);
  } else if (!walk_.is_automatic(key)) {
    assume(flag, otherwise, key);
  }
}

bool DeepSpeedSayings::boolean(std::string_view key) const {
  const json* const value = walk_.find(key);
  return value != nullptr && value->is_boolean() && value->get<bool>();
}

std::string DeepSpeedSayings::lowered(std::string_view key) const {
  const json* const value = walk_.find(key);
  std::string text = value == nullptr ? "" : value->get<std::string>();
  std::ranges::transform(text, text.begin(), [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  return text;
}

const DeepSpeedSays* DeepSpeedSayings::said(std::string_view flag) const {
  const auto found = std::ranges::find(says_, flag, &DeepSpeedSays::flag);
  return found == says_.end() ? nullptr : &*found;
}

}  // namespace spillway
