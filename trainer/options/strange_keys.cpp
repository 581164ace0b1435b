#include "trainer/options/strange_keys.h"

#include <fmt/core.h>

#include <filesystem>
#include <utility>

#include "files/strict_json.h"
#include "memory/base/error.h"
#include "trainer/options/flag_table.h"
#include "trainer/options/foreign_flags.h"
#include "trainer/options/unknown_flag.h"

namespace spillway {
namespace {

constexpr std::size_t kMostShown = 60;

const std::vector<std::string>& known_keys() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> known = flag_names();
    known.emplace_back("deepspeed-config");  // no key, but the answer to other trainers' own
    return known;
  }();
  return names;
}

// A flag that says what is read before the keys are: it is none.
bool is_flag_only(const FileKey& key) { return key.name == "config" || key.name == "deepspeed-config"; }

// Another trainer's value of a key that is ours; null if it may be meant as ours.
const ForeignValues* foreign_value_of(const FileKey& key) {
  std::error_code ignored;
  const ForeignValues* const found = find_foreign_value(key.name, key.value);
  return found != nullptr && !std::filesystem::exists(key.value, ignored) ? found : nullptr;
}

UnknownFlag unknown(const FileKey& key) {
  return {.name = key.name,
          .said = fmt::format("unknown key {}", shown_name(key.name)),
          .known = known_keys(),
          .help = "keys are the names of the flags, without dashes in front: spillway train --help lists them"};
}

InputError refusal_of_one(const FileKey& key, const std::string& origin) {
  const std::string where = fmt::format("{}: {}", origin, key.place);
  if (const ForeignValues* const theirs = foreign_value_of(key)) {
    return InputError(fmt::format("{}{}: found {}; here it is {}", where, key.name, shown_name(key.value), theirs->ours),
                      std::string(theirs->how));
  }
  if (is_flag_only(key))
    return InputError(fmt::format("{}found unknown key {}", where, shown_name(key.name)),
                      "It is a flag only: give it beside --config.");
  return refusal_of(unknown(key), where);
}

// "line 3: "base_model" (--model)"
std::string answered(const FileKey& key) {
  const ForeignValues* const theirs = foreign_value_of(key);
  const std::string answer = theirs != nullptr   ? std::string(theirs->ours)
                             : is_flag_only(key) ? "a flag only"
                                                 : short_answer_to(unknown(key));
  return fmt::format("{}{} ({})", key.place, shown_name(key.name), answer);
}

}  // namespace

const Flag* StrangeKeys::flag_of(const FileKey& key) {
  const Flag* const flag = find_flag(key.name);
  if (flag != nullptr && foreign_value_of(key) == nullptr) return flag;
  strange_.push_back(key);
  return nullptr;
}

void StrangeKeys::refuse() const {
  if (strange_.empty()) return;
  if (strange_.size() == 1) throw refusal_of_one(strange_.front(), origin_);
  std::string listed;
  for (const FileKey& key : strange_) {
    if (&key == strange_.data() + kMostShown) {
      listed += fmt::format("; and {} more", strange_.size() - kMostShown);
      break;
    }
    listed += (listed.empty() ? "" : "; ") + answered(key);
  }
  throw InputError(fmt::format("{}: found {} keys that are not read here: {}", origin_, strange_.size(), listed),
                   "In brackets: what they are here. Keys are the names of the flags, without dashes in front: spillway train "
                   "--help lists them.");
}

}  // namespace spillway
