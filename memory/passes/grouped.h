// Lists of whole numbers, one list for each key, in one array.
#pragma once

#include <cstddef>
#include <numeric>
#include <span>
#include <vector>

namespace spillway {

// Items of a key keep the order in which they were added.
class Grouped {
 public:
  // `for_each(add)` calls add(key, item) for every item, and does the same each time that it is called.
  template <typename ForEach>
  Grouped(std::size_t keys, const ForEach& for_each) : begins_(keys + 1, 0) {
    for_each([&](int key, int) { ++begins_[static_cast<std::size_t>(key) + 1]; });
    std::partial_sum(begins_.begin(), begins_.end(), begins_.begin());
    items_.resize(static_cast<std::size_t>(begins_.back()));
    std::vector<int> next(begins_.begin(), begins_.end() - 1);
    for_each([&](int key, int item) { items_[static_cast<std::size_t>(next[static_cast<std::size_t>(key)]++)] = item; });
  }
  std::span<int> of(int key) {
    const int begin = begins_[static_cast<std::size_t>(key)], end = begins_[static_cast<std::size_t>(key) + 1];
    return {items_.data() + begin, items_.data() + end};
  }

 private:
  std::vector<int> begins_, items_;
};

}  // namespace spillway
