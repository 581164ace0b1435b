// How a matrix product is cut into tasks: by its shape alone, so that the bits never depend on the number of threads.
// Not here: the products themselves (gemm.cpp).
#pragma once

#include <cstdint>

#include "models/ops.h"

namespace spillway::ops {

struct GemmSlices {
  std::int64_t rows = 0;     // of C a task; the last one may be shorter
  std::int64_t columns = 0;  // of C a task
  std::int64_t depth = 0;    // of the sum a product of a task; further products of the task add
  std::int64_t row_tasks = 0;
  std::int64_t column_tasks = 0;
};

// Who multiplies: our bf16 kernels; the library in the spec's input type; the library in fp32, bf16 blocks widened first; our
// product of a single row, which only reads B.
enum class Arithmetic : std::uint8_t { own, library, widened, row };
GemmSlices cut_gemm(const GemmSpec& spec, Arithmetic arithmetic);

}  // namespace spillway::ops
