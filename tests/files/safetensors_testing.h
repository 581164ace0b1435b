// A directory for safetensors files, whole and spoilt, and the text with which opening one is refused.
// Not here: the content of a correct file (safetensors_test.cpp, safetensors_writer_test.cpp).
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "files/safetensors.h"
#include "memory/base/error.h"

namespace spillway {

namespace fs = std::filesystem;

inline std::string with_length(std::uint64_t length, const std::string& rest) {
  std::string text(8, '\0');
  std::memcpy(text.data(), &length, 8);
  return text + rest;
}
inline std::string file_of(const std::string& header, const std::string& data) {
  return with_length(header.size(), header + data);
}

inline std::string read_all(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

class Safetensors : public testing::Test {
 protected:
  void SetUp() override { fs::create_directories(directory_); }
  void TearDown() override { fs::remove_all(directory_); }

  fs::path write(const std::string& name, const std::string& content) const {
    fs::remove(directory_ / name);  // some file systems sync a file that is emptied and rewritten at once, which is slow
    std::ofstream(directory_ / name, std::ios::binary) << content;
    return directory_ / name;
  }

  // The message and help of the error in which opening `path` ends; "" if it opens.
  static std::string refusal(const fs::path& path) {
    try {
      const SafetensorsReader reader(path);
    } catch (const InputError& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr(path.parent_path().string()));
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
      return std::string(error.what()) + " | " + error.help();
    }
    return "";
  }

  fs::path directory_ = fs::path(testing::TempDir()) / ("safetensors_" + std::to_string(::getpid()));
};

}  // namespace spillway
