#include "trainer/machine/nvme_directories.h"

#include <filesystem>
#include <utility>

namespace spillway {

std::vector<StoreDirectory> store_directories(const std::vector<NvmeDirectory>& directories) {
  std::vector<StoreDirectory> stored;
  for (const NvmeDirectory& directory : directories) stored.push_back({directory.path, directory.size.value_or(0)});
  return stored;
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
