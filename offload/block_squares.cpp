#include "offload/block_squares.h"

#include <algorithm>
#include <array>

#include "models/cpu/ops.h"

namespace spillway {
namespace {

constexpr std::int64_t kTaskStretches = kSquareTask / kSquareStretch;

// Sets sums[i] to the sum of squares of the i-th stretch; the last one may be shorter.
void square_stretches(std::int64_t elements, const SquaredGradient& gradient, double* sums) {
  if (gradient.rounded != nullptr) {
    ops::round_and_square_nodes(elements, kSquareStretch, gradient.exact, gradient.rounded, sums);
  } else {
    ops::square_nodes(elements, kSquareStretch, gradient.exact, sums);
  }
}

// The sum of squares of a stretch that does not lie within one piece.
double square_parts(const ParameterBlock& block, std::int64_t begin, const SquaredGradient& gradient) {
  std::array<float, kSquareStretch> values{};
  for (const TensorPiece& piece : block.pieces) {
    const std::int64_t from = std::max(begin, piece.begin), to = std::min(begin + kSquareStretch, piece.begin + piece.elements());
    if (from >= to) continue;
    const auto place = values.begin() + (from - begin);
    std::copy_n(gradient.exact + from, to - from, place);
    if (gradient.rounded == nullptr) continue;
    double unused = 0;
    square_stretches(to - from, gradient.from(from), &unused);
    std::transform(gradient.rounded + from, gradient.rounded + to, place, [](BFloat16 value) { return value.to_float(); });
  }
  double sum = 0;
  ops::square_nodes(kSquareStretch, kSquareStretch, values.data(), &sum);
  return sum;
}

}  // namespace

double square_node(const ParameterBlock& block, const SquareNode& node, const SquaredGradient& gradient) {
  std::array<double, kTaskStretches> sums;
  for (std::int64_t begin = node.begin, end; begin < node.end(); begin = end) {
    double* const sum = sums.data() + (begin - node.begin) / kSquareStretch;
    // The piece that `begin` lies in, or the next one.
    const auto piece =
        std::ranges::find_if(block.pieces, [begin](const TensorPiece& of) { return begin < of.begin + of.elements(); });
    const std::int64_t piece_begin = piece == block.pieces.end() ? node.end() : piece->begin,
                       piece_end = piece == block.pieces.end() ? node.end() : piece->begin + piece->elements();
    end = std::min(node.end(), piece_end / kSquareStretch * kSquareStretch);
    if (piece_begin <= begin && begin < end) {
      square_stretches(end - begin, gradient.from(begin), sum);
    } else {
      end = begin + kSquareStretch;
      *sum = square_parts(block, begin, gradient);
    }
  }
  return ops::tree_sum({sums.data(), static_cast<std::size_t>(node.elements / kSquareStretch)});
}

}  // namespace spillway
