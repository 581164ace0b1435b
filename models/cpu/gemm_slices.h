// Cuts a matrix product into tasks by its shape alone, so that the bits never depend on the number of threads, and gives the
// scratch that they take.
// Not here: the products themselves (gemm.cpp).
#pragma once

#include <cstdint>

#include "models/cpu/ops.h"

namespace spillway::ops {

struct GemmSlices {
  std::int64_t rows = 0;     // rows of C per task; the last task may have fewer
  std::int64_t columns = 0;  // columns of C per task
  std::int64_t depth = 0;    // terms of the sum per product of a task; the task's further products add
  std::int64_t row_tasks = 0;
  std::int64_t column_tasks = 0;
  bool are_dense = false;  // the library is given no windows of wider matrices
};

// How a product is computed. own: by our bf16 kernels. library: by the library in the spec's input type. widened: by the library
// in fp32, with bf16 blocks widened first. row: by our product of a single row, which only reads B.
enum class Arithmetic : std::uint8_t { own, library, widened, row };
Arithmetic arithmetic_of(const GemmSpec& spec, Instructions instructions);
// Dense slices of bf16, or, where that is asked, of all that the library multiplies as it is.
GemmSlices cut_gemm(const GemmSpec& spec, Arithmetic arithmetic, DenseSlices dense = DenseSlices::where_better);

// True where C is plain fp32, so that the sums gather in C itself.
inline bool sums_in_c(const GemmSpec& spec) { return spec.output == DType::float32 && !spec.has_bias && !spec.has_residual; }

// Scratch of a worker: [turned A | widened or dense A | packed, widened or dense B | fp32 or dense C | dense residual | the
// library's]. Behind the scratch of all workers lies what is made once for all tasks: a packed B, or a single row of A widened.
struct GemmRoom {
  std::int64_t turned_ld = 0;
  Bytes turned_bytes = 0, a_bytes = 0, b_bytes = 0, c_bytes = 0, residual_bytes = 0;
  Bytes shared_bytes = 0;
  Bytes worker_bytes() const { return turned_bytes + a_bytes + b_bytes + c_bytes + residual_bytes; }
};
GemmRoom room_of(const GemmSpec& spec, const GemmSlices& slices, Arithmetic arithmetic);

}  // namespace spillway::ops
