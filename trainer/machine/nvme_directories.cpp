#include "trainer/machine/nvme_directories.h"

#include <fmt/core.h>

#include <filesystem>
#include <system_error>
#include <utility>

#include "memory/base/error.h"

namespace spillway {

std::vector<StoreDirectory> store_directories(const std::vector<NvmeDirectory>& directories) {
  std::vector<StoreDirectory> stored;
  for (const NvmeDirectory& directory : directories) stored.push_back({directory.path, directory.size.value_or(0)});
  return stored;
}

std::string directory_of_rank(const std::string& directory, int rank, int ranks) {
  return ranks == 1 ? directory : (std::filesystem::path(directory) / fmt::format("rank-{}", rank)).string();
}

std::vector<NvmeDirectory> directories_of_rank(const std::vector<NvmeDirectory>& directories, int rank, int ranks) {
  std::vector<NvmeDirectory> of_rank;
  for (const NvmeDirectory& directory : directories) {
    of_rank.push_back({.path = directory_of_rank(directory.path, rank, ranks), .size = directory.size});
    if (of_rank.back().size) *of_rank.back().size /= ranks;
  }
  return of_rank;
}

void make_directories(const std::vector<std::string>& directories) {
  for (const std::string& directory : directories) {
    std::error_code error;
    std::filesystem::create_directory(directory, error);
    if (!error) continue;
    throw IoError(fmt::format("--nvme: cannot make {}: {}", directory, error.message()),
                  "Each of several ranks has a directory of its own in the one given.");
  }
}

void remove_empty_directories(const std::vector<std::string>& directories) noexcept {
  std::error_code ignored;
  for (const std::string& directory : directories) std::filesystem::remove(directory, ignored);
}

std::unique_ptr<Store> open_store(const std::vector<NvmeDirectory>& directories, Bytes bytes,
                                  const std::function<void(StoreOptions&)>& prepare) {
  if (bytes == 0) return nullptr;
  StoreOptions options{.directories = store_directories(directories), .bytes = bytes};
  if (prepare) prepare(options);
  return std::make_unique<Store>(std::move(options));
}

std::vector<std::string> paths_of(const std::vector<NvmeDirectory>& directories) {
  std::vector<std::string> paths;
  for (const NvmeDirectory& directory : directories)
    paths.push_back(std::filesystem::absolute(directory.path).lexically_normal().string());
  return paths;
}

}  // namespace spillway
