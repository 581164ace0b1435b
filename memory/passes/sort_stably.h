// A stable sort for many short lists that are mostly in order already: std::stable_sort allocates memory for each.
#pragma once

#include <algorithm>

namespace spillway {

template <typename Iterator, typename Less>
void sort_stably(Iterator begin, Iterator end, const Less& less) {
  if (!std::is_sorted(begin, end, less)) std::stable_sort(begin, end, less);
}

}  // namespace spillway
