#include "trainer/data/data_files.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "memory/base/error.h"

namespace spillway {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> files_in(const fs::path& directory, std::span<const std::string_view> extensions,
                                  const std::string& flag, std::string_view allowed) {
  std::vector<std::string> files;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end; entry.increment(error)) {
    std::error_code ignored;
    const fs::path& path = entry->path();
    if (std::ranges::find(extensions, path.extension().string()) != extensions.end() &&
        !path.filename().string().starts_with('.') && entry->is_regular_file(ignored)) {
      files.push_back(path.string());
    }
  }
  if (error)
    throw InputError(fmt::format("{}: found directory {}, which cannot be read: {}", flag, directory.string(), error.message()));
  if (files.empty())
    throw InputError(fmt::format("{}: found directory {} without data, allowed: {}", flag, directory.string(), allowed));
  std::ranges::sort(files);
  return files;
}

}  // namespace

std::vector<std::string> files_of(std::span<const std::string> paths, std::span<const std::string_view> extensions,
                                  const std::string& flag, std::string_view allowed) {
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    std::error_code ignored;
    if (fs::is_directory(path, ignored)) {
      for (std::string& file : files_in(path, extensions, flag, allowed)) files.push_back(std::move(file));
    } else {
      files.push_back(path);
    }
  }
  return files;
}

}  // namespace spillway
