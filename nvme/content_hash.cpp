#include "nvme/content_hash.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <vector>

#include "memory/base/error.h"

#if defined(__x86_64__) && __has_include(<xxh_x86dispatch.h>)
#include <xxh_x86dispatch.h>
#endif

namespace spillway {
namespace {

constexpr auto kPiece = static_cast<std::size_t>(kHashedPieceBytes);
using Pieces = std::array<std::uint64_t, kMostExtentBytes / kHashedPieceBytes>;

}  // namespace

std::uint64_t content_hash(std::span<const std::byte> content) { return XXH3_64bits(content.data(), content.size()); }

std::uint64_t extent_hash(std::span<const std::byte> extent) {
  SPILLWAY_CHECK(std::ssize(extent) <= kMostExtentBytes, "an extent of {} bytes", extent.size());
  Pieces pieces;
  std::size_t count = 0;
  for (; !extent.empty(); extent = extent.subspan(std::min(kPiece, extent.size()))) {
    pieces[count++] = content_hash(extent.first(std::min(kPiece, extent.size())));
  }
  return extent_hash_of({pieces.data(), count});
}

std::uint64_t extent_hash_of(std::span<const std::uint64_t> pieces) { return content_hash(std::as_bytes(pieces)); }

std::uint64_t extent_hash_of_zeros(Bytes bytes) {
  const std::vector<std::byte> zeros(static_cast<std::size_t>(bytes));
  return extent_hash(zeros);
}

struct ContentHasher::State {
  std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> of{XXH3_createState(), XXH3_freeState};
};

ContentHasher::ContentHasher() : state_(std::make_unique<State>()) { XXH3_64bits_reset(state_->of.get()); }
ContentHasher::~ContentHasher() = default;
ContentHasher::ContentHasher(ContentHasher&&) noexcept = default;
ContentHasher& ContentHasher::operator=(ContentHasher&&) noexcept = default;

void ContentHasher::add(std::span<const std::byte> piece) { XXH3_64bits_update(state_->of.get(), piece.data(), piece.size()); }

std::uint64_t ContentHasher::take() {
  const std::uint64_t hash = XXH3_64bits_digest(state_->of.get());
  XXH3_64bits_reset(state_->of.get());
  return hash;
}

}  // namespace spillway
