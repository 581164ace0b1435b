#include "models/cpu/gemm_slices.h"

#include <algorithm>

#include "memory/base/error.h"
#include "models/cpu/gemm_bf16.h"

namespace spillway::ops {
namespace {

constexpr Bytes kLine = 64;
constexpr std::int64_t kGrain = 16;  // rows and columns of the library's inner kernels

// The length of parts that are about `wanted` long, equal but for the last.
std::int64_t part(std::int64_t length, std::int64_t wanted) {
  const std::int64_t parts = std::max<std::int64_t>(1, (length + wanted - 1) / wanted);
  const std::int64_t even = (length + parts - 1) / parts;
  return std::min(length, (even + kGrain - 1) / kGrain * kGrain);
}

// Our kernels take six rows and 64 columns at a time. The columns of packed B that a task has stay in the second cache with a
// part of the depth: 64 columns by 2048, 128 or 192 by 1024. Up to 1024 rows share a packing, which costs 4 % there. If that
// makes few tasks of many rows, their number is made even by packing more often: two threads take as long for nine tasks as for
// ten. With a transposed A, B is packed once for all tasks, and each task turns its rows of A: enough rows to use what it brings
// into the second cache, and an even number of tasks.
void cut_own(const GemmSpec& spec, GemmSlices& slices) {
  constexpr std::int64_t kTasks = 16, kStrip = 6;
  if (spec.transpose_a == Transpose::yes) {
    const std::int64_t wanted = std::clamp<std::int64_t>(spec.m / 8, 96, 192);
    std::int64_t parts = (spec.m + wanted - 1) / wanted;
    if (parts > 1) parts += parts % 2;
    slices.rows = std::min(spec.m, ((spec.m + parts - 1) / parts + kStrip - 1) / kStrip * kStrip);
    slices.columns = spec.n;
    slices.depth = part(spec.k, 1024);
    return;
  }
  slices.rows = part(spec.m, 1024);
  const std::int64_t row_tasks = (spec.m + slices.rows - 1) / slices.rows;
  slices.columns = 64;
  for (const std::int64_t wider : {128, 192}) {
    if (spec.n % wider == 0 && row_tasks * (spec.n / wider) >= kTasks) slices.columns = wider;
  }
  slices.depth = part(spec.k, slices.columns == 64 ? 2048 : 1024);
  const std::int64_t tasks = row_tasks * ((spec.n + slices.columns - 1) / slices.columns);
  if (tasks < kTasks && tasks % 2 != 0 && spec.m >= 512) slices.rows = part(spec.m, (spec.m / row_tasks + 1) / 2);
}

// B is packed again for every slice of rows: 256 rows hide that where there are thousands of rows, but at 512 rows in all one
// slice beats two by 5 %. So columns are cut where rows alone give too few tasks, into an even number of tasks: two threads take
// as long for three tasks as for four. A transposed A is turned once per task, so only its rows are cut: 96 to 256 of them per
// task. Sums of more than 4096 terms into fp32 gain 5 % from parts of the depth that the second cache holds. Dense slices have
// all of the depth: a part of it would be a window of A.
void cut_library(const GemmSpec& spec, GemmSlices& slices) {
  constexpr std::int64_t kTasks = 8;  // enough to balance 2 to 8 threads
  slices.rows = part(spec.m, spec.m >= 256 * kTasks ? 256 : 512);
  slices.columns = spec.n;
  slices.depth = spec.k;
  const bool plain_float = spec.output == DType::float32 && !spec.has_bias && !spec.has_residual;
  if (plain_float && spec.k > 4096 && !slices.are_dense) slices.depth = part(spec.k, 2048);
  if (spec.transpose_a == Transpose::yes) {
    const std::int64_t by_balance = std::max<std::int64_t>(96, spec.m / kTasks);
    slices.rows = part(spec.m, std::min<std::int64_t>(256, by_balance));
    return;
  }
  const std::int64_t row_tasks = (spec.m + slices.rows - 1) / slices.rows;
  if (row_tasks < kTasks) {
    const std::int64_t wanted = (kTasks + row_tasks - 1) / row_tasks;
    std::int64_t parts = std::clamp<std::int64_t>(spec.n / 192, 1, wanted);
    if (parts > 1 && row_tasks * parts % 2 != 0) ++parts;
    slices.columns = part(spec.n, (spec.n + parts - 1) / parts);
  }
}

// About 128 KiB of B per task: enough to hide a task's start, and tasks enough to balance. Columns are whole groups of the
// kernel's four.
void cut_row(const GemmSpec& spec, GemmSlices& slices) {
  constexpr Bytes kTaskBytes = 128 * kKiB;
  slices.rows = 1;
  slices.columns = std::min(spec.n, std::clamp<std::int64_t>(kTaskBytes / (spec.k * size_of(spec.input)), 4, 1024) / 4 * 4);
  slices.depth = spec.k;
}

}  // namespace

// The numbers above were measured with one thread per slice on AVX-512 with tools/bench/gemm_bench.cpp.
GemmSlices cut_gemm(const GemmSpec& spec, Arithmetic arithmetic, DenseSlices dense) {
  GemmSlices slices;
  slices.are_dense = arithmetic == Arithmetic::library && (dense == DenseSlices::always || spec.input == DType::bfloat16);
  if (arithmetic == Arithmetic::own) {
    cut_own(spec, slices);
  } else if (arithmetic == Arithmetic::row) {
    cut_row(spec, slices);
  } else {
    cut_library(spec, slices);
  }
  if (arithmetic == Arithmetic::widened) {
    slices.columns = part(spec.n, 512);
    slices.depth = part(spec.k, 1024);
  }
  slices.row_tasks = (spec.m + slices.rows - 1) / slices.rows;
  slices.column_tasks = (spec.n + slices.columns - 1) / slices.columns;
  return slices;
}

Arithmetic arithmetic_of(const GemmSpec& spec, Instructions instructions) {
  if (spec.m == 1 && spec.transpose_a == Transpose::no && spec.transpose_b == Transpose::yes) return Arithmetic::row;
  if (spec.input != DType::bfloat16) return Arithmetic::library;
  switch (instructions) {
    case Instructions::avx512_bf16:  // its terms come in pairs
      return spec.k % 2 == 0 ? Arithmetic::own : Arithmetic::library;
    case Instructions::amx_bf16: return Arithmetic::library;
    case Instructions::widened: return Arithmetic::widened;
    case Instructions::unknown: SPILLWAY_CHECK(false, "a product of bf16 on a CPU of unknown instructions");
  }
  return Arithmetic::library;
}

namespace {

// An upper bound of the library's scratch for one slice's product: its copies of operands, and fp32 sums that it does not gather
// in a C of bf16. Checked with oneDNN 2.6 over 600 shapes, and 8,700 on a CPU with tiles. For fp32 it is 64 columns of B, a part
// of the depth at a time, and sums of as many columns where they are added to C (AVX-512, 70,000 shapes). For tiles of bf16 (AMX)
// it is half of these for all the depth; if the depth is not whole tiles, also rows of A, and all is padded.
Bytes library_bound(const GemmSpec& spec, const GemmSlices& slices, Arithmetic arithmetic) {
  constexpr std::int64_t columns = 64, depth = 2048, tile_depth = 32, padding = 64;
  if (arithmetic != Arithmetic::library || spec.input == DType::float32) {
    const bool adds = slices.depth < spec.k || (arithmetic == Arithmetic::library && spec.store == Store::add);
    return columns * (round_up(std::min(slices.depth, depth), kGrain) + (adds ? slices.rows : 0)) * 4 + kKiB;
  }
  const bool pads = slices.depth % tile_depth != 0;
  const std::int64_t rows = round_up(slices.rows, pads ? padding : 1), width = round_up(slices.columns, pads ? padding : 1);
  return (columns + (pads ? rows : 0)) * round_up(slices.depth, padding) * 4 + round_up(rows * width * 4, kLine) + 9 * kKiB;
}

}  // namespace

GemmRoom room_of(const GemmSpec& spec, const GemmSlices& slices, Arithmetic arithmetic) {
  GemmRoom room;
  const bool turns = spec.transpose_a == Transpose::yes;
  if (arithmetic == Arithmetic::row) {
    room.c_bytes = round_up(slices.columns * 4, kLine);
    room.shared_bytes = round_up(spec.k * 4, kLine);
    return room;
  }
  if (arithmetic == Arithmetic::own) {
    room.turned_ld = round_up(slices.depth, 32) + 32;
    if (turns) room.turned_bytes = round_up(slices.rows * room.turned_ld * 2, kLine);
    if (turns) room.shared_bytes = packed_bytes(spec.k, spec.n);
    if (!turns) room.b_bytes = packed_bytes(slices.depth, slices.columns);
    if (slices.depth < spec.k && !sums_in_c(spec)) room.c_bytes = round_up(slices.rows * slices.columns * 4, kLine);
    return room;
  }
  if (turns) {
    // Rows a power of two apart would share cache sets.
    room.turned_ld = slices.are_dense ? spec.k : round_up(spec.k, 32) + 32;
    room.turned_bytes = round_up(slices.rows * room.turned_ld * size_of(spec.input), kLine);
  }
  if (slices.are_dense) {
    const Bytes in = size_of(spec.input);
    const auto bytes = [](std::int64_t elements, Bytes each) { return round_up(elements * each, kLine); };
    if (!turns && spec.lda != spec.k) room.a_bytes = bytes(slices.rows * spec.k, in);
    const bool b_is_dense = spec.transpose_b == Transpose::yes ? spec.ldb == spec.k : spec.ldb == slices.columns;
    if (!b_is_dense) room.b_bytes = bytes(slices.columns * spec.k, in);
    if (spec.ldc != slices.columns) room.c_bytes = bytes(slices.rows * slices.columns, size_of(spec.output));
    if (spec.has_residual && spec.ld_residual != slices.columns) room.residual_bytes = bytes(slices.rows * slices.columns, in);
  }
  if (arithmetic == Arithmetic::widened) {
    room.a_bytes = round_up(slices.rows * slices.depth * 4, kLine);
    room.b_bytes = round_up(slices.depth * slices.columns * 4, kLine);
    room.c_bytes = round_up(slices.rows * slices.columns * 4, kLine);
  }
  return room;
}

Bytes gemm_scratch_bound(const GemmSpec& spec, int threads, Instructions instructions) {
  if (instructions == Instructions::unknown) {
    Bytes most = 0;
    for (const Instructions any : {Instructions::widened, Instructions::avx512_bf16, Instructions::amx_bf16})
      most = std::max(most, gemm_scratch_bound(spec, threads, any));
    return most;
  }
  const Arithmetic arithmetic = arithmetic_of(spec, instructions);
  const GemmSlices slices = cut_gemm(spec, arithmetic);
  const GemmRoom room = room_of(spec, slices, arithmetic);
  const bool by_library = arithmetic == Arithmetic::library || arithmetic == Arithmetic::widened;
  return (room.worker_bytes() + (by_library ? library_bound(spec, slices, arithmetic) : 0)) * threads + room.shared_bytes;
}

}  // namespace spillway::ops
