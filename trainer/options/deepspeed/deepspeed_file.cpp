#include "trainer/options/deepspeed/deepspeed_file.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "files/json_place.h"
#include "files/posix_file.h"
#include "files/strict_json.h"
#include "memory/base/error.h"
#include "trainer/options/flag_table.h"
#include "trainer/words/quantity.h"

namespace spillway {
namespace {

using nlohmann::json;

constexpr Bytes kLargestFile = 16 << 20;
constexpr std::size_t kMostShown = 20;

// Flags that say the same in another way.
constexpr std::pair<std::string_view, std::string_view> kAlternatives[] = {{"lr-warmup-iters", "lr-warmup-fraction"}};

// A directory that a flag has too, with a size or without one.
bool has_directories(const RunOptions& options, const std::vector<std::string>& paths) {
  return std::ranges::all_of(paths, [&](const std::string& path) {
    return std::ranges::find(options.memory.nvme, path, &NvmeDirectory::path) != options.memory.nvme.end();
  });
}

// Refuses what the flag cannot be. Returns false if a flag that was given wins, or is refused for saying something else.
bool is_to_be_taken(const DeepSpeedSays& said, const BesideDeepSpeed& beside, std::vector<std::string>& problems) {
  const Flag& flag = *find_flag(said.flag);
  RunOptions asked;
  try {
    flag.set(asked, FlagValue(said.key, said.texts));
  } catch (const InputError& error) {
    problems.emplace_back(error.what());
    return false;
  }
  for (const auto& [first, second] : kAlternatives) {
    if (said.flag != first || !beside.is_given(second)) continue;
    if (!said.by_default) problems.push_back(fmt::format("{}: found together with --{}, allowed: one of them", said.key, second));
    return false;
  }
  if (!beside.is_given(said.flag)) return true;
  const json wanted = flag.get(asked), given = flag.get(beside.options);
  const bool agrees = wanted == given || (said.flag == "nvme" && has_directories(beside.options, said.texts));
  if (!said.by_default && !agrees) {
    problems.push_back(fmt::format("{}: makes --{} {}, but {} was given, allowed: one of them, or \"auto\"", said.key, said.flag,
                                   plain_text(wanted), plain_text(given)));
  }
  return false;
}

[[noreturn]] void refuse(const std::string& origin, const std::vector<std::string>& problems) {
  const std::size_t shown = std::min(problems.size(), kMostShown);
  const std::string more = problems.size() > shown ? fmt::format("; and {} more", problems.size() - shown) : "";
  const std::string count = problems.size() > 1 ? fmt::format("found {} errors: ", problems.size()) : "";
  throw InputError(fmt::format("{}: {}{}{}", origin, count, fmt::join(std::span(problems).first(shown), "; "), more),
                   "Flags and --config FILE say what DeepSpeed's JSON leaves to \"auto\"; spillway train --help lists them.");
}

}  // namespace

DeepSpeedFile parse_deepspeed_text(std::string_view text, const std::string& origin, const BesideDeepSpeed& beside) {
  std::vector<std::string> doubled;
  const json root = parse_json_noting_doubles(text, origin, doubled);
  if (!root.is_object()) throw InputError(fmt::format("{}: found {}, allowed: one JSON object", origin, shown(root)));
  DeepSpeedWalk walk = walk_deepspeed(root);
  for (const std::string& key : doubled) walk.problems.push_back(fmt::format("{}: found twice, allowed: once", key));

  DeepSpeedFile file;
  for (DeepSpeedSays& said : meaning_of_deepspeed(walk, beside)) {
    if (is_to_be_taken(said, beside, walk.problems)) file.says.push_back(std::move(said));
  }
  if (!walk.problems.empty()) refuse(origin, walk.problems);
  for (const auto& [reason, keys] : walk.notes)
    file.notes.push_back(fmt::format("{}: {}: {}", origin, fmt::join(keys, ", "), reason));
  return file;
}

DeepSpeedFile read_deepspeed_file(const std::string& path, const BesideDeepSpeed& beside) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error))
    throw InputError(fmt::format("--deepspeed-config: found no file {}, allowed: a JSON file of DeepSpeed", path));
  return parse_deepspeed_text(read_text_file(path, kLargestFile), path, beside);
}

}  // namespace spillway
