// A unit graph with the structure of a transformer and no kernels behind it: for tests of the planner.
#pragma once

#include <string>

#include "memory/plan.h"
#include "memory/unit.h"
#include "tests/memory/order.h"

namespace spillway {

struct ToyShape {
  int layers = 4;
  int vocabulary_tiles = 2;
  bool tied = true;
  bool fused = false;
  std::int64_t layer_elements = 64 * 1024, vocabulary_elements = 128 * 1024;
  Bytes boundary_bytes = 64 * kKiB, saved_bytes = 256 * kKiB, logits_bytes = 256 * kKiB;
};

inline UnitGraph toy_graph(const ToyShape& shape) {
  UnitGraph graph;
  graph.rows = 32;
  graph.token_bytes = 2 * 4 * graph.rows;
  const auto block = [&](const std::string& name, std::int64_t elements) {
    ParameterBlock made{.name = name, .pieces = {}, .elements = round_up(elements, kBlockElements)};
    TensorPiece piece;
    piece.tensor = name;
    piece.file_shape = {elements / 64, 64};
    piece.tensor_index = graph.tensors++;
    piece.rows = elements / 64;
    piece.columns = 64;
    made.pieces.push_back(piece);
    graph.parameters += elements;
    graph.blocks.push_back(made);
    return static_cast<int>(graph.blocks.size()) - 1;
  };
  const auto value = [&](const std::string& name, Bytes bytes) {
    graph.values.push_back({name, bytes});
    return static_cast<int>(graph.values.size()) - 1;
  };
  const double flops = 2e9;
  std::vector<int> embeddings, heads;
  for (int tile = 0; tile < shape.vocabulary_tiles; ++tile)
    embeddings.push_back(block("embedding." + std::to_string(tile), shape.vocabulary_elements));
  int x = value("x.0", shape.boundary_bytes), dx = value("d_x.0", shape.boundary_bytes);
  for (int tile = 0; tile < shape.vocabulary_tiles; ++tile) {
    Unit unit{.name = "embedding." + std::to_string(tile), .blocks = {embeddings[tile]}, .gradient_blocks = {embeddings[tile]}};
    unit.forward = {{x, tile == 0 ? Access::write : Access::update}};
    unit.backward = {{dx, Access::read}};
    unit.forward_work.bytes = unit.backward_work.bytes = 1e5;
    const std::int64_t rows = shape.vocabulary_elements / 64;
    unit.lookup = {.first = tile * rows, .rows = rows, .row_elements = 64};
    graph.blocks[embeddings[tile]].looked_up = true;
    graph.units.push_back(unit);
  }
  for (int layer = 0; layer < shape.layers; ++layer) {
    const std::string name = "layer." + std::to_string(layer);
    const int parameters = block(name, shape.layer_elements);
    const int next = value("x." + std::to_string(layer + 1), shape.boundary_bytes);
    const int dnext = value("d_x." + std::to_string(layer + 1), shape.boundary_bytes);
    const int saved = value(name + ".saved", shape.saved_bytes);
    Unit unit{.name = name, .blocks = {parameters}, .gradient_blocks = {parameters}};
    unit.forward = {{x, Access::read}, {saved, Access::write}, {next, Access::write}};
    unit.backward = {{x, Access::read}, {saved, Access::read}, {dnext, Access::read}, {dx, Access::write}};
    unit.saved = {saved};
    unit.forward_work.gemm_flops = flops;
    unit.backward_work.gemm_flops = 2 * flops;
    unit.forward_workspace = 48 * kKiB;
    unit.backward_workspace = 96 * kKiB;
    graph.units.push_back(unit);
    x = next;
    dx = dnext;
  }
  for (int tile = 0; tile < shape.vocabulary_tiles; ++tile) {
    heads.push_back(shape.tied ? embeddings[tile] : block("head." + std::to_string(tile), shape.vocabulary_elements));
  }
  if (shape.fused) {
    Unit unit{.name = "head", .blocks = heads, .gradient_blocks = heads};
    unit.backward = {{x, Access::read}, {dx, Access::write}};
    unit.backward_work.gemm_flops = 6e9;
    unit.backward_workspace = 512 * kKiB;
    unit.role = ForwardRole::merged_into_backward;
    graph.units.push_back(unit);
    return graph;
  }
  const int state = value("softmax_state", 3 * 4 * graph.rows);
  for (int tile = 0; tile < shape.vocabulary_tiles; ++tile) {
    Unit unit{.name = "head." + std::to_string(tile), .blocks = {heads[tile]}, .gradient_blocks = {heads[tile]}};
    const int logits = value("logits." + std::to_string(tile), shape.logits_bytes);
    unit.saved = {logits};
    unit.saved_piece = shape.logits_bytes / 4;
    unit.forward = {{x, Access::read}, {logits, Access::write}, {state, tile == 0 ? Access::write : Access::update}};
    unit.backward = {{x, Access::read},
                     {logits, Access::update},
                     {state, Access::read},
                     {dx, tile + 1 == shape.vocabulary_tiles ? Access::write : Access::update}};
    unit.forward_work.gemm_flops = flops;
    unit.backward_work.gemm_flops = 2 * flops;
    unit.forward_workspace = unit.backward_workspace = 192 * kKiB;
    graph.units.push_back(unit);
  }
  return graph;
}

inline Choices toy_choices(const UnitGraph& graph, Tier tier) {
  Choices choices;
  choices.weight_tier.assign(graph.blocks.size(), tier);
  choices.optimizer_tier.assign(graph.blocks.size(), tier);
  choices.gradient_tier.assign(graph.blocks.size(), tier);
  choices.saved.assign(graph.units.size(), Saved::keep);
  choices.boundary.assign(graph.units.size(), Boundary::keep);
  return choices;
}

}  // namespace spillway
