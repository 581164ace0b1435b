#include "nvme/store.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <numeric>
#include <set>
#include <system_error>

#include "memory/base/error.h"
#include "nvme/store_channel_impl.h"
#include "nvme/store_file.h"
#include "nvme/striping.h"

namespace spillway {
namespace {

void check_distinct(std::span<const StoreDirectory> directories) {
  std::set<std::pair<dev_t, ino_t>> seen;
  for (const StoreDirectory& directory : directories) {
    struct stat info{};
    if (stat(directory.path.c_str(), &info) == 0 && !seen.emplace(info.st_dev, info.st_ino).second) {
      throw InputError(fmt::format("--nvme {}: the same directory is given twice", directory.path));
    }
  }
}

// A cap for which the disk has no room is kept: the error about the file that does not fit is the better message.
std::vector<Bytes> fresh_caps(std::span<const StoreDirectory> directories) {
  std::vector<Bytes> caps = available_bytes(directories, Reserve::taken);
  for (std::size_t i = 0; i < caps.size(); ++i) {
    if (directories[i].cap_bytes > 0) caps[i] = directories[i].cap_bytes;
  }
  return caps;
}

std::string list_of(std::span<const StoreDirectory> directories, std::span<const Bytes> caps) {
  std::string list;
  for (std::size_t i = 0; i < caps.size(); ++i) list += fmt::format("{}{}: {}", i == 0 ? "" : ", ", directories[i].path, caps[i]);
  return list;
}

}  // namespace

struct Store::Impl {
  explicit Impl(StoreOptions given) : options(std::move(given)) {
    SPILLWAY_CHECK(!options.directories.empty(), "a store without directories");
    SPILLWAY_CHECK(
        options.block_bytes >= kExtentAlignment && options.block_bytes % kExtentAlignment == 0 && options.block_bytes <= kGiB,
        "blocks of {} bytes", options.block_bytes);
    for (const StoreDirectory& directory : options.directories) check_store_directory(directory.path);
    check_distinct(options.directories);
    files.reserve(options.directories.size());
    for (const StoreDirectory& directory : options.directories)
      files.emplace_back(directory, options.content, options.orphans, options.log);
    options.content == StoreContent::existing ? open_existing() : create();
    for (StoreFile& file : files) paths.push_back(file.path());
    for (StoreFile& file : files) descriptors.push_back(file.descriptor());
    if (options.direct == DirectIo::automatic) make_direct();
    context = {.map = &*map, .paths = paths, .traffic = &traffic, .block_bytes = options.block_bytes, .timeout = options.timeout};
    queue = options.queue;
  }

  void create() {
    const std::vector<Bytes> caps = fresh_caps(options.directories);
    const Bytes capacity = StripeMap::capacity(caps, options.stripe_bytes);
    if (options.bytes > capacity) {
      throw BudgetError(fmt::format("the store needs {} bytes, its directories have {} ({})", options.bytes, capacity,
                                    list_of(options.directories, caps)),
                        "Raise the caps of --nvme DIR=SIZE, free space, or add another directory.");
    }
    map.emplace(caps, options.stripe_bytes, options.bytes);
    for (std::size_t f = 0; f < files.size(); ++f) {
      files[f].create(map->file_bytes(static_cast<int>(f)) + identity_bytes(), options.log);
      if (options.identity) files[f].write_identity(identity_of(f));
    }
  }

  Bytes identity_bytes() const { return options.identity ? kIdentityBytes : 0; }
  StoreIdentity identity_of(std::size_t file) const {
    StoreIdentity identity = *options.identity;
    identity.directory = static_cast<int>(file);
    identity.directories = static_cast<int>(files.size());
    identity.bytes = options.bytes;
    identity.stripe_bytes = options.stripe_bytes;
    return identity;
  }

  void open_existing() {
    std::vector<Bytes> sizes;
    for (StoreFile& file : files) {
      file.open_existing();
      if (options.identity) file.take_identity(identity_of(sizes.size()));
      sizes.push_back(file.size() - identity_bytes());
    }
    const bool fits = StripeMap::capacity(sizes, options.stripe_bytes) >= options.bytes;
    if (fits) map.emplace(sizes, options.stripe_bytes, options.bytes);
    for (std::size_t f = 0; f < files.size(); ++f) {
      if (fits && sizes[f] == map->file_bytes(static_cast<int>(f))) continue;
      throw IoError(fmt::format("the store's files do not hold {} bytes in stripes of {}: {}", options.bytes,
                                options.stripe_bytes, list_of(options.directories, sizes)),
                    "Give the same directories, in the same order, as the run that kept them.");
    }
  }

  void make_direct() {
    for (StoreFile& file : files) {
      if (!file.make_direct() && options.log) {
        options.log(fmt::format("{}: this file system refuses direct I/O: the page cache takes part, outside the memory budget",
                                file.path()));
      }
    }
  }

  StoreOptions options;
  std::vector<StoreFile> files;
  std::optional<StripeMap> map;
  std::vector<std::string> paths;  // [files]
  std::vector<int> descriptors;    // [files]
  TrafficCounters traffic;
  ChannelContext context;
  IoQueueKind queue = IoQueueKind::automatic;  // the kind that worked for the first channel, so that a refusal is told once
};

Bytes store_capacity(std::span<const StoreDirectory> directories, Bytes stripe_bytes) {
  for (const StoreDirectory& directory : directories) check_store_directory(directory.path);
  check_distinct(directories);
  return StripeMap::capacity(available_bytes(directories), stripe_bytes);
}

Store::Store(StoreOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
Store::~Store() = default;
Store::Store(Store&&) noexcept = default;
Store& Store::operator=(Store&&) noexcept = default;

StoreChannel Store::open_channel(const StoreChannelOptions& options) {
  SPILLWAY_CHECK(options.max_operations >= 1 && options.max_segments >= 1, "a channel for {} operations, {} segments",
                 options.max_operations, options.max_segments);
  auto queue = make_io_queue({.kind = impl_->queue,
                              .depth = impl_->options.depth,
                              .files = impl_->descriptors,
                              .registered = options.registered,
                              .log = impl_->options.log});
  impl_->queue = queue->kind();
  if (impl_->options.decorate) queue = impl_->options.decorate(std::move(queue));
  return StoreChannel(std::make_unique<StoreChannel::Impl>(impl_->context, options, std::move(queue)));
}

void Store::keep() noexcept {
  for (StoreFile& file : impl_->files) file.keep();
}

void Store::discard() noexcept {
  for (StoreFile& file : impl_->files) file.discard();
}

StorePlace Store::place_of(Bytes offset) const {
  const StripeMap::Place place = impl_->map->place(offset);
  return {impl_->paths[static_cast<std::size_t>(place.file)], place.offset};
}

Bytes Store::bytes() const noexcept { return impl_->options.bytes; }

StoreTraffic Store::traffic() const noexcept {
  return {impl_->traffic.read_bytes.load(std::memory_order_relaxed),
          impl_->traffic.written_bytes.load(std::memory_order_relaxed)};
}

}  // namespace spillway
