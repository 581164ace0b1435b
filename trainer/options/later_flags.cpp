#include "trainer/options/later_flags.h"

#include <algorithm>

#include "trainer/words/nearest_name.h"

namespace spillway {
namespace {

constexpr LaterFlags kTable[] = {
    {"reduce-dtype", "this version's ranks add in fp32 along one tree",
     "--ranks N trains with several on this host: leave it out."},
};

}  // namespace

std::span<const LaterFlags> later_flags() { return kTable; }

const LaterFlags* find_later_flag(std::string_view name) {
  const auto* found = std::ranges::find_if(kTable, [&](const LaterFlags& row) { return has_word(row.names, with_dashes(name)); });
  return found == std::end(kTable) ? nullptr : found;
}

}  // namespace spillway
