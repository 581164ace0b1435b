// The directories of --nvme as those who open a store want them. Not here: the store (nvme/store.h).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "nvme/store.h"
#include "trainer/options/options.h"

namespace spillway {

// In their order, each with the size that it was given, or 0 for all that is free.
std::vector<StoreDirectory> store_directories(const std::vector<NvmeDirectory>& directories);

// Opens a store of so many bytes in them, as the directories' only user; null where it is of none. `prepare`, called where there
// is one, says what else it is to be.
std::unique_ptr<Store> open_store(const std::vector<NvmeDirectory>& directories, Bytes bytes,
                                  const std::function<void(StoreOptions&)>& prepare = {});

// Absolute, in their order: a run that goes on may do so from elsewhere.
std::vector<std::string> paths_of(const std::vector<NvmeDirectory>& directories);

}  // namespace spillway
