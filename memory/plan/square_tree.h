// Sums of squares of a block's gradient, added in one order that the block alone determines: elements in stretches of 1 Ki that
// are anchored at the block's first one, stretches along a binary tree (the design's "What keeps the bits equal").
// The sum has the same bits however its elements are cut at leaves and in whichever order they come, by updates, threads, rows or
// ranks. A node is an aligned power of two of elements; its sum is the sum of its left half plus that of its right half. Elements
// that nobody gives count as zeros, which change no bit: squares are never below +0.
// A range of n elements is at most 2 log2(n) nodes: no more sums of it have to be kept or sent.
// Not here: the squares themselves (models/cpu/ops.h, offload/block_squares.h), which words hold them (plan.h).
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>
#include <vector>

namespace spillway {

inline constexpr std::int64_t kSquareStretch = 1 << 10;
// Elements of the smallest node, a part of a stretch: rows that are shorter than a stretch, or no multiple of it, consist of
// leaves.
inline constexpr std::int64_t kSquareLeaf = 16;
// Elements of the largest node that one task squares.
inline constexpr std::int64_t kSquareTask = 64 << 10;

// The most nodes that a range of a block consists of; and a range that begins with the block.
constexpr int square_nodes_of_part(std::int64_t block_elements) {
  return 2 * static_cast<int>(std::bit_width(static_cast<std::uint64_t>(block_elements)));
}
inline constexpr int kSquareNodesFromBegin = 64;

struct SquareNode {
  std::int64_t begin = 0, elements = 0;  // its range of the block's elements
  double sum = 0;
  std::int64_t end() const { return begin + elements; }
};

// The nodes of which elements [begin, end) consist, in their order: as large as possible, but of at most `most` elements. begin
// and end are multiples of kSquareLeaf, `most` is a power of two.
class SquareCut {
 public:
  static constexpr std::int64_t kAnySize = std::int64_t{1} << 62;
  SquareCut(std::int64_t begin, std::int64_t end, std::int64_t most = kAnySize) : begin_(begin), end_(end), most_(most) {}

  std::int64_t size() const;
  SquareNode operator[](std::int64_t place) const;  // its sum is 0

 private:
  std::int64_t elements_at(std::int64_t begin) const;  // elements of the node that begins there

  std::int64_t begin_, end_, most_;
};

// The sum of nodes [first, end) of a list that is sorted by ascending begin: begin_of(i) and sum_of(i) give its i-th node. Sums
// may be of any type that can be added: a device makes a list of additions of them.
template <typename BeginOf, typename SumOf>
auto sum_of_nodes(std::int64_t first, std::int64_t end, const BeginOf& begin_of, const SumOf& sum_of) -> decltype(sum_of(first)) {
  if (first == end) return {};
  // A larger node that has nothing but this one has its sum.
  if (end - first == 1) return sum_of(first);
  // Sums the halves of the smallest node that contains all of them.
  const std::int64_t last = begin_of(end - 1),
                     half = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(begin_of(first) ^ last)));
  std::int64_t left = first, right = end - 1;  // `left` lies before the border of the halves, `right` behind it
  while (right - left > 1) {
    const std::int64_t middle = left + (right - left) / 2;
    (begin_of(middle) < (last & -half) ? left : right) = middle;
  }
  return sum_of_nodes(first, right, begin_of, sum_of) + sum_of_nodes(right, end, begin_of, sum_of);
}

// Sums of nodes of one block that do not overlap. Once made, it allocates nothing when nodes come in their order.
class SquareTree {
 public:
  SquareTree() { nodes_.reserve(2 * kSquareNodesFromBegin); }

  void clear() { nodes_.clear(); }
  void add(SquareNode node);
  void add(const SquareCut& cut, const double* sums /*[cut.size()]*/);
  // The nodes added so far, joined to the largest possible ones, by their begin; for a range without gaps those of its SquareCut.
  std::span<const SquareNode> nodes() const { return nodes_; }
  double sum() const;

 private:
  std::vector<SquareNode> nodes_;
};

}  // namespace spillway
