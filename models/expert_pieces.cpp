#include "models/expert_pieces.h"

namespace spillway::ops {
namespace {

template <typename Visit>
void for_piece_sizes(const auto& call, const Visit& visit) {
  for (const std::int64_t rows : kPieceRows) {
    const ops::ExpertsShape& s = call.shape;
    if (rows <= s.most_rows()) visit(PieceProducts{call.type, rows, s.hidden, s.width, s.biased});
  }
}

}  // namespace

std::vector<GemmSpec> products_of(const kernels::Experts& call) {
  std::vector<GemmSpec> products;
  for_piece_sizes(call, [&](const PieceProducts& of) { products.insert(products.end(), {of.up(), of.down()}); });
  return products;
}

std::vector<GemmSpec> products_of(const kernels::ExpertsBackward& call) {
  std::vector<GemmSpec> products;
  for_piece_sizes(call, [&](const PieceProducts& of) {
    products.insert(products.end(), {of.up(), of.dh(), of.dx()});
    if (!call.gradients) return;
    for (const Store store : {Store::write, Store::add})
      products.insert(products.end(), {of.down_gradient(store), of.up_gradient(store)});
  });
  return products;
}

}  // namespace spillway::ops
