#include <thread>

#include "models/build.h"
#include "models/catalogue/catalogue.h"
#include "models/cpu/cpu_backend.h"
#include "tests/models/kernel_testing.h"

namespace spillway::testing {
namespace {

using ops::Epilogue;
using ops::GemmSpec;
using ops::MatmulEngine;
using ops::Store;
using ops::Transpose;

template <typename E>
constexpr DType dtype_of() {
  return sizeof(E) == 2 ? DType::bfloat16 : DType::float32;
}

// Operands of one product, and its value in double.
template <typename E, typename C>
struct Problem {
  explicit Problem(const GemmSpec& of) : spec(of) {
    const auto rows = [](Transpose t, std::int64_t plain, std::int64_t turned) { return t == Transpose::yes ? turned : plain; };
    a = random_vector<E>(rows(spec.transpose_a, spec.m, spec.k) * spec.lda, 1);
    b = random_vector<E>(rows(spec.transpose_b, spec.k, spec.n) * spec.ldb, 2);
    before = random_vector<C>(spec.m * spec.ldc, 3);
    bias = random_vector<E>(spec.n, 4);
    residual = random_vector<E>(spec.m * std::max<std::int64_t>(spec.ld_residual, 1), 5);
    expected = widened(before);
    const auto wide_a = widened(a), wide_b = widened(b);
    for (std::int64_t i = 0; i < spec.m; ++i) {
      for (std::int64_t j = 0; j < spec.n; ++j) {
        double sum = spec.store == Store::add ? at(expected, i * spec.ldc + j) : 0.0;
        for (std::int64_t l = 0; l < spec.k; ++l) {
          sum += at(wide_a, spec.transpose_a == Transpose::yes ? l * spec.lda + i : i * spec.lda + l) *
                 at(wide_b, spec.transpose_b == Transpose::yes ? j * spec.ldb + l : l * spec.ldb + j);
        }
        if (spec.has_bias) sum += static_cast<double>(to_float(at(bias, j)));
        if (spec.has_residual) sum += static_cast<double>(to_float(at(residual, i * spec.ld_residual + j)));
        expected[static_cast<std::size_t>(i * spec.ldc + j)] = sum;
      }
    }
  }

  std::vector<C> run(MatmulEngine& engine, int threads) const {
    const ThreadPool pool(threads);
    Scratch scratch(engine.scratch_bytes(spec));
    std::vector<C> c = before;
    engine.run(pool, spec, {a.data(), b.data(), c.data(), bias.data(), residual.data()}, scratch.data());
    return c;
  }
  // C rounds the result once; before that each of k additions of terms of size 1 rounds a partial sum of size sqrt(k).
  double relative() const { return epsilon_of<C>() + epsilon_of<float>() * std::sqrt(static_cast<double>(spec.k)); }
  double absolute() const { return epsilon_of<float>() * static_cast<double>(spec.k + 16); }

  template <typename V>
  static const auto& at(const V& values, std::int64_t index) {
    return values[static_cast<std::size_t>(index)];
  }

  GemmSpec spec;
  std::vector<E> a, b, bias, residual;
  std::vector<C> before;
  std::vector<double> expected;
};

template <typename E, typename C>
void check(const GemmSpec& spec) {
  SCOPED_TRACE(::testing::Message() << spec.m << " x " << spec.n << " x " << spec.k);
  MatmulEngine engine(3);
  const Problem<E, C> problem(spec);
  const auto first = problem.run(engine, 1);
  expect_close(first, problem.expected, problem.relative(), problem.absolute(), "C");
  for (const int threads : kPools) expect_same_bits(problem.run(engine, threads), first, "C");
}

template <typename E>
class GemmTest : public KernelTest<E> {};
TYPED_TEST_SUITE(GemmTest, ComputeTypes);

struct Linear {
  std::int64_t n, in, out;
};
constexpr Linear kLinears[] = {{1, 48, 130},   {7, 130, 48},  {96, 48, 256}, {96, 256, 130},
                               {300, 72, 520}, {520, 40, 24}, {530, 24, 576}};

TYPED_TEST(GemmTest, Forward) {
  for (const auto& [n, in, out] : kLinears) {
    for (const Epilogue epilogue : {Epilogue::none, Epilogue::bias, Epilogue::residual, Epilogue::bias_residual}) {
      check<TypeParam, TypeParam>(ops::linear_forward(dtype_of<TypeParam>(), n, in, out, epilogue));
    }
  }
}

TYPED_TEST(GemmTest, InputGradient) {
  constexpr DType type = dtype_of<TypeParam>();
  for (const auto& [n, in, out] : kLinears) {
    for (const Store store : {Store::write, Store::add}) {
      check<TypeParam, TypeParam>(ops::linear_input_gradient(type, n, in, out, type, store));
      check<TypeParam, float>(ops::linear_input_gradient(type, n, in, out, DType::float32, store));
    }
  }
}

TYPED_TEST(GemmTest, WeightGradient) {
  for (const auto& [n, in, out] : kLinears) {
    for (const Store store : {Store::write, Store::add}) {
      check<TypeParam, float>(ops::linear_weight_gradient(dtype_of<TypeParam>(), n, in, out, store));
    }
  }
}

// Long sums and many tasks, as in training.
TYPED_TEST(GemmTest, LongSums) {
  constexpr DType type = dtype_of<TypeParam>();
  check<TypeParam, float>(ops::linear_weight_gradient(type, 2100, 50, 130, Store::add));
  check<TypeParam, float>(ops::linear_input_gradient(type, 33, 50, 5000, DType::float32, Store::add));
}

// Columns of a wider matrix, as a tile of the MLP or of the fused q, k and v.
TYPED_TEST(GemmTest, WindowsOfWiderMatrices) {
  GemmSpec spec = ops::linear_forward(dtype_of<TypeParam>(), 96, 48, 130, Epilogue::residual);
  spec.lda = 60;
  spec.ldb = 51;
  spec.ldc = 200;
  spec.ld_residual = 131;
  check<TypeParam, TypeParam>(spec);
  spec.transpose_a = Transpose::yes;
  spec.lda = 99;
  spec.has_residual = false;
  check<TypeParam, TypeParam>(spec);
}

// A token that is generated is one row, which has a kernel of its own.
TYPED_TEST(GemmTest, OneRow) {
  constexpr DType type = dtype_of<TypeParam>();
  for (const std::int64_t in : {1, 15, 16, 33, 576, 5000}) {
    for (const std::int64_t out : {1, 5, 64, 1030})
      check<TypeParam, TypeParam>(ops::linear_forward(type, 1, in, out, Epilogue::bias_residual));
  }
  GemmSpec sums = ops::linear_forward(type, 1, 200, 300, Epilogue::bias_residual);
  sums.output = DType::float32;
  check<TypeParam, float>(sums);
  sums.store = Store::add;
  check<TypeParam, float>(sums);
  GemmSpec window = ops::linear_forward(type, 1, 48, 130, Epilogue::residual);
  window.ldb = 51;
  check<TypeParam, TypeParam>(window);
}

TYPED_TEST(GemmTest, ScratchIsBounded) {
  const DType type = dtype_of<TypeParam>();
  MatmulEngine engine(3);
  const Instructions here = ops::instructions_here();
  for (const std::int64_t rows : {1, 7, 64, 500, 2100}) {
    for (const auto& [in, out] : {std::pair<std::int64_t, std::int64_t>{64, 192}, {65, 33}, {577, 1001}, {2048, 8192}}) {
      GemmSpec sums = ops::linear_forward(type, rows, in, out, Epilogue::bias_residual);
      sums.output = DType::float32;
      for (const GemmSpec& spec :
           {ops::linear_forward(type, rows, in, out), ops::linear_forward(type, rows, in, out, Epilogue::bias_residual), sums,
            ops::linear_input_gradient(type, rows, in, out, type),
            ops::linear_input_gradient(type, rows, in, out, DType::float32, Store::add),
            ops::linear_weight_gradient(type, rows, in, out, Store::write)}) {
        EXPECT_LE(engine.scratch_bytes(spec), ops::gemm_scratch_bound(spec, 3, here)) << rows << " x " << in << " x " << out;
      }
    }
  }
}

// The library gets copies of windows where dense slices are better; they change no value.
TYPED_TEST(GemmTest, DenseSlices) {
  if (dtype_of<TypeParam>() != DType::float32 && ops::instructions_here() == Instructions::widened)
    GTEST_SKIP() << "the library has no bf16 here";
  const auto check_dense = [](const GemmSpec& spec) {
    MatmulEngine engine(3, ops::DenseSlices::always);
    const auto both = [&]<typename C>(C) {
      const Problem<TypeParam, C> problem(spec);
      const auto first = problem.run(engine, 1);
      expect_close(first, problem.expected, problem.relative(), problem.absolute(), "C");
      expect_same_bits(problem.run(engine, 3), first, "C");
    };
    spec.output == DType::float32 ? both(float()) : both(TypeParam());
  };
  constexpr DType type = dtype_of<TypeParam>();
  for (const Store store : {Store::write, Store::add}) {
    check_dense(ops::linear_weight_gradient(type, 200, 130, 520, store));
    check_dense(ops::linear_input_gradient(type, 33, 50, 5000, DType::float32, store));
  }
  check_dense(ops::linear_forward(type, 70, 96, 1030, Epilogue::bias_residual));
  GemmSpec window = ops::linear_forward(type, 96, 48, 1300, Epilogue::residual);
  window.lda = 60, window.ldb = 51, window.ldc = 1400, window.ld_residual = 1311;
  check_dense(window);
}

// On AMX the library takes its better way for dense operands alone: none of a plan's products may be served by a lesser one.
TEST(GemmServed, NoProductOfAPlanCouldBeServedBetter) {
  if (ops::instructions_here() == Instructions::widened) GTEST_SKIP() << "the library has no bf16 here";
  MatmulEngine engine(1);
  for (const char* const model : {"smollm2-135m", "llama-3.2-1b", "gpt2", "gemma-2-2b"}) {
    for (const std::int64_t rows : {64, 512, 2048}) {
      if (rows > catalogue_config(model).max_positions) continue;
      const CompiledModel compiled = build_model(
          catalogue_config(model), {.dtype = DType::bfloat16, .micro_batch = 1, .sequence = rows, .head = HeadMode::tiled});
      for (const GemmSpec& spec : products_of(compiled)) {
        for (const auto by : {ops::Multiplies::as_here, ops::Multiplies::library}) {
          for (const ops::ServedProduct& served : engine.served_by(spec, by)) {
            EXPECT_FALSE(served.could_be_better()) << model << ": " << spec.m << " x " << spec.n << " x " << spec.k << " by "
                                                   << served.by << ", not " << served.dense_by;
          }
        }
      }
    }
  }
}

TYPED_TEST(GemmTest, TwoCallersAtOnce) {
  MatmulEngine engine(2);
  const ThreadPool pool(2);
  const GemmSpec spec = ops::linear_forward(dtype_of<TypeParam>(), 300, 72, 520);
  const Problem<TypeParam, TypeParam> problem(spec);
  const auto expected = problem.run(engine, 1);
  std::vector<TypeParam> results[2] = {problem.before, problem.before};
  const auto caller = [&](std::vector<TypeParam>& c) {
    Scratch scratch(engine.scratch_bytes(spec));
    for (int i = 0; i < 20; ++i) engine.run(pool, spec, {problem.a.data(), problem.b.data(), c.data()}, scratch.data());
  };
  std::thread other(caller, std::ref(results[0]));
  caller(results[1]);
  other.join();
  expect_same_bits(results[0], expected, "C");
  expect_same_bits(results[1], expected, "C");
}

}  // namespace
}  // namespace spillway::testing
