#include "memory/square_tree.h"

#include "memory/error.h"

namespace spillway {

std::int64_t SquareCut::elements_at(std::int64_t begin) const {
  const auto fits = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(end_ - begin)));
  return std::min({begin == 0 ? most_ : begin & -begin, fits, most_});
}

std::int64_t SquareCut::size() const {
  std::int64_t nodes = 0;
  for (std::int64_t at = begin_; at < end_;) {
    const std::int64_t elements = elements_at(at), alike = elements == most_ ? (end_ - at) / most_ : 1;
    nodes += alike;
    at += alike * elements;
  }
  return nodes;
}

SquareNode SquareCut::operator[](std::int64_t place) const {
  for (std::int64_t at = begin_; at < end_;) {
    const std::int64_t elements = elements_at(at), alike = elements == most_ ? (end_ - at) / most_ : 1;
    if (place < alike) return {.begin = at + place * elements, .elements = elements};
    place -= alike;
    at += alike * elements;
  }
  SPILLWAY_CHECK(false, "node {} beyond those of elements {} to {}", place, begin_, end_);
}

void SquareTree::add(SquareNode node) {
  auto at = std::ranges::lower_bound(nodes_, node.begin, {}, &SquareNode::begin);
  SPILLWAY_CHECK((at == nodes_.end() || node.end() <= at->begin) && (at == nodes_.begin() || std::prev(at)->end() <= node.begin),
                 "squares of elements {} to {} are added twice", node.begin, node.end());
  // With its other half it is one node.
  for (;; at = nodes_.erase(at)) {
    const bool is_right = (node.begin & node.elements) != 0;
    if (is_right && at != nodes_.begin() && std::prev(at)->begin == node.begin - node.elements &&
        std::prev(at)->elements == node.elements) {
      --at;
      node = {at->begin, 2 * node.elements, at->sum + node.sum};
    } else if (!is_right && at != nodes_.end() && at->begin == node.end() && at->elements == node.elements) {
      node = {node.begin, 2 * node.elements, node.sum + at->sum};
    } else {
      break;
    }
  }
  nodes_.insert(at, node);
}

void SquareTree::add(const SquareCut& cut, const double* sums) {
  for (std::int64_t place = 0, nodes = cut.size(); place < nodes; ++place) {
    SquareNode node = cut[place];
    node.sum = sums[place];
    add(node);
  }
}

namespace {

// Of the smallest node that has all of them. One alone has the sum of every node that has nothing beside it.
double sum_of(std::span<const SquareNode> nodes) {
  if (nodes.size() == 1) return nodes.front().sum;
  const std::int64_t first = nodes.front().begin, last = nodes.back().begin,
                     half = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(first ^ last)));
  const auto right = std::ranges::lower_bound(nodes, last & -half, {}, &SquareNode::begin);
  const auto left = static_cast<std::size_t>(right - nodes.begin());
  return sum_of(nodes.first(left)) + sum_of(nodes.subspan(left));
}

}  // namespace

double SquareTree::sum() const { return nodes_.empty() ? 0.0 : sum_of(nodes_); }

}  // namespace spillway
