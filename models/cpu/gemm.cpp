// Matrix products, cut into slices that the pool's threads take: by our kernels for bf16 if the CPU has AVX-512 bf16, else by
// oneDNN with one library thread per slice, so that no second pool spins beside ours. A single row has a kernel of its own
// (gemv.h).
#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>
#include <oneapi/dnnl/dnnl.hpp>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <vector>

#include "memory/base/error.h"
#include "models/cpu/gemm_bf16.h"
#include "models/cpu/gemm_slices.h"
#include "models/cpu/gemv.h"
#include "models/cpu/matmul_description.h"
#include "models/cpu/ops.h"
#include "models/cpu/transpose.h"

namespace spillway::ops {
namespace {

constexpr Bytes kLine = 64;

// The library reads the thread count of the thread that calls it. A pool's thread is told once per task, which costs nanoseconds.
void keep_library_single_threaded() { omp_set_num_threads(1); }

float* widen(const BFloat16* x, std::int64_t rows, std::int64_t columns, std::int64_t ld, float* y) {
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t column = 0; column < columns; ++column) y[row * columns + column] = x[row * ld + column].to_float();
  }
  return y;
}

}  // namespace

struct MatmulEngine::Impl {
  // A spec cut into slices and compiled. Scratch of a worker: [turned A | widened A | packed or widened B | fp32 C | library].
  // Behind the scratch of all workers lies what is made once for all tasks: a packed B, or a single row of A widened.
  struct Plan {
    GemmSpec spec;
    GemmSlices slices;
    // [rows: whole, last][columns: whole, last][depth: whole, last][product: first, further]
    std::array<std::unique_ptr<LibraryProduct>, 16> products;
    GemmRoom room;
    Bytes library_bytes = 0;  // per worker
    Arithmetic arithmetic = Arithmetic::library;

    Bytes worker_bytes() const { return room.worker_bytes() + library_bytes; }
    std::unique_ptr<LibraryProduct>& product(bool last_rows, bool last_columns, bool last_depth, bool further) {
      return products[8u * last_rows + 4u * last_columns + 2u * last_depth + (further ? 1u : 0u)];
    }
  };
  struct Task {
    std::int64_t row, rows, column, columns;
    int worker;
    std::byte* scratch;       // of this worker
    const std::byte* shared;  // of all tasks
  };

  Impl(int count, DenseSlices dense_slices) : threads(count), dense(dense_slices), engine(dnnl::engine::kind::cpu, 0) {
    for (int i = 0; i < threads; ++i) streams.emplace_back(engine);
    instructions = choose_instructions(engine);
  }

  Plan* find(const GemmSpec& spec) const {
    const std::shared_lock lock(mutex);
    for (const auto& plan : plans) {
      if (plan->spec == spec) return plan.get();
    }
    return nullptr;
  }
  Plan& obtain(const GemmSpec& spec) {
    if (Plan* plan = find(spec)) return *plan;
    auto made = make_plan(spec, arithmetic_of(spec, instructions));
    const std::unique_lock lock(mutex);
    for (const auto& plan : plans) {
      if (plan->spec == spec) return *plan;
    }
    plans.push_back(std::move(made));
    return *plans.back();
  }

  std::unique_ptr<Plan> make_plan(const GemmSpec& spec, Arithmetic arithmetic) const;
  void run_task(Plan& plan, const GemmOperands& operands, const Task& task);
  void multiply(LibraryProduct& product, int worker, const void* a, const void* b, void* c, const void* bias,
                const void* residual, std::byte* scratchpad);
  void run_library(Plan& plan, const GemmOperands& operands, const Task& task, const std::byte* a, std::byte* library);
  void run_dense(Plan& plan, const GemmOperands& operands, const Task& task, const std::byte* a);
  void run_widened(Plan& plan, const GemmOperands& operands, const Task& task, const BFloat16* a, std::int64_t lda);

  void pack_shared(const ThreadPool& pool, const Plan& plan, const GemmOperands& operands, std::byte* shared) const;
  void run_own(const Plan& plan, const GemmOperands& operands, const Task& task) const;
  void run_row(const Plan& plan, const GemmOperands& operands, const Task& task) const;
  GemmSpec slice_of(const Plan& plan, int index) const;
  void compile_products(Plan& plan) const;

  int threads;
  DenseSlices dense;
  dnnl::engine engine;
  std::vector<dnnl::stream> streams;  // [threads]
  Instructions instructions = Instructions::unknown;
  mutable std::shared_mutex mutex;           // guards `plans`
  std::vector<std::unique_ptr<Plan>> plans;  // never removed: pointers to them stay good
};

std::unique_ptr<MatmulEngine::Impl::Plan> MatmulEngine::Impl::make_plan(const GemmSpec& spec, Arithmetic arithmetic) const {
  SPILLWAY_CHECK(spec.m > 0 && spec.n > 0 && spec.k > 0, "a product of {} x {} x {}", spec.m, spec.n, spec.k);
  SPILLWAY_CHECK(spec.output == spec.input || spec.output == DType::float32, "a product of bf16 goes to bf16 or fp32");
  SPILLWAY_CHECK(spec.scale == 1 || !spec.has_bias, "a scaled product with a bias");
  keep_library_single_threaded();
  auto plan = std::make_unique<Plan>();
  plan->spec = spec;
  plan->arithmetic = arithmetic;
  plan->slices = cut_gemm(spec, plan->arithmetic, dense);
  plan->room = room_of(spec, plan->slices, plan->arithmetic);
  if (plan->arithmetic == Arithmetic::row || plan->arithmetic == Arithmetic::own) return plan;
  compile_products(*plan);
  return plan;
}

// The product of that place among the plan's, as the library is asked for it.
GemmSpec MatmulEngine::Impl::slice_of(const Plan& plan, int index) const {
  const GemmSpec& spec = plan.spec;
  const GemmSlices& slices = plan.slices;
  const bool last_rows = index & 8, last_columns = index & 4, last_depth = index & 2, further = index & 1;
  const auto extent = [](std::int64_t length, std::int64_t slice, bool last) {
    return last ? length - (length - 1) / slice * slice : slice;
  };
  GemmSpec slice = spec;
  slice.m = extent(spec.m, slices.rows, last_rows);
  slice.n = extent(spec.n, slices.columns, last_columns);
  slice.k = extent(spec.k, slices.depth, last_depth);
  slice.transpose_a = Transpose::no;
  if (spec.transpose_a == Transpose::yes) slice.lda = plan.room.turned_ld;
  if (further) slice.store = Store::add;
  if (slices.are_dense) make_dense(slice);
  if (plan.arithmetic == Arithmetic::widened) {
    slice.input = slice.output = DType::float32;
    make_dense(slice);
    slice.store = further ? Store::add : Store::write;
    slice.has_bias = slice.has_residual = false;
    slice.scale = 1;
  }
  return slice;
}

void MatmulEngine::Impl::compile_products(Plan& plan) const {
  const GemmSpec& spec = plan.spec;
  const GemmSlices& slices = plan.slices;
  const std::int64_t depths = (spec.k + slices.depth - 1) / slices.depth;
  for (int index = 0; index < 16; ++index) {
    const bool last_rows = index & 8, last_columns = index & 4, last_depth = index & 2, further = index & 1;
    // Whole slices exist where there is more than the last one; a further product exists where there is more than one.
    if ((!last_rows && slices.row_tasks == 1) || (!last_columns && slices.column_tasks == 1) || (!last_depth && depths == 1))
      continue;
    if ((further && depths == 1) || (last_depth && !further && depths > 1)) continue;
    const GemmSpec slice = slice_of(plan, index);
    SPILLWAY_CHECK(plan.arithmetic == Arithmetic::widened || depths == 1 || sums_in_c(spec),
                   "only plain fp32 sums are cut in depth");
    std::unique_ptr<LibraryProduct>& product = plan.products[static_cast<std::size_t>(index)];
    try {
      product = compile_product(engine, threads, slice);
    } catch (const dnnl::error& error) {
      SPILLWAY_CHECK(false, "oneDNN refuses a product of {} x {} x {} {} to {}: {}", slice.m, slice.n, slice.k,
                     name_of(slice.input), name_of(slice.output), error.what());
    }
    plan.library_bytes = std::max(plan.library_bytes, round_up(product->scratchpad_bytes, kLine));
  }
}

// Packs B in parts of the depth, each by panels; or widens A's only row.
void MatmulEngine::Impl::pack_shared(const ThreadPool& pool, const Plan& plan, const GemmOperands& operands,
                                     std::byte* shared) const {
  constexpr std::int64_t kColumns = 4 * kPanelColumns;
  const GemmSpec& spec = plan.spec;
  if (plan.arithmetic == Arithmetic::row) {
    auto* row = reinterpret_cast<float*>(shared);
    if (spec.input == DType::float32) {
      std::memcpy(row, operands.a, static_cast<std::size_t>(spec.k) * sizeof(float));
    } else {
      widen(static_cast<const BFloat16*>(operands.a), 1, spec.k, spec.k, row);
    }
    return;
  }
  const std::int64_t depth = plan.slices.depth, strips = (spec.n + kColumns - 1) / kColumns;
  const auto* b = static_cast<const BFloat16*>(operands.b);
  pool.parallel_for((spec.k + depth - 1) / depth * strips, [&](std::int64_t task, int) {
    const std::int64_t first = task / strips * depth, column = task % strips * kColumns;
    const std::int64_t length = std::min(depth, spec.k - first);
    std::byte* out = shared + packed_bytes(first, spec.n) + packed_bytes(length, column);
    pack_bf16(length, std::min(kColumns, spec.n - column),
              spec.transpose_b == Transpose::yes ? b + column * spec.ldb + first : b + first * spec.ldb + column, spec.ldb,
              spec.transpose_b, reinterpret_cast<std::uint32_t*>(out));
  });
}

void MatmulEngine::Impl::run_own(const Plan& plan, const GemmOperands& operands, const Task& task) const {
  const GemmSpec& spec = plan.spec;
  const bool turns = spec.transpose_a == Transpose::yes;
  const auto* a = static_cast<const BFloat16*>(operands.a);
  const auto* b = static_cast<const BFloat16*>(operands.b);
  auto* turned = reinterpret_cast<BFloat16*>(task.scratch);
  auto* packed = reinterpret_cast<std::uint32_t*>(task.scratch + plan.room.turned_bytes);
  auto* sums = reinterpret_cast<float*>(task.scratch + plan.room.turned_bytes + plan.room.b_bytes);
  // The number of columns that stay in the second cache beside the rows of A.
  constexpr Bytes kGroupBytes = 256 * kKiB;
  const std::int64_t group =
      turns ? std::max<std::int64_t>(1, kGroupBytes / (2 * plan.slices.depth * kPanelColumns)) * kPanelColumns : task.columns;
  for (std::int64_t depth = 0; depth < spec.k; depth += plan.slices.depth) {
    const std::int64_t length = std::min(plan.slices.depth, spec.k - depth);
    const BFloat16* rows = turns ? turned : a + task.row * spec.lda + depth;
    if (turns) {
      transpose_block(length, task.rows, reinterpret_cast<const std::uint16_t*>(a + depth * spec.lda + task.row), spec.lda,
                      reinterpret_cast<std::uint16_t*>(turned), plan.room.turned_ld);
    } else {
      pack_bf16(length, task.columns,
                spec.transpose_b == Transpose::yes ? b + task.column * spec.ldb + depth : b + depth * spec.ldb + task.column,
                spec.ldb, spec.transpose_b, packed);
    }
    for (std::int64_t column = task.column; column < task.column + task.columns; column += group) {
      const std::int64_t c_at = task.row * spec.ldc + column;
      Bf16Output output;
      output.scale = spec.scale;
      output.starts_from_partial = depth > 0;
      if (sums_in_c(spec)) {
        output.partial = static_cast<float*>(operands.c) + c_at;
        output.ld_partial = spec.ldc;
        output.starts_from_partial = depth > 0 || spec.store == Store::add;
        output.ends_in_partial = true;
      } else {
        output.partial = sums + column - task.column;
        output.ld_partial = task.columns;
        output.ends_in_partial = depth + length < spec.k;
        output.c = operands.c;
        output.c_is_float = spec.output == DType::float32;
        output.c_offset = c_at;
        output.ldc = spec.ldc;
        output.adds_to_c = spec.store == Store::add;
        if (spec.has_bias) output.bias = static_cast<const BFloat16*>(operands.bias) + column;
        if (spec.has_residual) {
          output.residual = static_cast<const BFloat16*>(operands.residual) + task.row * spec.ld_residual + column;
          output.ld_residual = spec.ld_residual;
        }
      }
      const auto* panels =
          turns ? reinterpret_cast<const std::uint32_t*>(task.shared + packed_bytes(depth, spec.n) + packed_bytes(length, column))
                : packed;
      multiply_bf16(task.rows, std::min(group, task.column + task.columns - column), length, rows,
                    turns ? plan.room.turned_ld : spec.lda, panels, output);
    }
  }
}

void MatmulEngine::Impl::multiply(LibraryProduct& product, int worker, const void* a, const void* b, void* c, const void* bias,
                                  const void* residual, std::byte* scratchpad) {
  LibraryProduct::Call& call = product.calls[static_cast<std::size_t>(worker)];
  // The library takes no const pointers, but writes through none but C's and the scratchpad's.
  call.a.set_data_handle(const_cast<void*>(a));
  call.b.set_data_handle(const_cast<void*>(b));
  call.c.set_data_handle(c);
  call.scratchpad.set_data_handle(scratchpad);
  if (call.bias) call.bias.set_data_handle(const_cast<void*>(bias));
  if (call.residual) call.residual.set_data_handle(const_cast<void*>(residual));
  product.primitive.execute(streams[static_cast<std::size_t>(worker)], call.arguments);
}

// One product a task, of operands that are no windows: those that are in the model's matrices are copied.
void MatmulEngine::Impl::run_dense(Plan& plan, const GemmOperands& operands, const Task& task, const std::byte* a) {
  const GemmSpec& spec = plan.spec;
  const GemmSlices& slices = plan.slices;
  const GemmRoom& room = plan.room;
  const Bytes in = size_of(spec.input), out = size_of(spec.output);
  const bool last_rows = task.row + slices.rows >= spec.m, last_columns = task.column + slices.columns >= spec.n;
  std::byte* const dense_a = task.scratch + room.turned_bytes;
  std::byte* const dense_b = dense_a + room.a_bytes;
  std::byte* const dense_c = dense_b + room.b_bytes;
  std::byte* const dense_residual = dense_c + room.c_bytes;
  if (spec.transpose_a == Transpose::no && spec.lda != spec.k) {
    copy_rows(task.rows, spec.k * in, a, spec.lda * in, dense_a, spec.k * in);
    a = dense_a;
  }
  const bool turned_b = spec.transpose_b == Transpose::yes;
  const std::byte* b = static_cast<const std::byte*>(operands.b) + (turned_b ? task.column * spec.ldb : task.column) * in;
  if (spec.ldb != (turned_b ? spec.k : task.columns)) {
    const std::int64_t rows = turned_b ? task.columns : spec.k, width = turned_b ? spec.k : task.columns;
    copy_rows(rows, width * in, b, spec.ldb * in, dense_b, width * in);
    b = dense_b;
  }
  std::byte* const c = static_cast<std::byte*>(operands.c) + (task.row * spec.ldc + task.column) * out;
  const bool c_is_window = spec.ldc != task.columns;
  if (c_is_window && spec.store == Store::add)
    copy_rows(task.rows, task.columns * out, c, spec.ldc * out, dense_c, task.columns * out);
  const std::byte* residual = nullptr;
  if (spec.has_residual) {
    residual = static_cast<const std::byte*>(operands.residual) + (task.row * spec.ld_residual + task.column) * in;
    if (spec.ld_residual != task.columns) {
      copy_rows(task.rows, task.columns * in, residual, spec.ld_residual * in, dense_residual, task.columns * in);
      residual = dense_residual;
    }
  }
  multiply(*plan.product(last_rows, last_columns, true, false), task.worker, a, b, c_is_window ? dense_c : c,
           spec.has_bias ? static_cast<const std::byte*>(operands.bias) + task.column * in : nullptr, residual,
           task.scratch + room.worker_bytes());
  if (c_is_window) copy_rows(task.rows, task.columns * out, dense_c, task.columns * out, c, spec.ldc * out);
}

void MatmulEngine::Impl::run_library(Plan& plan, const GemmOperands& operands, const Task& task, const std::byte* a,
                                     std::byte* library) {
  const GemmSpec& spec = plan.spec;
  const GemmSlices& slices = plan.slices;
  const Bytes in = size_of(spec.input), out = size_of(spec.output);
  const bool last_rows = task.row + slices.rows >= spec.m, last_columns = task.column + slices.columns >= spec.n;
  const auto* b = static_cast<const std::byte*>(operands.b);
  for (std::int64_t depth = 0; depth < spec.k; depth += slices.depth) {
    LibraryProduct& product = *plan.product(last_rows, last_columns, depth + slices.depth >= spec.k, depth > 0);
    const std::int64_t b_at =
        spec.transpose_b == Transpose::yes ? task.column * spec.ldb + depth : depth * spec.ldb + task.column;
    multiply(product, task.worker, a + depth * in, b + b_at * in,
             static_cast<std::byte*>(operands.c) + (task.row * spec.ldc + task.column) * out,
             spec.has_bias ? static_cast<const std::byte*>(operands.bias) + task.column * in : nullptr,
             spec.has_residual
                 ? static_cast<const std::byte*>(operands.residual) + (task.row * spec.ld_residual + task.column) * in
                 : nullptr,
             library);
  }
}

void MatmulEngine::Impl::run_widened(Plan& plan, const GemmOperands& operands, const Task& task, const BFloat16* a,
                                     std::int64_t lda) {
  const GemmSpec& spec = plan.spec;
  const GemmSlices& slices = plan.slices;
  const bool last_rows = task.row + slices.rows >= spec.m, last_columns = task.column + slices.columns >= spec.n;
  std::byte* at = task.scratch + plan.room.turned_bytes;
  auto* wide_a = reinterpret_cast<float*>(at);
  auto* wide_b = reinterpret_cast<float*>(at + plan.room.a_bytes);
  auto* sum = reinterpret_cast<float*>(at + plan.room.a_bytes + plan.room.b_bytes);
  std::byte* library = at + plan.room.a_bytes + plan.room.b_bytes + plan.room.c_bytes;
  const auto* b = static_cast<const BFloat16*>(operands.b);
  for (std::int64_t depth = 0; depth < spec.k; depth += slices.depth) {
    const std::int64_t length = std::min(slices.depth, spec.k - depth);
    widen(a + depth, task.rows, length, lda, wide_a);
    if (spec.transpose_b == Transpose::yes) {
      widen(b + task.column * spec.ldb + depth, task.columns, length, spec.ldb, wide_b);
    } else {
      widen(b + depth * spec.ldb + task.column, length, task.columns, spec.ldb, wide_b);
    }
    LibraryProduct& product = *plan.product(last_rows, last_columns, depth + slices.depth >= spec.k, depth > 0);
    multiply(product, task.worker, wide_a, wide_b, sum, nullptr, nullptr, library);
  }
  const auto* bias = static_cast<const BFloat16*>(operands.bias);
  const auto* residual = static_cast<const BFloat16*>(operands.residual);
  for (std::int64_t row = 0; row < task.rows; ++row) {
    float* line = sum + row * task.columns;
    for (std::int64_t i = 0; spec.scale != 1 && i < task.columns; ++i) line[i] *= spec.scale;
    const std::int64_t c_at = (task.row + row) * spec.ldc + task.column;
    for (std::int64_t i = 0; spec.has_bias && i < task.columns; ++i) line[i] += bias[task.column + i].to_float();
    if (spec.has_residual) {
      const BFloat16* other = residual + (task.row + row) * spec.ld_residual + task.column;
      for (std::int64_t i = 0; i < task.columns; ++i) line[i] += other[i].to_float();
    }
    if (spec.output == DType::float32) {
      float* c = static_cast<float*>(operands.c) + c_at;
      for (std::int64_t i = 0; i < task.columns; ++i) c[i] = spec.store == Store::add ? c[i] + line[i] : line[i];
    } else {
      BFloat16* c = static_cast<BFloat16*>(operands.c) + c_at;
      for (std::int64_t i = 0; i < task.columns; ++i) {
        c[i] = BFloat16::from_float(spec.store == Store::add ? c[i].to_float() + line[i] : line[i]);
      }
    }
  }
}

namespace {

// Adds the spec's terms to the columns' sums and rounds them into C.
template <typename E>
void finish_row(const GemmSpec& spec, const GemmOperands& operands, std::int64_t first, std::int64_t columns, float* sums) {
  const auto* bias = static_cast<const E*>(operands.bias);
  const auto* residual = static_cast<const E*>(operands.residual);
  for (std::int64_t i = 0; spec.scale != 1 && i < columns; ++i) sums[i] *= spec.scale;
  for (std::int64_t i = 0; spec.has_bias && i < columns; ++i) sums[i] += to_float(bias[first + i]);
  for (std::int64_t i = 0; spec.has_residual && i < columns; ++i) sums[i] += to_float(residual[first + i]);
  if (spec.output == DType::float32) {
    auto* c = static_cast<float*>(operands.c) + first;
    for (std::int64_t i = 0; i < columns; ++i) c[i] = spec.store == Store::add ? c[i] + sums[i] : sums[i];
  } else {
    auto* c = static_cast<BFloat16*>(operands.c) + first;
    for (std::int64_t i = 0; i < columns; ++i) {
      c[i] = BFloat16::from_float(spec.store == Store::add ? c[i].to_float() + sums[i] : sums[i]);
    }
  }
}

}  // namespace

void MatmulEngine::Impl::run_row(const Plan& plan, const GemmOperands& operands, const Task& task) const {
  const GemmSpec& spec = plan.spec;
  const auto* x = reinterpret_cast<const float*>(task.shared);
  auto* sums = reinterpret_cast<float*>(task.scratch);
  const auto multiply = [&]<typename E>(const E* b) {
    multiply_row(task.columns, spec.k, x, b + task.column * spec.ldb, spec.ldb, sums);
    finish_row<E>(spec, operands, task.column, task.columns, sums);
  };
  if (spec.input == DType::float32) {
    multiply(static_cast<const float*>(operands.b));
  } else {
    multiply(static_cast<const BFloat16*>(operands.b));
  }
}

void MatmulEngine::Impl::run_task(Plan& plan, const GemmOperands& operands, const Task& task) {
  if (plan.arithmetic == Arithmetic::own) return run_own(plan, operands, task);
  if (plan.arithmetic == Arithmetic::row) return run_row(plan, operands, task);
  const GemmSpec& spec = plan.spec;
  const Bytes size = size_of(spec.input);
  const auto* a = static_cast<const std::byte*>(operands.a);
  std::int64_t lda = spec.lda;
  if (spec.transpose_a == Transpose::yes) {
    a += task.row * size;
    if (spec.input == DType::float32) {
      transpose_block(spec.k, task.rows, reinterpret_cast<const std::uint32_t*>(a), lda,
                      reinterpret_cast<std::uint32_t*>(task.scratch), plan.room.turned_ld);
    } else {
      transpose_block(spec.k, task.rows, reinterpret_cast<const std::uint16_t*>(a), lda,
                      reinterpret_cast<std::uint16_t*>(task.scratch), plan.room.turned_ld);
    }
    a = task.scratch;
    lda = plan.room.turned_ld;
  } else {
    a += task.row * lda * size;
  }
  if (plan.slices.are_dense) {
    run_dense(plan, operands, task, a);
  } else if (plan.arithmetic == Arithmetic::library) {
    run_library(plan, operands, task, a, task.scratch + plan.room.turned_bytes);
  } else {
    run_widened(plan, operands, task, reinterpret_cast<const BFloat16*>(a), lda);
  }
}

Instructions instructions_here() { return choose_instructions(dnnl::engine(dnnl::engine::kind::cpu, 0)); }

MatmulEngine::MatmulEngine(int threads, DenseSlices dense) : impl_(std::make_unique<Impl>(threads, dense)) {}
MatmulEngine::~MatmulEngine() = default;

Bytes MatmulEngine::scratch_bytes(const GemmSpec& spec) {
  const Impl::Plan& plan = impl_->obtain(spec);
  return plan.worker_bytes() * impl_->threads + plan.room.shared_bytes;
}

std::vector<ServedProduct> MatmulEngine::served_by(const GemmSpec& spec, Multiplies by) {
  const bool by_library = by == Multiplies::library;
  const auto own = by_library ? impl_->make_plan(spec, Arithmetic::library) : nullptr;
  const Impl::Plan& plan = by_library ? *own : impl_->obtain(spec);
  if (plan.arithmetic == Arithmetic::own) return {{"spillway:avx512_bf16", "spillway:avx512_bf16"}};
  if (plan.arithmetic == Arithmetic::row) return {{"spillway:row", "spillway:row"}};
  std::vector<ServedProduct> served;
  for (std::size_t i = 0; i < plan.products.size(); ++i) {
    if (!plan.products[i]) continue;
    // The same, if no operand were a window.
    GemmSpec slice = impl_->slice_of(plan, static_cast<int>(i));
    make_dense(slice);
    served.push_back({plan.products[i]->implementation, compile_product(impl_->engine, 1, slice)->implementation});
  }
  return served;
}

void MatmulEngine::run(const ThreadPool& pool, const GemmSpec& spec, const GemmOperands& operands, std::byte* scratch) {
  Impl::Plan& plan = impl_->obtain(spec);
  SPILLWAY_CHECK(pool.threads() <= impl_->threads, "a pool of {} threads for an engine of {}", pool.threads(), impl_->threads);
  const GemmSlices& slices = plan.slices;
  std::byte* shared = scratch + plan.worker_bytes() * impl_->threads;
  if (plan.room.shared_bytes > 0) impl_->pack_shared(pool, plan, operands, shared);
  pool.parallel_for(slices.row_tasks * slices.column_tasks, [&](std::int64_t index, int worker) {
    keep_library_single_threaded();
    Impl::Task task;
    // Columns are inner, so that tasks next to each other in time share the rows of A.
    task.row = index / slices.column_tasks * slices.rows;
    task.column = index % slices.column_tasks * slices.columns;
    task.rows = std::min(slices.rows, spec.m - task.row);
    task.columns = std::min(slices.columns, spec.n - task.column);
    task.worker = worker;
    task.scratch = scratch + worker * plan.worker_bytes();
    task.shared = shared;
    impl_->run_task(plan, operands, task);
  });
}

}  // namespace spillway::ops
