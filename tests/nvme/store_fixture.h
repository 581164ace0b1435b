// Shared by the store's tests: a directory of their own, aligned memory, and content that names its place.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "memory/base/error.h"
#include "nvme/store.h"

namespace spillway {

// Each 8 bytes of the store are a hash of their logical offset and a generation: a misplaced block shows where it belongs.
inline std::uint64_t word_at(Bytes offset, std::uint64_t generation = 0) {
  std::uint64_t x = static_cast<std::uint64_t>(offset) * 0x9E3779B97F4A7C15U + generation * 0xD1B54A32D192ED03U;
  x ^= x >> 29;
  x *= 0xBF58476D1CE4E5B9U;
  return x ^ (x >> 32);
}

class Buffer {
 public:
  explicit Buffer(Bytes bytes)
      : bytes_(bytes),
        memory_(static_cast<std::byte*>(std::aligned_alloc(kExtentAlignment, static_cast<std::size_t>(bytes))), std::free) {
    std::fill_n(memory_.get(), bytes, std::byte{0xEE});
  }
  std::byte* data() const { return memory_.get(); }
  Bytes bytes() const { return bytes_; }
  std::span<std::byte> span() const { return {memory_.get(), static_cast<std::size_t>(bytes_)}; }

 private:
  Bytes bytes_;
  std::unique_ptr<std::byte, void (*)(void*)> memory_;
};

inline void fill(const IoSegment& segment, std::uint64_t generation = 0) {
  auto* words = reinterpret_cast<std::uint64_t*>(segment.memory);
  for (Bytes at = 0; at < segment.bytes; at += 8) words[at / 8] = word_at(segment.offset + at, generation);
}

// The offset in the segment of the first wrong word, or -1.
inline Bytes first_wrong(const IoSegment& segment, std::uint64_t generation = 0) {
  const auto* words = reinterpret_cast<const std::uint64_t*>(segment.memory);
  for (Bytes at = 0; at < segment.bytes; at += 8) {
    if (words[at / 8] != word_at(segment.offset + at, generation)) return at;
  }
  return -1;
}

// The directory for a simulated disk's files: in memory if possible, because a real disk would sync them thousands of times.
inline std::filesystem::path simulated_place() {
  return access("/dev/shm", W_OK) == 0 ? std::filesystem::path("/dev/shm") : std::filesystem::temp_directory_path();
}

class StoreFixture : public ::testing::Test {
 protected:
  explicit StoreFixture(const std::filesystem::path& place = std::filesystem::temp_directory_path()) {
    std::string name = place / "spillway_store_XXXXXX";
    if (!mkdtemp(name.data())) throw std::runtime_error("mkdtemp failed");
    root_ = name;
  }
  ~StoreFixture() override { std::filesystem::remove_all(root_); }

  std::string directory(const std::string& name) {
    std::filesystem::create_directories(root_ / name);
    return root_ / name;
  }
  static bool empty(const std::string& path) { return std::filesystem::is_empty(path); }

  StoreOptions options(int directories, Bytes bytes) {
    StoreOptions result;
    for (int i = 0; i < directories; ++i) result.directories.push_back({directory(fmt::format("d{}", i)), 0});
    result.bytes = bytes;
    result.log = [this](std::string_view message) { messages_.emplace_back(message); };
    return result;
  }

  std::filesystem::path root_;
  std::vector<std::string> messages_;
};

// The message of the exception of type E that `act` throws.
template <typename E>
std::string message_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const E& error) {
    return error.what();
  } catch (const std::exception& error) {
    return fmt::format("another exception: {}", error.what());
  }
  return "no exception";
}

}  // namespace spillway
