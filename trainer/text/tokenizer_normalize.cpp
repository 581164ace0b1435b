#include "trainer/text/tokenizer_normalize.h"

#include <fmt/core.h>

#include "files/json_text.h"
#include "files/strict_json.h"
#include "trainer/text/tokenizer_unicode.h"

namespace spillway {

std::string_view with_spaces(std::string_view text, std::string& buffer, TextMap* map) {
  if (map != nullptr) map->clear();
  std::size_t mark = text.find(kSpaceMark);
  if (mark == text.npos) return text;
  buffer.clear();
  std::size_t done = 0;
  for (; mark != text.npos; mark = text.find(kSpaceMark, done)) {
    buffer.append(text.substr(done, mark - done)).push_back(' ');
    done = mark + kSpaceMark.size();
    if (map != nullptr) map->add({buffer.size() - 1, buffer.size(), mark, done});
  }
  return buffer.append(text.substr(done));
}

Normalization::Normalization(const JsonPlace& normalizer) {
  if (!normalizer.is_set()) return;
  if (normalizer.at("type").text() != "Sequence") {
    add(normalizer);
  } else {
    const JsonPlace parts = normalizer.at("normalizers");
    for (std::size_t i = 0; i < parts.size(); ++i) add(parts.at(i));
  }
  if (begins_with_mark_ && !marks_spaces_) normalizer.refuse("has a Prepend without a Replace of spaces");
  if (to_nfc_ && marks_spaces_) normalizer.refuse("has both NFC and a Replace of spaces; one of them is allowed");
}

void Normalization::add(const JsonPlace& part) {
  const JsonPlace type = part.at("type");
  if (type.text() == "NFC") {
    to_nfc_ = true;
  } else if (type.text() == "Prepend") {
    const JsonPlace prepend = part.at("prepend");
    if (prepend.text() != kSpaceMark) prepend.refuse(fmt::format("is {}; \"\u2581\" is allowed", shown(prepend.json())));
    if (marks_spaces_ || begins_with_mark_) type.refuse("is Prepend; it comes first, and once");
    begins_with_mark_ = true;
  } else if (type.text() == "Replace") {
    const JsonPlace pattern = part.at("pattern"), content = part.at("content");
    if (!pattern.has("String") || pattern.at("String").text() != " ")
      pattern.refuse(fmt::format("is {}; {{\"String\": \" \"}} is allowed", shown(pattern.json())));
    if (content.text() != kSpaceMark) content.refuse(fmt::format("is {}; \"\u2581\" is allowed", shown(content.json())));
    marks_spaces_ = true;
  } else {
    type.refuse(fmt::format("is {}; NFC, Prepend and Replace, a Sequence of them and null are allowed", shown(type.json())));
  }
}

std::string_view Normalization::apply(std::string_view text, bool goes_on, std::string& buffer, TextMap* map) const {
  if (map != nullptr) map->clear();
  if (to_nfc_) return to_nfc(text, buffer, map);
  if (!marks_spaces_) return text;
  const std::string_view spaced = with_spaces(text, buffer, map);
  if (!begins_with_mark_ || goes_on || text.empty()) return spaced;
  if (spaced.data() == text.data()) buffer.assign(text);
  buffer.insert(buffer.begin(), ' ');
  if (map != nullptr) map->insert_in_front(1);
  return buffer;
}

}  // namespace spillway
