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

// The directory of one of several ranks in a directory given: DIR/rank-K; that of an only rank is DIR itself.
std::string directory_of_rank(const std::string& directory, int rank, int ranks);
// The same for all, with the rank's share of a given size.
std::vector<NvmeDirectory> directories_of_rank(const std::vector<NvmeDirectory>& directories, int rank, int ranks);
// Make those that are missing, and remove those that are empty: of one of several ranks, around the life of its store. The user's
// own directories must be there.
void make_directories(const std::vector<std::string>& directories);
void remove_empty_directories(const std::vector<std::string>& directories) noexcept;

// Opens a store of `bytes` in the directories, as their only user. Returns null if `bytes` is 0. `prepare`, called if there is a
// store, sets its other options.
std::unique_ptr<Store> open_store(const std::vector<NvmeDirectory>& directories, Bytes bytes,
                                  const std::function<void(StoreOptions&)>& prepare = {});

// Absolute paths, in the same order, because a run may go on from another directory.
std::vector<std::string> paths_of(const std::vector<NvmeDirectory>& directories);

}  // namespace spillway
