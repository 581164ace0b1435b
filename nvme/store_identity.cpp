#include "nvme/store_identity.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "memory/base/error.h"
#include "nvme/byte_codec.h"
#include "nvme/content_hash.h"
#include "nvme/directory_lock.h"
#include "nvme/store_file.h"

namespace spillway {
namespace {

constexpr std::uint64_t kMagic = 0x3144495941574C53;  // "SLWAYID1"
constexpr std::uint32_t kVersion = 4;
constexpr std::uint32_t kYields = 1;  // a bit of the flags
constexpr int kMostDirectories = 4096, kMostRanks = 1 << 20;
constexpr std::size_t kLongestPath = 3500;
constexpr Bytes kLargest = Bytes{1} << 60;

bool sensible(const StoreIdentity& identity) {
  return identity.store_id != 0 && identity.ranks >= 1 && identity.ranks <= kMostRanks && identity.rank >= 0 &&
         identity.rank < identity.ranks && identity.directories >= 1 && identity.directories <= kMostDirectories &&
         identity.directory >= 0 && identity.directory < identity.directories && identity.bytes > 0 &&
         identity.bytes <= kLargest && identity.stripe_bytes > 0 && identity.stripe_bytes <= kLargest &&
         identity.records_begin >= 0 && identity.records_begin <= identity.bytes && identity.place_bytes > 0 &&
         identity.place_bytes <= (identity.bytes - identity.records_begin) / 2 && identity.stripe_bytes % kExtentAlignment == 0 &&
         identity.bytes % kExtentAlignment == 0 && identity.records_begin % kExtentAlignment == 0 &&
         identity.place_bytes % kExtentAlignment == 0;
}

// Reads one of the two pages.
std::optional<StoreIdentity> read_page(int file, Bytes offset, const std::string& path) {
  std::array<std::byte, kExtentAlignment> page{};
  const ssize_t got = pread(file, page.data(), page.size(), offset);
  if (got != std::ssize(page)) {
    throw IoError(fmt::format("{}: reading {} bytes at offset {} gave {}: {}", path, page.size(), offset, got,
                              got < 0 ? std::strerror(errno) : "the file ends there"));
  }
  return decode_identity(page, path);
}

}  // namespace

bool StoreIdentity::is_same_file(const StoreIdentity& other) const {
  StoreIdentity like = other;
  like.run_directory = run_directory;
  like.yields = yields;
  return like == *this;
}

void encode_identity(const StoreIdentity& identity, std::span<std::byte> page) {
  SPILLWAY_CHECK(sensible(identity) && std::ssize(page) == kExtentAlignment, "identity of directory {} of {}", identity.directory,
                 identity.directories);
  std::fill(page.begin(), page.end(), std::byte{0});
  ByteWriter out(page);
  out.put(kMagic);
  out.put(kVersion);
  out.put(identity.yields ? kYields : std::uint32_t{0});
  out.put(identity.store_id);
  out.put(std::int32_t{identity.rank});
  out.put(std::int32_t{identity.ranks});
  out.put(std::int32_t{identity.directory});
  out.put(std::int32_t{identity.directories});
  for (const Bytes value : {identity.bytes, identity.stripe_bytes, identity.records_begin, identity.place_bytes}) out.put(value);
  out.put_text(identity.run_directory.size() <= kLongestPath ? identity.run_directory : std::string());
  const std::uint64_t hash = content_hash(page.first(page.size() - sizeof(std::uint64_t)));
  std::memcpy(page.data() + page.size() - sizeof hash, &hash, sizeof hash);
}

std::optional<StoreIdentity> decode_identity(std::span<const std::byte> page, const std::string& file) {
  ByteReader in(page);
  if (std::ssize(page) != kExtentAlignment || in.get<std::uint64_t>() != kMagic) return std::nullopt;
  std::uint64_t hash = 0;
  std::memcpy(&hash, page.data() + page.size() - sizeof hash, sizeof hash);
  if (hash != content_hash(page.first(page.size() - sizeof hash))) {
    throw IoError(fmt::format("{}: the last page, which says what store this is, is damaged", file),
                  "Go on from a checkpoint of its run; remove the file if nobody is to go on with it.");
  }
  if (const auto version = in.get<std::uint32_t>(); version != kVersion) {
    throw IoError(fmt::format("{}: a store of version {}; this program knows version {}", file, version, kVersion),
                  fmt::format("Go on with the program that wrote it; or remove {} and its run's store.json, and go on from the "
                              "run's last checkpoint.",
                              file));
  }
  StoreIdentity identity;
  const auto flags = in.get<std::uint32_t>();
  identity.yields = (flags & kYields) != 0;
  identity.store_id = in.get<std::uint64_t>();
  identity.rank = in.get<std::int32_t>();
  identity.ranks = in.get<std::int32_t>();
  identity.directory = in.get<std::int32_t>();
  identity.directories = in.get<std::int32_t>();
  for (Bytes* value : {&identity.bytes, &identity.stripe_bytes, &identity.records_begin, &identity.place_bytes})
    *value = in.get<Bytes>();
  identity.run_directory = in.get_text();
  if (!in.ok() || (flags & ~kYields) != 0 || !sensible(identity))
    throw IoError(fmt::format("{}: the last page, which says what store this is, contradicts itself", file));
  return identity;
}

std::optional<StoreIdentity> read_store_identity(const std::string& directory) {
  const std::string path = store_file_path(directory);
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) {
    if (errno == ENOENT || errno == ENOTDIR) return std::nullopt;
    throw IoError(fmt::format("cannot open {}: {}", path, std::strerror(errno)));
  }
  struct stat info{};
  if (fstat(file.get(), &info) != 0 || info.st_size < kIdentityBytes || info.st_size % kExtentAlignment != 0) return std::nullopt;
  const Bytes first = info.st_size - kIdentityBytes, second = first + kExtentAlignment;
  try {
    if (auto identity = read_page(file.get(), second, path)) return identity;
  } catch (const IoError&) {
    // The second page was cut off while it was written, or damaged since; the first says the same.
    if (auto identity = read_page(file.get(), first, path)) return identity;
    throw;
  }
  return read_page(file.get(), first, path);
}

StoreIdentity identify_store(std::span<const std::string> directories) {
  SPILLWAY_CHECK(!directories.empty(), "a store without directories");
  std::optional<StoreIdentity> first;
  for (std::size_t i = 0; i < directories.size(); ++i) {
    const auto found = read_store_identity(directories[i]);
    if (!found) {
      throw IoError(fmt::format("{}: no state of a run is there", directories[i]),
                    "Is the disk mounted? Give the directories that the run was given.");
    }
    if (!first) first = *found;
    if (found->store_id != first->store_id) {
      throw IoError(fmt::format("{} and {} hold files of two stores", directories[0], directories[i]),
                    "Give the directories of one run.");
    }
    if (found->directories != static_cast<int>(directories.size())) {
      throw IoError(
          fmt::format("{}: the store has {} directories, {} are given", directories[i], found->directories, directories.size()),
          "Give all directories of the run, in the run's order.");
    }
    if (found->directory != static_cast<int>(i)) {
      throw IoError(fmt::format("{}: holds the store's file of directory {}, not of directory {}", directories[i],
                                found->directory + 1, i + 1),
                    "Give the directories in the run's order; if files were moved, move them back.");
    }
    StoreIdentity same = *found;
    same.directory = first->directory;
    if (!same.is_same_file(*first))
      throw IoError(fmt::format("{} and {} disagree on what the store is", directories[0], directories[i]));
  }
  return *first;
}

}  // namespace spillway
