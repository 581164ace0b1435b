// Builds a model while its blocks are compiled: adds parameter blocks, values and units to the graph.
// Not here: how a unit's passes are written (unit_draft.h), the blocks themselves (attention.h, mlp.h, ...), families (gpt2.h,
// llama.h).
//
// Legend: B sequences of T tokens, n = B * T rows of a micro-batch, P parameters of a block.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "models/build.h"
#include "models/unit_draft.h"

namespace spillway {

struct RowRange {
  std::int64_t begin = 0, rows = 0;
  std::int64_t step = 1;  // from one row to the next
};

// A tensor of the model file; a matrix always means [out, in] to a unit, whichever way the file has it.
struct FileTensor {
  std::string name;
  std::int64_t rows = 0;     // out
  std::int64_t columns = 1;  // in
  FileLayout layout = FileLayout::as_stored;
  bool is_matrix = false;
  Initial initial = Initial::normal;
  double deviation_divisor = 1;
  std::vector<RowRange> order;  // the file's rows in the block's order; empty: as in the file
  // Above 0: the file has so many matrices in a tensor of three dimensions. They are the matrix's rows, or, where the file has it
  // transposed, its columns.
  std::int64_t stacked = 0;
};
FileTensor file_matrix(std::string name, std::int64_t out, std::int64_t in, FileLayout layout = FileLayout::as_stored,
                       double deviation_divisor = 1);
FileTensor file_vector(std::string name, std::int64_t elements, Initial initial = Initial::zeros);

// Places pieces in a block. Pieces that are added without `align` between them lie without a gap: together they are one matrix.
class BlockLayout {
 public:
  std::int64_t align();  // the place of the next piece, made a multiple of kPieceAlignment
  void add(const FileTensor& tensor);
  void add_rows(const FileTensor& tensor, std::int64_t row_begin, std::int64_t rows);
  void add_columns(const FileTensor& tensor, std::int64_t column_begin, std::int64_t columns);
  // Aligns, then adds each of the tensors. Returns the place of the first, or -1 if there are none.
  std::int64_t add_stack(const std::vector<FileTensor>& tensors);

 private:
  friend class ModelBuilder;
  void add_piece(const FileTensor& tensor, const RowRange& rows, std::int64_t column_begin, std::int64_t columns);
  std::vector<TensorPiece> pieces_;
  std::int64_t end_ = 0;
};

// Sizes and type that all kernels of a model have in common.
struct Compute {
  DType dtype;
  std::int64_t sequences;  // B
  std::int64_t sequence;   // T
  std::int64_t rows;       // n
  std::int64_t context;    // positions whose keys and values are kept between calls; 0: none, rows see only themselves
  std::optional<AdapterSpec> adapter;  // where there is one, the model's own blocks are frozen
  double mean_document;                // of packs, as BuildOptions has it; 0: a sequence is one document
  // The place of the rows' first keys; no place where a sequence is one document.
  Place first_key() const { return mean_document > 0 ? Place{.space = Space::documents} : Place{}; }
  Bytes element() const { return size_of(dtype); }
  bool adapts(const FileTensor& weight) const { return adapter && spillway::adapts(*adapter, layer_of_weight(weight.name)); }
};

// A value of the residual stream and its gradient, both [n,H] in the compute type.
struct StreamValue {
  int value = -1;
  int gradient = -1;
};

class ModelBuilder {
 public:
  ModelBuilder(const BuildOptions& options, const Cuts& cuts);

  const Compute& compute() const { return compute_; }
  const Cuts& cuts() const { return cuts_; }
  ExpertsForm experts_form() const { return experts_form_; }
  int add_block(std::string name, BlockLayout layout);
  // The block of a unit's adapters, behind the unit's other blocks: adds it to the unit, unless it is empty.
  void add_adapter_block(Unit& unit, BlockLayout layout);
  const std::string& block_name(int block) const { return model_.graph.blocks[static_cast<std::size_t>(block)].name; }
  // So many parameters are not active for a token, which goes through others in their place.
  void set_idle(std::int64_t elements) { model_.graph.active_parameters -= elements; }
  // The model's layers route their rows, with these losses.
  void set_experts(const RouterLosses& losses) { model_.graph.has_experts = true, model_.graph.router_losses = losses; }
  int add_value(std::string name, Bytes bytes);
  int add_lasting_value(std::string name, Bytes bytes);
  StreamValue add_stream_value(const std::string& name, std::int64_t hidden);
  void set_logits_bytes(Bytes bytes) { model_.graph.logits_bytes = bytes; }
  // add_constant makes room among the model's constants. fill_constants adds a function that fills in some of them, given all.
  Place add_constant(Bytes bytes);
  void fill_constants(std::function<void(std::span<std::byte>)> fill) { fills_.push_back(std::move(fill)); }
  void add_unit(UnitDraft draft);
  CompiledModel finish();

 private:
  int add_block(std::string name, BlockLayout layout, bool of_adapter);

  Compute compute_;
  Cuts cuts_;
  ExpertsForm experts_form_;
  ScratchBound scratch_;
  CompiledModel model_;
  std::map<std::string, int> tensor_index_, adapter_index_;  // adapters' tensors follow the model's, as if these were alone
  std::set<int> wanted_;                                     // values that the backwards of units so far read
  std::vector<std::function<void(std::span<std::byte>)>> fills_;
};

// The place of the parameters of a unit's `block`-th block, or of their gradients, from an element on; no place if it is
// negative. A frozen model's gradients have none.
inline Place weight_place(const Compute& compute, int block, std::int64_t element) {
  return element < 0 ? Place{} : Place{.space = Space::weight, .index = block, .offset = element * compute.element()};
}
inline Place gradient_place(const Compute& compute, int block, std::int64_t element) {
  if (element < 0 || compute.adapter) return {};
  return {.space = Space::gradient, .index = block, .offset = element * static_cast<Bytes>(sizeof(float))};
}

// A linear layer as a part of a unit: weight [out,in] and, where it has one, bias [out], both given as elements of the unit's
// `block`-th block. Their gradient is the unit's `gradient`-th, as a unit may have blocks without one. The caller may change a
// product's sum and the type of its result.
struct Linear {
  const Compute& compute;
  std::int64_t rows, in, out;
  std::int64_t weight, bias = -1;
  int block = 0, gradient = 0;
  float scale = 1;  // on x W^T; other than 1 only without a bias

  // y = x W^T (+ bias) (+ residual); x [rows,in], y and residual [rows,out].
  kernels::Product forward(Place x, Place y, Place residual = {}) const;
  // dx = dy W (+ residual), of `type`; residual [rows,in], of the compute type.
  kernels::Product input_gradient(Place dy, Place dx, DType type, Place residual = {}) const;
  // dW (+)= dy^T x, in fp32.
  kernels::Product weight_gradient(Place dy, Place x) const;
  void add_gradients(PassDraft& pass, Place dy, Place x) const;  // of weight and bias
};

}  // namespace spillway
