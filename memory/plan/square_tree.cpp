#include "memory/plan/square_tree.h"

#include "memory/base/error.h"

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
  // Joins the node with its other half, where that is there, to one node; and so on upwards.
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

double SquareTree::sum() const {
  const auto node = [this](std::int64_t place) -> const SquareNode& { return nodes_[static_cast<std::size_t>(place)]; };
  return sum_of_nodes(
      0, std::ssize(nodes_), [&](std::int64_t place) { return node(place).begin; },
      [&](std::int64_t place) { return node(place).sum; });
}

}  // namespace spillway
