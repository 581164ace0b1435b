#include "models/cpu/gemm_slices.h"

#include <algorithm>

namespace spillway::ops {
namespace {

constexpr std::int64_t kGrain = 16;  // rows and columns of the library's inner kernels

// About `wanted` long, equal parts but for the last.
std::int64_t part(std::int64_t length, std::int64_t wanted) {
  const std::int64_t parts = std::max<std::int64_t>(1, (length + wanted - 1) / wanted);
  const std::int64_t even = (length + parts - 1) / parts;
  return std::min(length, (even + kGrain - 1) / kGrain * kGrain);
}

}  // namespace

// Measured with one thread a slice, bf16, AVX-512 (tools/bench/gemm_bench.cpp). B is packed again for every row slice: 256 rows
// hide that where there are thousands, but at 512 rows in all one slice beats two by 5 %. So columns are cut where rows alone
// give too few tasks. A transposed A is turned once a task, so there only rows are cut: 96 to 256 of them. Sums of more than
// 4096 terms into fp32 gain 5 % from parts that the second cache holds.
GemmSlices cut_gemm(const GemmSpec& spec, Arithmetic arithmetic) {
  constexpr std::int64_t kTasks = 8;  // enough to balance 2 to 8 threads
  GemmSlices slices;
  slices.rows = part(spec.m, spec.m >= 256 * kTasks ? 256 : 512);
  slices.columns = spec.n;
  slices.depth = spec.k;
  const bool plain_float = spec.output == DType::float32 && !spec.has_bias && !spec.has_residual;
  if (plain_float && spec.k > 4096) slices.depth = part(spec.k, 2048);
  if (spec.transpose_a == Transpose::yes) {
    const std::int64_t by_balance = std::max<std::int64_t>(96, spec.m / kTasks);
    slices.rows = part(spec.m, std::min<std::int64_t>(256, by_balance));
  }
  slices.row_tasks = (spec.m + slices.rows - 1) / slices.rows;
  if (slices.row_tasks < kTasks && spec.transpose_a == Transpose::no) {
    const std::int64_t wanted = (kTasks + slices.row_tasks - 1) / slices.row_tasks;
    slices.columns = part(spec.n, std::max<std::int64_t>(192, spec.n / wanted));
  }
  if (arithmetic == Arithmetic::converted) {
    slices.columns = part(spec.n, 512);
    slices.depth = part(spec.k, 1024);
  }
  slices.column_tasks = (spec.n + slices.columns - 1) / slices.columns;
  return slices;
}

}  // namespace spillway::ops
