// Prepares the directories of --nvme for opening a store. Not here: the store (nvme/store.h).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "nvme/store.h"
#include "trainer/options/options.h"

namespace spillway {

// The directories in their order, each with its given size, or 0 for all free space.
std::vector<StoreDirectory> store_directories(const std::vector<NvmeDirectory>& directories);

// Opens a store of `bytes` in the directories, as their only user. Returns null if `bytes` is 0. `prepare`, called if there is a
// store, sets its other options.
std::unique_ptr<Store> open_store(const std::vector<NvmeDirectory>& directories, Bytes bytes,
                                  const std::function<void(StoreOptions&)>& prepare = {});

// Absolute paths, in the same order, because a run may go on from another directory.
std::vector<std::string> paths_of(const std::vector<NvmeDirectory>& directories);

}  // namespace spillway
