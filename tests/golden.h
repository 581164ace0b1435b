// The golden cases (tests/data/golden/README.md): their folders are the one list of what the tests train of each family.
// Not here: what is expected of a case (models/golden_case.h), the same list for the command's tests (command/harness.py).
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "files/posix_file.h"
#include "files/safetensors.h"

namespace spillway {

inline std::string golden_directory(const std::string& name) { return std::string(SPILLWAY_TEST_DATA) + "/golden/" + name; }

// In the order of their names; tests/CMakeLists.txt has programs linked anew, and so asked for their tests, where they change.
inline std::vector<std::string> golden_names() {
  std::vector<std::string> names;
  std::error_code not_there;
  for (const auto& entry : std::filesystem::directory_iterator(golden_directory(""), not_there)) {
    if (std::filesystem::exists(entry.path() / "golden.json")) names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// Tokens or targets; no model has tensors of whole numbers. Empty: there are none of this name.
inline std::vector<std::int32_t> golden_tokens(const SafetensorsReader& file, std::string_view name) {
  const StoredTensor* stored = file.find(name);
  if (stored == nullptr) return {};
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(stored->elements));
  PosixFile::open_to_read(file.files().at(static_cast<std::size_t>(stored->file)))
      .read(stored->offset, std::as_writable_bytes(std::span(tokens)));
  return tokens;
}

}  // namespace spillway
