#include "trainer/options/hub_cache.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <system_error>

#include "files/posix_file.h"
#include "memory/base/error.h"
#include "memory/base/types.h"

namespace spillway {
namespace {

namespace fs = std::filesystem;

bool is_part(std::string_view part) {
  constexpr std::size_t kLongest = 96;
  const auto is_allowed = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '.';
  };
  return !part.empty() && part.size() <= kLongest && part.front() != '.' && part.front() != '-' && part.find("..") == part.npos &&
         part.find("--") == part.npos && std::ranges::all_of(part, is_allowed);
}

// A revision may be a path of a branch, as refs/pr/1, but leads nowhere else.
bool is_revision(std::string_view revision) {
  constexpr std::size_t kLongest = 256;
  const auto is_allowed = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '.' || c == '/';
  };
  return !revision.empty() && revision.size() <= kLongest && revision.front() != '/' && revision.find("..") == revision.npos &&
         std::ranges::all_of(revision, is_allowed);
}

bool is_hash(std::string_view text) {
  constexpr std::size_t kHash = 40;
  return text.size() == kHash &&
         std::ranges::all_of(text, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

// The value of an environment variable; empty if it is not set.
fs::path variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? fs::path() : fs::path(value);
}

}  // namespace

std::optional<HubName> hub_name_in(std::string_view text) {
  const std::size_t at = text.find('@'), slash = text.find('/');
  const std::string_view name = text.substr(0, at);
  if (slash == text.npos || slash > name.size()) return std::nullopt;
  if (!is_part(name.substr(0, slash)) || !is_part(name.substr(slash + 1))) return std::nullopt;
  if (at == text.npos) return HubName{std::string(name), {}};
  const std::string_view revision = text.substr(at + 1);
  if (!is_revision(revision)) return std::nullopt;
  return HubName{std::string(name), std::string(revision)};
}

fs::path hub_cache() {
  for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"}) {
    if (fs::path cache = variable(name); !cache.empty()) return cache;
  }
  if (const fs::path home = variable("HF_HOME"); !home.empty()) return home / "hub";
  if (const fs::path cache = variable("XDG_CACHE_HOME"); !cache.empty()) return cache / "huggingface" / "hub";
  const fs::path home = variable("HOME");
  return home.empty() ? home : home / ".cache" / "huggingface" / "hub";
}

std::optional<HubSnapshot> find_in_hub_cache(const HubName& name, const fs::path& cache) {
  if (cache.empty()) return std::nullopt;
  std::string folder = "models--" + name.name;
  folder.replace(folder.find('/'), 1, "--");
  const fs::path model = cache / folder;
  const std::string revision = name.revision.empty() ? "main" : name.revision;
  std::error_code ignored;
  std::string hash = revision;
  if (!is_hash(revision)) {
    const fs::path reference = model / "refs" / revision;
    if (!fs::is_regular_file(reference, ignored)) return std::nullopt;
    hash = read_text_file(reference, kKiB);
    while (!hash.empty() && std::isspace(static_cast<unsigned char>(hash.back())) != 0) hash.pop_back();
    if (!is_hash(hash))
      throw InputError(fmt::format("{}: has no hash of a commit, 40 hexadecimal digits", reference.string()),
                       fmt::format("Fetch the model again: hf download {}", name.name));
  }
  const fs::path snapshot = model / "snapshots" / hash;
  if (!fs::is_directory(snapshot, ignored)) return std::nullopt;
  return HubSnapshot{name.name, hash, snapshot};
}

std::string how_to_fetch(const HubName& name) {
  return fmt::format("hf download {}{}", name.name, name.revision.empty() ? "" : " --revision " + name.revision);
}

}  // namespace spillway
