// A unit graph with the structure of a transformer and no kernels behind it: for tests of the planner.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "memory/plan/plan.h"
#include "memory/plan/unit.h"
#include "tests/memory/order.h"

namespace spillway {

struct ToyShape {
  int layers = 4;
  int frozen = 0;  // number of first layers whose blocks are not trained
  // Layers from this one on have an adapter, and nothing else is trained: the backward ends there. -1: no adapters.
  int adapters_from = -1;
  int vocabulary_tiles = 2;
  bool tied = true;
  bool fused = false;
  std::int64_t layer_elements = 64 * 1024, vocabulary_elements = 128 * 1024;
  Bytes boundary_bytes = 64 * kKiB, saved_bytes = 256 * kKiB, logits_bytes = 256 * kKiB;
};

class ToyGraph {
 public:
  explicit ToyGraph(const ToyShape& shape) : shape_(shape) {
    graph_.rows = 32;
    add_embeddings();
    for (int layer = 0; layer < shape_.layers; ++layer) add_layer(layer);
    std::vector<int> heads = embeddings_;
    for (int tile = 0; tile < shape_.vocabulary_tiles && !shape_.tied; ++tile) {
      heads[tile] = block("head." + std::to_string(tile), shape_.vocabulary_elements);
    }
    if (shape_.fused) {
      add_fused_head(heads);
    } else {
      add_heads(heads);
    }
    if (shape_.adapters_from >= 0) freeze();
  }
  UnitGraph take() { return std::move(graph_); }

 private:
  int block(const std::string& name, std::int64_t elements) {
    ParameterBlock made{.name = name, .pieces = {}, .elements = round_up(elements, kBlockElements)};
    TensorPiece piece;
    piece.tensor = name;
    piece.file_shape = {elements / 64, 64};
    piece.tensor_index = graph_.tensors++;
    piece.rows = elements / 64;
    piece.columns = 64;
    made.pieces.push_back(piece);
    graph_.parameters += elements;
    graph_.blocks.push_back(made);
    return static_cast<int>(graph_.blocks.size()) - 1;
  }

  int value(const std::string& name, Bytes bytes) {
    graph_.values.push_back({name, bytes});
    return static_cast<int>(graph_.values.size()) - 1;
  }

  // Freezes all, then gives layers their adapters, and takes the backward from those below.
  void freeze() {
    for (ParameterBlock& of : graph_.blocks) of.frozen = true;
    for (Unit& unit : graph_.units) unit.gradient_blocks.clear();
    const int first = shape_.vocabulary_tiles + shape_.adapters_from;
    for (int index = 0; index < shape_.vocabulary_tiles + shape_.layers; ++index) {
      Unit& unit = graph_.units[static_cast<std::size_t>(index)];
      if (index < first) {
        unit.backward.clear(), unit.saved.clear();
        continue;
      }
      if (index == first) unit.backward.pop_back();  // nobody wants the gradient of its input
      unit.blocks.push_back(block(unit.name + ".adapter", 2048));
      graph_.blocks.back().of_adapter = true;
      unit.gradient_blocks = {unit.blocks.back()};
    }
  }

  void add_embeddings() {
    for (int tile = 0; tile < shape_.vocabulary_tiles; ++tile)
      embeddings_.push_back(block("embedding." + std::to_string(tile), shape_.vocabulary_elements));
    x_ = value("x.0", shape_.boundary_bytes);
    dx_ = value("d_x.0", shape_.boundary_bytes);
    for (int tile = 0; tile < shape_.vocabulary_tiles; ++tile) {
      const int table = embeddings_[tile];
      Unit unit{.name = "embedding." + std::to_string(tile), .blocks = {table}, .gradient_blocks = {table}};
      unit.forward = {{x_, tile == 0 ? Access::write : Access::update}};
      unit.backward = {{dx_, Access::read}};
      unit.forward_work.bytes = unit.backward_work.bytes = 1e5;
      unit.looks_up = true;
      graph_.blocks[table].looked_up = true;
      graph_.units.push_back(unit);
    }
  }

  void add_layer(int layer) {
    const std::string name = "layer." + std::to_string(layer);
    const int parameters = block(name, shape_.layer_elements);
    const int next = value("x." + std::to_string(layer + 1), shape_.boundary_bytes);
    const int dnext = value("d_x." + std::to_string(layer + 1), shape_.boundary_bytes);
    const int saved = value(name + ".saved", shape_.saved_bytes);
    Unit unit{.name = name, .blocks = {parameters}, .gradient_blocks = {parameters}};
    if (layer < shape_.frozen) {
      graph_.blocks[static_cast<std::size_t>(parameters)].frozen = true;
      unit.gradient_blocks.clear();
    }
    unit.forward = {{x_, Access::read}, {saved, Access::write}, {next, Access::write}};
    unit.backward = {{x_, Access::read}, {saved, Access::read}, {dnext, Access::read}, {dx_, Access::write}};
    unit.saved = {saved};
    unit.forward_work.gemm_flops = kFlops;
    unit.backward_work.gemm_flops = 2 * kFlops;
    unit.forward_workspace = 48 * kKiB;
    unit.backward_workspace = 96 * kKiB;
    graph_.units.push_back(unit);
    x_ = next;
    dx_ = dnext;
  }

  void add_fused_head(const std::vector<int>& heads) {
    Unit unit{.name = "head", .blocks = heads, .gradient_blocks = heads};
    unit.backward = {{x_, Access::read}, {dx_, Access::write}};
    unit.backward_work.gemm_flops = 3 * kFlops;
    unit.backward_workspace = 512 * kKiB;
    unit.role = ForwardRole::merged_into_backward;
    graph_.units.push_back(unit);
  }

  void add_heads(const std::vector<int>& heads) {
    const int state = value("softmax_state", 3 * 4 * graph_.rows);
    for (int tile = 0; tile < shape_.vocabulary_tiles; ++tile) {
      Unit unit{.name = "head." + std::to_string(tile), .blocks = {heads[tile]}, .gradient_blocks = {heads[tile]}};
      const int logits = value("logits." + std::to_string(tile), shape_.logits_bytes);
      unit.saved = {logits};
      unit.saved_piece = shape_.logits_bytes / 4;
      unit.forward = {{x_, Access::read}, {logits, Access::write}, {state, tile == 0 ? Access::write : Access::update}};
      unit.backward = {{x_, Access::read},
                       {logits, Access::update},
                       {state, Access::read},
                       {dx_, tile + 1 == shape_.vocabulary_tiles ? Access::write : Access::update}};
      unit.forward_work.gemm_flops = kFlops;
      unit.backward_work.gemm_flops = 2 * kFlops;
      unit.forward_workspace = unit.backward_workspace = 192 * kKiB;
      graph_.units.push_back(unit);
    }
  }

  static constexpr double kFlops = 2e9;
  const ToyShape shape_;
  UnitGraph graph_;
  std::vector<int> embeddings_;
  int x_ = -1, dx_ = -1;  // the boundary value behind the units so far, and its gradient
};

inline UnitGraph toy_graph(const ToyShape& shape) { return ToyGraph(shape).take(); }

inline Choices toy_choices(const UnitGraph& graph, Tier tier) {
  Choices choices;
  choices.ahead = 256 * kKiB;  // two layers' weights
  choices.blocks.assign(graph.blocks.size(), {tier, tier, tier});
  choices.units.resize(graph.units.size());
  return choices;
}

}  // namespace spillway
