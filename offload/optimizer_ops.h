// The operations of the update lane: gradients are finished, their norm is taken, state is updated.
// Not here: AdamW's arithmetic (host_adamw.h), when they run (executor.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "memory/bfloat16.h"
#include "memory/parallel.h"
#include "memory/plan.h"
#include "offload/bound_program.h"
#include "offload/fetched_rows.h"
#include "offload/touched_rows.h"
#include "offload/update_hashes.h"

namespace spillway {

struct UpdateSettings {
  std::int64_t step = 1;  // Adam's t
  double lr = 0, beta1 = 0, beta2 = 0, epsilon = 0, weight_decay = 0;
  double gradient_scale = 1;  // the clip factor
  std::uint64_t seed = 0;
};

class OptimizerOps {
 public:
  OptimizerOps(const UnitGraph& graph, StateForm form, int threads);

  // first += second, over the pieces of the block.
  void add_gradients(const BoundOp& op) const;
  // Sums of squares of the block's pieces into `sums` [pieces of all blocks]; in compact form the gradient is rounded to bf16
  // first, and the sums are those of the rounded one. False where a sum is not finite.
  bool finish_gradient(const BoundOp& op, double* sums);
  // sqrt of the sum over tensors, in the model's canonical order, of the sums of their pieces in the order of blocks.
  double norm(const double* sums);
  // Of a range of a block: `apart` rows by their own gradients, or left as they are where these follow. With hashes of the state
  // where it is durable: they have begun.
  void update(const BoundOp& op, const UpdateSettings& settings, const TouchedRows& apart, UpdateHashes* hashes = nullptr) const;
  // Where squares_with_update(). A block's updates come in order, none of another block between them; the last leaves what
  // finish_gradient() does. False where a sum is not finite.
  bool square_and_update(const BoundOp& op, const UpdateSettings& settings, double* sums);

  // Addresses of the first of some elements; `weight` is where its update goes, the other arrays are updated in
  // place. No gradient is one of zeros.
  struct Elements {
    std::array<std::byte*, kStateKinds> state{};
    const std::byte* gradient = nullptr;
    std::byte* weight = nullptr;
  };
  // AdamW on elements [begin, begin + count) of a piece of a block, a row or kAdamWChunk at most, by the calling thread.
  void step(const UpdateSettings& settings, int block, std::int64_t begin, std::int64_t count, const Elements& at) const;

  // sums[row] of squares of the gradient [rows, columns]; in compact form of its rounding, which goes to `rounded`.
  void square_rows(std::int64_t rows, std::int64_t columns, const float* gradient, BFloat16* rounded, double* sums) const;

  const ThreadPool& pool() const { return pool_; }
  int first_piece(int block) const {
    return first_piece_[static_cast<std::size_t>(block)];
  }  // its place among all blocks' pieces

 private:
  // Chunks of a piece whose squares one task sums.
  struct SquareTask {
    std::int64_t begin = 0, end = 0, chunk = 0;  // elements of the block, of a chunk
    std::int64_t first_sum = 0;                  // the first chunk's, among those of the block
  };
  std::vector<SquareTask> square_tasks_of(const ParameterBlock& block) const;
  void square_and_update(const BoundOp& op, const UpdateSettings& settings, const SquareTask& task, std::int64_t until);

  void update_elements(const BoundOp& op, const UpdateSettings& settings, const TouchedRows& apart, std::int64_t first,
                       std::int64_t last) const;
  // Of the gradient, or in compact form of its rounding, which goes to `rounded`.
  double sum_of_squares(int block, const TensorPiece& piece, const float* gradient, BFloat16* rounded);

  const UnitGraph& graph_;
  const FetchedRows rows_;
  const StateForm form_;
  // The lane's own: pieces of work here are short and moves of state wait for them, so they do not queue behind a matrix product.
  const ThreadPool pool_;
  std::vector<int> first_piece_;     // [blocks + 1]
  std::vector<std::vector<SquareTask>> square_tasks_;  // [blocks]; by ascending `begin`
  std::vector<double> chunk_sums_;   // of the block that is updated: [chunks]
  std::vector<double> tensor_sums_;  // [tensors]
  std::vector<std::byte> scratch_;   // partial sums of the largest piece
  std::vector<std::byte> zeros_;     // gradients of as many elements as step() is ever given
};

}  // namespace spillway
