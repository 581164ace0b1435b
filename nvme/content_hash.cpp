#include "nvme/content_hash.h"

#include <xxhash.h>

#include <algorithm>
#include <memory>
#include <vector>

#if defined(__x86_64__) && __has_include(<xxh_x86dispatch.h>)
#include <xxh_x86dispatch.h>
#endif

namespace spillway {

std::uint64_t content_hash(std::span<const std::byte> content) { return XXH3_64bits(content.data(), content.size()); }

std::uint64_t content_hash_of_zeros(std::size_t bytes) {
  const std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state(XXH3_createState(), XXH3_freeState);
  XXH3_64bits_reset(state.get());
  const std::vector<std::byte> zeros(std::min<std::size_t>(bytes, 1 << 16));
  for (std::size_t left = bytes; left > 0; left -= std::min(left, zeros.size())) {
    XXH3_64bits_update(state.get(), zeros.data(), std::min(left, zeros.size()));
  }
  return XXH3_64bits_digest(state.get());
}

}  // namespace spillway
