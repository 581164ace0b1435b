#include "tests/simt/access_log.h"

#include <algorithm>
#include <span>
#include <tuple>

#include "tests/simt/global_memory.h"

namespace spillway::simt {
namespace {

constexpr std::uintptr_t kBanks = 32, kBankBytes = 4;

// For lanes that are served together: how often a bank has to be asked again for another of its words.
std::int64_t conflicts_of(std::vector<std::uintptr_t>& words) {
  std::ranges::sort(words);
  words.erase(std::unique(words.begin(), words.end()), words.end());
  std::array<std::int64_t, kBanks> asked{};
  for (const std::uintptr_t word : words) ++asked[word % kBanks];
  return words.empty() ? 0 : *std::ranges::max_element(asked) - 1;
}

void add_words(std::vector<std::uintptr_t>& words, std::uintptr_t address, std::uintptr_t bytes) {
  for (std::uintptr_t word = address / kBankBytes; word <= (address + bytes - 1) / kBankBytes; ++word) words.push_back(word);
}

}  // namespace

void AccessLog::note_rows(const std::array<std::uint32_t, 32>& bytes, Counts& counts) {
  for (std::size_t first = 0; first < bytes.size(); first += 8) {
    std::vector<std::uintptr_t> words;
    for (std::size_t i = first; i < first + 8; ++i) add_words(words, bytes[i], 16);
    ++counts.shared_requests;
    counts.bank_conflicts += conflicts_of(words);
  }
}

void AccessLog::take(Counts& counts) {
  all_.clear();
  for (Lane& lane : lanes_) {
    all_.insert(all_.end(), lane.accesses.begin(), lane.accesses.end());
    lane.accesses.clear(), lane.places.clear();
  }
  // The sort is stable, so that lanes stay in their order.
  std::ranges::stable_sort(all_, [](const Access& a, const Access& b) {
    return std::tuple(a.line, a.column, a.occurrence, a.is_shared) < std::tuple(b.line, b.column, b.occurrence, b.is_shared);
  });
  std::vector<std::uintptr_t> touched;
  for (std::size_t first = 0, end = 0; first < all_.size(); first = end) {
    while (end < all_.size() && all_[end].together(all_[first])) ++end;
    const std::span<const Access> instruction(all_.data() + first, end - first);
    if (!instruction.front().is_shared) {
      touched.clear();
      for (const Access& access : instruction) {
        counts.requested_bytes += access.bytes;
        touched.push_back(access.address / kSectorBytes);
      }
      std::ranges::sort(touched);
      counts.moved_bytes +=
          static_cast<std::int64_t>(kSectorBytes) * (std::unique(touched.begin(), touched.end()) - touched.begin());
      continue;
    }
    // Accesses of sixteen bytes per lane are served by quarters of the warp, of eight bytes by halves. Which lanes these are does
    // not depend on which of them ask.
    const int together = instruction.front().bytes <= 4 ? 32 : static_cast<int>(128 / instruction.front().bytes);
    for (auto access = instruction.begin(); access != instruction.end();) {
      touched.clear();
      const int part = access->lane / together;
      for (; access != instruction.end() && access->lane / together == part; ++access)
        add_words(touched, access->address, access->bytes);
      ++counts.shared_requests;
      counts.bank_conflicts += conflicts_of(touched);
    }
  }
}

}  // namespace spillway::simt
