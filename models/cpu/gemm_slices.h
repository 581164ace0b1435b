// How a matrix product is cut into tasks, by its shape alone, so that the bits never depend on the number of threads; and the
// scratch that this takes.
// Not here: the products themselves (gemm.cpp).
#pragma once

#include <cstdint>

#include "models/cpu/ops.h"

namespace spillway::ops {

struct GemmSlices {
  std::int64_t rows = 0;     // of C a task; the last one may be shorter
  std::int64_t columns = 0;  // of C a task
  std::int64_t depth = 0;    // of the sum a product of a task; further products of the task add
  std::int64_t row_tasks = 0;
  std::int64_t column_tasks = 0;
  bool are_dense = false;  // the library is given no windows of wider matrices
};

// Who multiplies: our bf16 kernels; the library in the spec's input type; the library in fp32, bf16 blocks widened first; our
// product of a single row, which only reads B.
enum class Arithmetic : std::uint8_t { own, library, widened, row };
Arithmetic arithmetic_of(const GemmSpec& spec, Instructions instructions);
// Dense slices of bf16, or, where that is asked, of all that the library multiplies as it is.
GemmSlices cut_gemm(const GemmSpec& spec, Arithmetic arithmetic, DenseSlices dense = DenseSlices::where_better);

// Plain fp32 sums gather in C itself.
inline bool sums_in_c(const GemmSpec& spec) { return spec.output == DType::float32 && !spec.has_bias && !spec.has_residual; }

// Scratch of a worker: [turned A | widened or dense A | packed, widened or dense B | fp32 or dense C | dense residual | the
// library's]; after those of all workers, what is made once for all tasks: a packed B, or a single row of A widened.
struct GemmRoom {
  std::int64_t turned_ld = 0;
  Bytes turned_bytes = 0, a_bytes = 0, b_bytes = 0, c_bytes = 0, residual_bytes = 0;
  Bytes shared_bytes = 0;
  Bytes worker_bytes() const { return turned_bytes + a_bytes + b_bytes + c_bytes + residual_bytes; }
};
GemmRoom room_of(const GemmSpec& spec, const GemmSlices& slices, Arithmetic arithmetic);

}  // namespace spillway::ops
