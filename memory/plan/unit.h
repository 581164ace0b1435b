// The planner's view of a model: blocks of parameters, activation values, and the units of compute that use them.
// A model is compiled to a UnitGraph for one micro-batch shape; the planner never sees a layer, a head or a kernel.
// Not here: what a unit computes (models/unit_code.h), where anything lives (memory/plan/plan.h).
//
// Legend: P parameters of a block, n rows (tokens) of a micro-batch.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "memory/base/types.h"

namespace spillway {

enum class Decay : std::uint8_t { none, applied };
enum class FileLayout : std::uint8_t { as_stored, transposed };
enum class Initial : std::uint8_t { normal, zeros, ones, uniform };  // initial values of a tensor that is in no file

// A contiguous run of a block's parameters: a whole tensor of the model file, or a rectangle of one where the model is cut
// (vocabulary rows, MLP columns). Element (i, j) of the piece is element (file_row(i), column_begin + j) of the file's tensor, or
// (column_begin + j, file_row(i)) where the file has it transposed. One-dimensional tensors have columns = 1.
struct TensorPiece {
  std::string tensor;  // name in the model file
  // Shape of the whole tensor in the file; one of three dimensions, a matrix for each expert, counts as the matrix of all of
  // them, one below the other.
  std::vector<std::int64_t> file_shape;
  int tensor_index = 0;  // place of the tensor in the model's canonical order
  FileLayout layout = FileLayout::as_stored;
  Decay decay = Decay::applied;  // by the rank of the file's tensor: two or more dimensions decay
  std::int64_t row_begin = 0, column_begin = 0;
  std::int64_t row_step = 1;           // the file's rows from one row of the piece to the next; other than 1 only as stored
  std::int64_t rows = 0, columns = 1;  // of the piece, as the block stores it: row-major [rows, columns]
  std::int64_t begin = 0;              // first element within the block
  Initial initial = Initial::normal;
  // Initial::normal: the model's standard deviation is divided by it. Initial::uniform: values lie within ±1 / it.
  double deviation_divisor = 1;
  std::int64_t elements() const { return rows * columns; }
  std::int64_t file_row(std::int64_t row) const { return row_begin + row * row_step; }
};

// Parameters that are fetched, accumulated and updated together. The state of a block is a few flat arrays of `elements`.
struct ParameterBlock {
  std::string name;
  std::vector<TensorPiece> pieces;  // by ascending `begin`, not overlapping; gaps are padding and stay unused
  std::int64_t elements = 0;        // P with padding; a multiple of kBlockElements
  bool looked_up = false;           // units take its rows by token: the first block of a unit with a lookup
  bool frozen = false;              // not trained: no unit has a gradient for it, and its weight is all of its state
  bool of_adapter = false;          // its tensors are in an adapter's files, not in the model's
};
// Elements of a block are multiples of this, so that every array of a block, at two bytes an element or more, is a multiple of
// kExtentAlignment.
inline constexpr std::int64_t kBlockElements = 2048;
// Pieces start at multiples of this, so that rows of a matrix are aligned for the widest vectors.
inline constexpr std::int64_t kPieceAlignment = 64;

// An activation, or the gradient of one. One instance exists per micro-batch.
struct Value {
  std::string name;
  Bytes bytes = 0;     // of one micro-batch
  bool lasts = false;  // from one pass to the next: a key-value cache
};

enum class Access : std::uint8_t { read, write, update };  // write: every byte that is read later is written

struct ValueUse {
  int value = -1;
  Access access = Access::read;
};

// The cost of a unit's pass on the compute lane, in terms that a machine profile has rates for.
struct Work {
  double gemm_flops = 0;       // matrix products by the library
  double attention_flops = 0;  // causal pairs only
  double bytes = 0;            // moved by passes over memory that are not matrix products
  double repeated_flops = 0;   // the part of gemm_flops that the unit's forward has computed before
  double gemm_rows = 0;        // rows of the products where they are not the micro-batch's (an expert's share), else 0
  Work& operator+=(const Work& other) {
    gemm_flops += other.gemm_flops, attention_flops += other.attention_flops, bytes += other.bytes,
        repeated_flops += other.repeated_flops;
    if (other.gemm_rows > 0) gemm_rows = other.gemm_rows;
    return *this;
  }
};

// The work of so many micro-batches.
constexpr Work scaled(Work work, int micro_batches) {
  for (double* of : {&work.gemm_flops, &work.attention_flops, &work.bytes, &work.repeated_flops}) *of *= micro_batches;
  return work;
}

enum class ForwardRole : std::uint8_t {
  computes,              // runs in the forward
  merged_into_backward,  // nothing to do in the forward: backward computes loss and gradient at once
};

// The losses of a mixture's routers, which are added to the loss times their coefficients; 0: the model has no such loss.
struct RouterLosses {
  double balance = 0, z = 0;
  bool any() const { return balance > 0 || z > 0; }
};

// A slice of the model that is fetched and run as one. Units run in order forward, in reverse order backward.
struct Unit {
  std::string name;
  std::vector<int> blocks;           // parameters that both passes read
  std::vector<int> gradient_blocks;  // blocks whose gradient the backward adds to (one sum a unit and block)
  std::vector<ValueUse> forward;     // in the order in which the unit's kernels come to them
  std::vector<ValueUse> backward;
  Work forward_work, backward_work;
  Bytes forward_workspace = 0, backward_workspace = 0;  // scratch during the call, libraries' needs included
  ForwardRole role = ForwardRole::computes;
  // Values that the unit's forward writes for nobody but its own backward. Where the planner recomputes a unit, its backward
  // begins with its forward, which writes these alone (other written values are passed as null).
  std::vector<int> saved;
  // Above 0: bytes of a piece. Where the saved values are not kept, no forward runs again, but the backward makes them itself, a
  // piece at a time; both passes are given room for a piece.
  Bytes saved_piece = 0;
  bool looks_up = false;  // the forward takes rows of the first block by token, the backward does not read that block
  bool saves(int value) const { return std::find(saved.begin(), saved.end(), value) != saved.end(); }
  // False below the lowest block that is trained, where no gradient is wanted: the unit has no operations in the backward.
  bool goes_back() const { return !backward.empty() || role == ForwardRole::merged_into_backward; }
};

struct UnitGraph {
  std::vector<ParameterBlock> blocks;
  std::vector<Value> values;
  std::vector<Unit> units;
  DType dtype = DType::bfloat16;        // of weights and activations
  std::int64_t rows = 0;                // n
  std::int64_t parameters = 0;          // stored elements, tied ones once, without padding
  std::int64_t trained_parameters = 0;  // those of them that are not frozen
  std::int64_t active_parameters = 0;   // the parameters that a token goes through
  int tensors = 0;                      // number of distinct tensor_index
  bool has_experts = false;             // some units route their rows
  RouterLosses router_losses;
  bool has_documents = false;  // sequences are packs: there is a TokenArray::documents
  Bytes logits_bytes = 0;      // of one row over the whole vocabulary, fp32
  Bytes constant_bytes = 0;    // numbers that units read and no step changes
};

// The arrays of a micro-batch, int32 [n] each, in this order: tokens, targets (-100 where there is no loss) and, where sequences
// are packs, where each row's document begins in its sequence.
enum class TokenArray : std::uint8_t { tokens, targets, documents };
inline int token_arrays(const UnitGraph& graph) { return graph.has_documents ? 3 : 2; }
inline Bytes token_array_bytes(const UnitGraph& graph) { return graph.rows * static_cast<Bytes>(sizeof(std::int32_t)); }
inline Bytes token_bytes(const UnitGraph& graph) { return token_arrays(graph) * token_array_bytes(graph); }

}  // namespace spillway
