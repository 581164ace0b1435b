#include "models/model_builder.h"

#include <algorithm>
#include <utility>

#include "memory/base/error.h"

namespace spillway {
namespace {

// With these no count of a model's bytes overflows 64 bits, and the description of the model fits any machine.
constexpr std::int64_t kMaxParameters = std::int64_t{1} << 44, kMaxUnits = std::int64_t{1} << 20;

std::int64_t elements_of(const ParameterBlock& block) {
  std::int64_t elements = 0;
  for (const TensorPiece& piece : block.pieces) elements += piece.elements();
  return elements;
}

}  // namespace

FileTensor file_matrix(std::string name, std::int64_t out, std::int64_t in, FileLayout layout, double deviation_divisor) {
  return {std::move(name), out, in, layout, true, Initial::normal, deviation_divisor};
}
FileTensor file_vector(std::string name, std::int64_t elements, Initial initial) {
  return {std::move(name), elements, 1, FileLayout::as_stored, false, initial};
}

std::int64_t BlockLayout::align() { return end_ = round_up(end_, kPieceAlignment); }

void BlockLayout::add(const FileTensor& tensor) {
  if (tensor.order.empty()) return add_rows(tensor, 0, tensor.rows);
  for (const RowRange& range : tensor.order) add_piece(tensor, range, 0, tensor.columns);
}

void BlockLayout::add_rows(const FileTensor& tensor, std::int64_t row_begin, std::int64_t rows) {
  add_piece(tensor, {row_begin, rows}, 0, tensor.columns);
}

void BlockLayout::add_columns(const FileTensor& tensor, std::int64_t column_begin, std::int64_t columns) {
  add_piece(tensor, {0, tensor.rows}, column_begin, columns);
}

std::int64_t BlockLayout::add_stack(const std::vector<FileTensor>& tensors) {
  if (tensors.empty()) return -1;
  const std::int64_t begin = align();
  for (const FileTensor& tensor : tensors) add(tensor);
  return begin;
}

void BlockLayout::add_piece(const FileTensor& tensor, const RowRange& rows, std::int64_t column_begin, std::int64_t columns) {
  SPILLWAY_CHECK(rows.step == 1 || tensor.layout == FileLayout::as_stored, "{}: every {}th row, transposed", tensor.name,
                 rows.step);
  TensorPiece piece;
  piece.tensor = tensor.name;
  if (!tensor.is_matrix) {
    piece.file_shape = {tensor.rows};
  } else if (tensor.stacked > 0 && tensor.layout == FileLayout::transposed) {
    piece.file_shape = {tensor.stacked, tensor.columns / tensor.stacked, tensor.rows};
  } else if (tensor.stacked > 0) {
    piece.file_shape = {tensor.stacked, tensor.rows / tensor.stacked, tensor.columns};
  } else if (tensor.layout == FileLayout::as_stored) {
    piece.file_shape = {tensor.rows, tensor.columns};
  } else {
    piece.file_shape = {tensor.columns, tensor.rows};
  }
  piece.layout = tensor.layout;
  piece.decay = tensor.is_matrix ? Decay::applied : Decay::none;
  piece.row_begin = rows.begin;
  piece.row_step = rows.step;
  piece.column_begin = column_begin;
  piece.rows = rows.rows;
  piece.columns = columns;
  piece.begin = end_;
  piece.initial = tensor.initial;
  piece.deviation_divisor = tensor.deviation_divisor;
  end_ += piece.elements();
  pieces_.push_back(std::move(piece));
}

ModelBuilder::ModelBuilder(const BuildOptions& options, const Cuts& cuts)
    : compute_{options.dtype,   options.micro_batch, options.sequence,     options.micro_batch * options.sequence,
               options.context, options.adapter,     options.mean_document},
      cuts_(cuts),
      experts_form_(options.experts),
      scratch_(options.scratch ? options.scratch : [](const Kernel&) { return Bytes{0}; }) {
  if (compute_.adapter && compute_.context > 0) compute_.adapter->dropout = 0;  // nothing is trained
  model_.graph.dtype = options.dtype;
  model_.graph.rows = compute_.rows;
  model_.graph.has_documents = static_cast<bool>(compute_.first_key());
}

int ModelBuilder::add_block(std::string name, BlockLayout layout) { return add_block(std::move(name), std::move(layout), false); }

void ModelBuilder::add_adapter_block(Unit& unit, BlockLayout layout) {
  if (layout.pieces_.empty()) return;
  unit.blocks.push_back(add_block(unit.name + " adapter", std::move(layout), true));
  unit.gradient_blocks.push_back(unit.blocks.back());
}

int ModelBuilder::add_block(std::string name, BlockLayout layout, bool of_adapter) {
  ParameterBlock block;
  block.name = std::move(name);
  block.elements = round_up(layout.end_, kBlockElements);
  block.pieces = std::move(layout.pieces_);
  block.frozen = compute_.adapter && !of_adapter;
  block.of_adapter = of_adapter;
  auto& indices = of_adapter ? adapter_index_ : tensor_index_;
  for (TensorPiece& piece : block.pieces)
    piece.tensor_index = indices.try_emplace(piece.tensor, static_cast<int>(indices.size())).first->second;
  const std::int64_t elements = elements_of(block);
  model_.graph.parameters += elements;
  if (!block.frozen) model_.graph.trained_parameters += elements;
  model_.graph.active_parameters += elements;
  if (model_.graph.parameters > kMaxParameters) {
    throw InputError(fmt::format("the model's sizes make more than {} parameters", kMaxParameters),
                     "Look at the sizes in its config.json.");
  }
  model_.graph.blocks.push_back(std::move(block));
  return static_cast<int>(model_.graph.blocks.size()) - 1;
}

int ModelBuilder::add_value(std::string name, Bytes bytes) {
  model_.graph.values.push_back({std::move(name), bytes});
  return static_cast<int>(model_.graph.values.size()) - 1;
}

int ModelBuilder::add_lasting_value(std::string name, Bytes bytes) {
  const int value = add_value(std::move(name), bytes);
  model_.graph.values.back().lasts = true;
  return value;
}

StreamValue ModelBuilder::add_stream_value(const std::string& name, std::int64_t hidden) {
  const Bytes bytes = compute_.rows * hidden * size_of(compute_.dtype);
  StreamValue stream;
  stream.value = add_value(name, bytes);
  stream.gradient = add_value("d " + name, bytes);
  return stream;
}

Place ModelBuilder::add_constant(Bytes bytes) {
  const Bytes offset = model_.constants.bytes;
  model_.constants.bytes += round_up(bytes, 64);
  return {.space = Space::constant, .offset = offset};
}

// Units come in the order of the forward: what the backwards of those before this one read is known.
void ModelBuilder::add_unit(UnitDraft draft) {
  if (compute_.adapter) {
    std::erase_if(draft.unit.gradient_blocks,
                  [&](int block) { return model_.graph.blocks[static_cast<std::size_t>(block)].frozen; });
    if (compute_.context == 0) keep_wanted(draft, wanted_);
  }
  auto code = std::make_shared<const UnitCode>(compile_unit(draft, scratch_));
  for (const ValueUse& use : draft.unit.backward) {
    if (use.access != Access::write) wanted_.insert(use.value);
  }
  // Units of the same shape differ only in their names: a layer's code is mostly that of the layer before.
  const auto& made = model_.code;
  const auto same = std::find_if(made.rbegin(), made.rend(), [&](const auto& other) { return other && *other == *code; });
  if (same != made.rend()) code = *same;
  Unit& unit = draft.unit;
  if (unit.looks_up) model_.graph.blocks[static_cast<std::size_t>(unit.blocks.front())].looked_up = true;
  if (std::ssize(model_.graph.units) == kMaxUnits) {
    throw InputError(fmt::format("the model's sizes make more than {} units of compute", kMaxUnits),
                     "Look at the sizes in its config.json.");
  }
  model_.graph.units.push_back(std::move(unit));
  model_.code.push_back(std::move(code));
}

CompiledModel ModelBuilder::finish() {
  const int of_model = static_cast<int>(tensor_index_.size());
  for (ParameterBlock& block : model_.graph.blocks) {
    for (TensorPiece& piece : block.pieces) piece.tensor_index += block.of_adapter ? of_model : 0;
  }
  model_.graph.tensors = of_model + static_cast<int>(adapter_index_.size());
  model_.graph.constant_bytes = model_.constants.bytes;
  model_.constants.fill = [fills = std::move(fills_)](std::span<std::byte> constants) {
    for (const auto& fill : fills) fill(constants);
  };
  return std::move(model_);
}

kernels::Product Linear::forward(Place x, Place y, Place residual) const {
  const ops::Epilogue with_bias = residual ? ops::Epilogue::bias_residual : ops::Epilogue::bias;
  const ops::Epilogue without = residual ? ops::Epilogue::residual : ops::Epilogue::none;
  kernels::Product product{.spec = ops::linear_forward(compute.dtype, rows, in, out, bias < 0 ? without : with_bias),
                           .a = x,
                           .b = weight_place(compute, block, weight),
                           .c = y,
                           .bias = weight_place(compute, block, bias),
                           .residual = residual};
  product.spec.scale = scale;
  return product;
}

kernels::Product Linear::input_gradient(Place dy, Place dx, DType type, Place residual) const {
  kernels::Product product{.spec = ops::linear_input_gradient(compute.dtype, rows, in, out, type),
                           .a = dy,
                           .b = weight_place(compute, block, weight),
                           .c = dx,
                           .residual = residual};
  product.spec.scale = scale;
  if (residual) product.spec.has_residual = true, product.spec.ld_residual = in;
  return product;
}

kernels::Product Linear::weight_gradient(Place dy, Place x) const {
  kernels::Product product{.spec = ops::linear_weight_gradient(compute.dtype, rows, in, out, ops::Store::write),
                           .sum = Sum::first_writes,
                           .a = dy,
                           .b = x,
                           .c = gradient_place(compute, gradient, weight)};
  product.spec.scale = scale;
  return product;
}

void Linear::add_gradients(PassDraft& pass, Place dy, Place x) const {
  if (compute.adapter) return;
  pass.add(weight_gradient(dy, x));
  if (bias < 0) return;
  pass.add(kernels::ColumnSums{
      .type = compute.dtype, .rows = rows, .columns = out, .dy = dy, .sums = gradient_place(compute, gradient, bias)});
}

}  // namespace spillway
