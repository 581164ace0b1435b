#include "trainer/machine/nvme_directories.h"

#include <filesystem>

namespace spillway {

std::vector<StoreDirectory> store_directories(const std::vector<NvmeDirectory>& directories) {
  std::vector<StoreDirectory> stored;
  for (const NvmeDirectory& directory : directories) stored.push_back({directory.path, directory.size.value_or(0)});
  return stored;
}

std::vector<std::string> paths_of(const std::vector<NvmeDirectory>& directories) {
  std::vector<std::string> paths;
  for (const NvmeDirectory& directory : directories)
    paths.push_back(std::filesystem::absolute(directory.path).lexically_normal().string());
  return paths;
}

}  // namespace spillway
