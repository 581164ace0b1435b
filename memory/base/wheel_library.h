// Opens shared libraries at run time, also those that pip installed: NVIDIA's wheels put theirs into
// site-packages/nvidia/PART/lib, where the loader does not look.
// Not here: what a library is for, or what to say without it (models/cuda/gemm.h, collectives/nccl_library.h).
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace spillway {

// Every file `name` that NVIDIA's wheels brought, in the order in which they are tried: first beside the package that `program`
// lies in, if that is in a site-packages (or Debian's dist-packages), then in each virtual environment. A folder that cannot be
// read has none.
std::vector<std::filesystem::path> wheel_libraries(const std::string& name, const std::filesystem::path& program,
                                                   const std::vector<std::filesystem::path>& environments);

// The library that the loader finds, or else the first one above of this program, $VIRTUAL_ENV and $CONDA_PREFIX that can be
// opened; nullptr: none, and `why` is what the loader said first. It stays open to the end of the process.
void* open_library(const std::string& name, std::string& why);

}  // namespace spillway
