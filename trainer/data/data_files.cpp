#include "trainer/data/data_files.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <system_error>

#include "memory/base/error.h"

namespace spillway {
namespace {

namespace fs = std::filesystem;

// "x.jsonl.gz" and "x.jsonl.zst" are "x.jsonl", too.
std::string uncompressed_name(const fs::path& path) {
  const bool is_compressed = data_name_in(path.string()).compression != Compression::none;
  return is_compressed ? (path.parent_path() / path.stem()).string() : path.string();
}

void refuse_twice(const std::vector<std::string>& files, const std::string& flag) {
  std::map<std::string, std::string> seen;
  for (const std::string& file : files) {
    const auto [before, is_new] = seen.emplace(uncompressed_name(file), file);
    if (!is_new)
      throw InputError(fmt::format("{}: found {} and {}, allowed: one of them in a directory", flag, before->second, file),
                       "Their names say that they are the same rows, which would come twice: name the files to take.");
  }
}

std::vector<std::string> files_in(const fs::path& directory, FunctionRef<bool(DataKind)> takes, const std::string& flag,
                                  std::string_view allowed) {
  std::vector<std::string> files, others;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end; entry.increment(error)) {
    std::error_code ignored;
    const fs::path& path = entry->path();
    if (path.filename().string().starts_with('.') || !entry->is_regular_file(ignored)) continue;
    const DataKind kind = data_name_in(path.string()).kind;
    const bool is_data = kind != DataKind::array && kind != DataKind::other && takes(kind);
    (is_data ? files : others).push_back(path.string());
  }
  if (error)
    throw InputError(fmt::format("{}: found directory {}, which cannot be read: {}", flag, directory.string(), error.message()));
  std::ranges::sort(files);
  std::ranges::sort(others);
  if (files.empty()) {
    for (const std::string& other : others) refuse_table(other, flag);
    const bool has_json =
        std::ranges::any_of(others, [](const std::string& other) { return data_name_in(other).kind == DataKind::array; });
    throw InputError(fmt::format("{}: found directory {} without data, allowed: {}", flag, directory.string(), allowed),
                     has_json ? "A .json file may be settings, so it is taken only if it is named itself." : "");
  }
  refuse_twice(files, flag);
  return files;
}

}  // namespace

std::vector<std::string> files_of(const std::vector<std::string>& paths, FunctionRef<bool(DataKind)> takes,
                                  const std::string& flag, std::string_view allowed) {
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    std::error_code ignored;
    if (path != kStandardInput && fs::is_directory(path, ignored)) {
      for (std::string& file : files_in(path, takes, flag, allowed)) files.push_back(std::move(file));
    } else {
      refuse_table(path, flag);
      files.push_back(path);
    }
  }
  if (std::ranges::count(files, kStandardInput) > 1)
    throw InputError(fmt::format("{}: found - twice, allowed: standard input once", flag));
  return files;
}

std::vector<std::string> paths_of_data(const std::vector<std::string>& paths, const std::string& flag) {
  return files_of(paths, [](DataKind) { return true; }, flag, kAllowedData);
}

}  // namespace spillway
