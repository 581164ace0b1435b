#include "memory/base/wheel_library.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>

namespace spillway {
namespace {

namespace fs = std::filesystem;

// The entries of a folder by name: the file system's own order is another on each machine.
std::vector<fs::path> entries(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code unreadable;
  for (fs::directory_iterator entry(folder, unreadable), end; !unreadable && entry != end; entry.increment(unreadable))
    found.push_back(entry->path());
  std::ranges::sort(found);
  return found;
}

bool holds_packages(const fs::path& folder) {
  return folder.filename() == "site-packages" || folder.filename() == "dist-packages";
}

void add_of_site(const fs::path& site, const std::string& name, std::vector<fs::path>& found) {
  for (const fs::path& part : entries(site / "nvidia")) {
    std::error_code missing;
    const fs::path path = part / "lib" / name;
    if (fs::is_regular_file(path, missing)) found.push_back(path);
  }
}

}  // namespace

std::vector<fs::path> wheel_libraries(const std::string& name, const fs::path& program,
                                      const std::vector<fs::path>& environments) {
  std::vector<fs::path> found;
  // SITE/PACKAGE/bin/PROGRAM. Elsewhere, the folder above may be anybody's.
  const fs::path site = program.parent_path().parent_path().parent_path();
  if (holds_packages(site)) add_of_site(site, name, found);
  for (const fs::path& environment : environments) {
    for (const fs::path& python : entries(environment / "lib")) {
      if (python.filename().string().starts_with("python")) add_of_site(python / "site-packages", name, found);
    }
  }
  return found;
}

void* open_library(const std::string& name, std::string& why) {
  if (void* const library = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
  why = ::dlerror();
  std::vector<fs::path> environments;
  for (const char* variable : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    const char* const value = std::getenv(variable);
    if (value != nullptr && *value != '\0') environments.emplace_back(value);
  }
  std::error_code unknown;
  for (const fs::path& path : wheel_libraries(name, fs::read_symlink("/proc/self/exe", unknown), environments)) {
    if (void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
  }
  return nullptr;
}

}  // namespace spillway
