#include "tools/output_format.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <iterator>

#include "memory/base/error.h"

namespace spillway {
namespace {

struct Ending {
  std::string_view ending;
  std::string_view format;
};

// An ending may stand for several formats; each command has at most one of them.
constexpr Ending kEndings[] = {{".json", "json"}, {".json", "ids"},  {".jsonl", "ids"}, {".html", "html"},
                               {".htm", "html"},  {".txt", "table"}, {".md", "table"},  {".bin", "bin"}};

bool is_among(std::span<const std::string_view> allowed, std::string_view format) {
  return std::ranges::find(allowed, format) != allowed.end();
}

std::string endings_of(std::span<const std::string_view> allowed) {
  std::string endings;
  for (const Ending& row : kEndings) {
    if (is_among(allowed, row.format)) endings += fmt::format("{}{}", endings.empty() ? "" : ", ", row.ending);
  }
  return endings;
}

}  // namespace

std::string_view format_of_output(const std::optional<std::string>& format, const std::string& out,
                                  std::span<const std::string_view> allowed) {
  if (format) {
    const auto found = std::ranges::find(allowed, *format);
    if (found == allowed.end())
      throw InputError(fmt::format("--format: found {}, allowed: {}", *format, fmt::join(allowed, ", ")));
    return *found;
  }
  std::string ending = std::filesystem::path(out).extension().string();
  std::ranges::transform(ending, ending.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  bool is_known = false;
  for (const Ending& row : kEndings) {
    if (row.ending != ending) continue;
    if (is_among(allowed, row.format)) return *std::ranges::find(allowed, row.format);
    is_known = true;
  }
  if (!is_known) return allowed.front();
  throw InputError(
      fmt::format("--out: found {}, which ends as no format of this command does, allowed: {}", out, endings_of(allowed)),
      allowed.size() > 1 ? fmt::format("or any name, with --format {}", fmt::join(allowed, "|")) : "");
}

}  // namespace spillway
