#include "offload/touched_rows.h"

#include <algorithm>

namespace spillway {

std::span<const TouchedRow> TouchedRows::between(std::int64_t first_token, std::int64_t end_token) const {
  const auto first = std::ranges::lower_bound(rows_, first_token, {}, &TouchedRow::token);
  return {first, std::ranges::lower_bound(first, rows_.end(), end_token, {}, &TouchedRow::token)};
}

const std::byte* TouchedRows::find(std::int32_t token) const {
  const std::span<const TouchedRow> found = between(token, std::int64_t{token} + 1);
  return found.empty() ? nullptr : gradient(found.front());
}

}  // namespace spillway
