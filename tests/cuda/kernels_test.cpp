// Each kernel on the emulated device beside the plain loops, over shapes that are odd, tiny, of one row, or such that vectors do
// not fit. Every order of blocks and warps must give the same bits, and the bytes moved are compared with those of the operands.
#include <cmath>
#include <random>

#include "tests/cuda/kernel_testing.h"

namespace spillway::testing {
namespace {

using namespace kernels;

struct Shape {
  DType type;
  std::int64_t rows, columns;
  std::int64_t shift = 0;  // of operands, in elements
};
const Shape kShapes[] = {{DType::bfloat16, 1, 8},     {DType::bfloat16, 7, 33},    {DType::bfloat16, 70, 576},
                         {DType::bfloat16, 33, 2056}, {DType::float32, 1, 3},      {DType::float32, 65, 100},
                         {DType::float32, 40, 1030},  {DType::bfloat16, 64, 4096}, {DType::float16, 33, 100},
                         {DType::float16, 40, 1024}};
// Random shapes: one row or one column now and then, and whole packs at addresses that packs do not fit.
std::vector<Shape> random_shapes(std::uint64_t seed, int count) {
  std::mt19937_64 random(seed);
  const auto below = [&](std::int64_t end) { return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(end)); };
  std::vector<Shape> shapes;
  for (int i = 0; i < count; ++i) {
    Shape shape{static_cast<DType>(below(3)), 1 + below(80), 1 + below(300), below(2)};
    if (i % 8 == 0) shape.rows = 1;
    if (i % 8 == 1) shape.columns = 1;
    if (i % 2 == 0) shape.columns = round_up(shape.columns, 8);
    shapes.push_back(shape);
  }
  return shapes;
}
// Rows as wide as a hidden state, an MLP and a tile of the vocabulary in the catalogue's largest models.
const Shape kLargest[] = {{DType::bfloat16, 33, 16384}, {DType::bfloat16, 9, 53248}, {DType::float32, 5, 128256}};

std::string text_of(const Shape& shape) {
  return fmt::format("{} {} x {}{}", name_of(shape.type), shape.rows, shape.columns, shape.shift > 0 ? " shifted" : "");
}

class OnDevice : public ::testing::TestWithParam<Shape> {
 protected:
  void check_all(const std::function<Kernel(Operands&)>& make, Limits limits = {}) {
    limits.shift = GetParam().shift;
    for (const bool first : {true, false}) check_kernel(make, text_of(GetParam()).c_str(), first, limits);
  }
  const DType type = GetParam().type;
  const std::int64_t n = GetParam().rows, H = GetParam().columns;
};
const auto name_of_case = [](const auto& shape) { return "Shape" + std::to_string(shape.index); };
INSTANTIATE_TEST_SUITE_P(Shapes, OnDevice, ::testing::ValuesIn(kShapes), name_of_case);
INSTANTIATE_TEST_SUITE_P(Random, OnDevice, ::testing::ValuesIn(random_shapes(1, 12)), name_of_case);
INSTANTIATE_TEST_SUITE_P(SlowRandom, OnDevice, ::testing::ValuesIn(random_shapes(2, 100)), name_of_case);
INSTANTIATE_TEST_SUITE_P(SlowLargest, OnDevice, ::testing::ValuesIn(kLargest), name_of_case);

// The longest row of a norm: a block's threads keep their parts of a row in registers.
constexpr std::int64_t kWidestNorm = 16384;

TEST_P(OnDevice, Norm) {
  if (H > kWidestNorm) GTEST_SKIP() << "no model's hidden state is as wide";
  for (const bool is_layernorm : {false, true}) {
    check_all(
        [&](Operands& of) {
          return kernels::Norm{.type = type,
                               .rows = n,
                               .hidden = H,
                               .epsilon = 1e-5f,
                               .offset = is_layernorm ? 0.0f : 1.0f,
                               .x = of.numbers(type, n * H),
                               .weight = of.numbers(type, H),
                               .bias = is_layernorm ? of.numbers(type, H) : Place{},
                               .residual = is_layernorm ? Place{} : of.numbers(type, n * H),
                               .y = of.numbers(type, n * H),
                               .statistics = of.numbers(DType::float32, 2 * n)};
        },
        {1.25});  // weights are read once per block
    check_all(
        [&](Operands& of) {
          return kernels::NormAgain{.type = type,
                                    .rows = n,
                                    .hidden = H,
                                    .x = of.numbers(type, n * H),
                                    .weight = of.numbers(type, H),
                                    .bias = is_layernorm ? of.numbers(type, H) : Place{},
                                    .statistics = of.numbers(DType::float32, 2 * n, 0.5, 1),
                                    .y = of.numbers(type, n * H)};
        },
        {1.25});
  }
}

TEST_P(OnDevice, NormBackward) {
  if (H > kWidestNorm) GTEST_SKIP() << "no model's hidden state is as wide";
  for (const bool is_layernorm : {false, true}) {
    if (is_layernorm && H > kWidestNorm / 2) continue;  // no model with LayerNorm is as wide either
    for (const DType gradient : {type, DType::float32}) {
      check_all(
          [&](Operands& of) {
            return kernels::NormBackward{.type = type,
                                         .gradient_type = gradient,
                                         .rows = n,
                                         .hidden = H,
                                         .offset = 0.5f,
                                         .dy = of.numbers(gradient, n * H),
                                         .x = of.numbers(type, n * H),
                                         .weight = of.numbers(type, H),
                                         .bias = is_layernorm ? of.numbers(type, H) : Place{},
                                         .statistics = of.numbers(DType::float32, 2 * n, 0.5, 1),
                                         .residual_gradient = of.numbers(type, n * H),
                                         .dx = of.numbers(type, n * H),
                                         .dweight = of.numbers(DType::float32, H),
                                         .dbias = is_layernorm ? of.numbers(DType::float32, H) : Place{}};
          },
          {1.3});  // partial sums of 32 rows are written and read again
    }
  }
}

TEST_P(OnDevice, Activations) {
  for (const Activation activation : {Activation::silu, Activation::gelu_tanh, Activation::gelu_erf}) {
    for (const bool gated : {false, true}) {
      const std::int64_t up = n * H * (gated ? 2 : 1);
      check_all([&](Operands& of) {
        return kernels::Activate{type, activation, gated, n, H, of.numbers(type, up, -4, 4), of.numbers(type, n * H)};
      });
      check_all([&](Operands& of) {
        return kernels::ActivateBackward{type,
                                         activation,
                                         gated,
                                         n,
                                         H,
                                         of.numbers(type, n * H),
                                         of.numbers(type, up, -4, 4),
                                         of.numbers(type, up),
                                         of.numbers(type, n * H)};
      });
    }
  }
}

TEST_P(OnDevice, Dropout) {
  for (const bool adds : {false, true}) {
    check_all([&](Operands& of) {
      return kernels::Dropout{.type = type,
                              .elements = n * H,
                              .mask = {.site = 42, .probability = 0.3f},
                              .adds = adds,
                              .x = of.numbers(type, n * H),
                              .y = of.numbers(type, n * H),
                              .key = place_of(ControlWord::dropout)};
    });
  }
}

TEST_P(OnDevice, SumsAndCopies) {
  check_all([&](Operands& of) { return kernels::ColumnSums{type, n, H, of.numbers(type, n * H), of.numbers(DType::float32, H)}; },
            {n < 32 ? 1.6 : 1.3});  // partial sums count for much beside so few rows
  check_all(
      [&](Operands& of) { return kernels::Round{type, n * H, of.numbers(DType::float32, n * H), of.numbers(type, n * H)}; });
  check_all([&](Operands& of) { return kernels::Cap{type, n * H, 2.0f, of.numbers(type, n * H, -5, 5)}; });
}

// The first key of each row: documents of 1, 2, 3 … rows, in each sequence anew.
Place documents_of(Operands& of, std::int64_t rows, std::int64_t sequence) {
  std::vector<std::int32_t> first;
  for (std::int64_t row = 0; row < rows; ++row) {
    const auto t = static_cast<std::int32_t>(row % sequence);
    std::int32_t begin = 0;
    for (std::int32_t length = 1; begin + length <= t; ++length) begin += length;
    first.push_back(begin);
  }
  return of.words(first);
}

TEST_P(OnDevice, Positions) {
  const std::int64_t sequence = std::max<std::int64_t>(1, n / 2 + 1);
  check_all(
      [&](Operands& of) {
        return kernels::AddPositions{type, n, H, sequence, of.numbers(type, sequence * H), of.numbers(type, n * H)};
      },
      {1.5});  // the table is read once per block
  check_all([&](Operands& of) {
    return kernels::AddPositionsBackward{
        type, n, H, sequence, sequence + 3, of.numbers(type, n * H), of.numbers(DType::float32, (sequence + 3) * H)};
  });
  // Sequences of documents.
  check_all(
      [&](Operands& of) {
        return kernels::AddPositions{
            type, n, H, sequence, of.numbers(type, sequence * H), of.numbers(type, n * H), documents_of(of, n, sequence)};
      },
      {1.5});
  check_all([&](Operands& of) {
    return kernels::AddPositionsBackward{type,
                                         n,
                                         H,
                                         sequence,
                                         sequence + 3,
                                         of.numbers(type, n * H),
                                         of.numbers(DType::float32, (sequence + 3) * H),
                                         documents_of(of, n, sequence)};
  });
}

TEST_P(OnDevice, Lookups) {
  const std::int64_t vocabulary = 50;
  const ops::VocabularyTile tile{10, 30};
  check_all(
      [&](Operands& of) {
        return kernels::LookUp{
            type, n, H, vocabulary, tile, 2.0f, of.integers(n, 0, 49), of.numbers(type, tile.rows * H), of.numbers(type, n * H)};
      },
      {2.0});
  check_all(
      [&](Operands& of) {
        return kernels::LookUpBackward{type,
                                       n,
                                       H,
                                       vocabulary,
                                       tile,
                                       2.0f,
                                       12,
                                       of.integers(n, 5, 20),
                                       of.numbers(type, n * H),
                                       of.numbers(DType::float32, tile.rows * H)};
      },
      {3.0});  // zeros are written first
}

TEST_P(OnDevice, Loss) {
  const ops::VocabularyTile tile{100, H};
  for (const float cap : {0.0f, 3.0f}) {
    // Among that many capped logits one may lie between two numbers of the type, and be rounded the other way.
    const Limits limits{.slack = cap > 0 && type != DType::float32 && H > kWidestNorm ? 5.0 : 1.0};
    for (const bool begins : {true, false}) {
      check_all(
          [&](Operands& of) {
            return kernels::LossTile{type,
                                     n,
                                     tile,
                                     begins,
                                     cap,
                                     of.numbers(type, n * H, -6, 6),
                                     of.integers(n, 95, 99 + static_cast<std::int32_t>(H)),
                                     of.numbers(DType::float32, n),
                                     of.numbers(DType::float32, n, 1, 2),
                                     of.numbers(DType::float32, n)};
          },
          limits);
    }
    check_all([&](Operands& of) {
      return kernels::LossBackward{type,
                                   n,
                                   tile,
                                   cap,
                                   of.numbers(type, n * H, -2, 2),
                                   of.integers(n, -102, 99 + static_cast<std::int32_t>(H)),
                                   of.numbers(DType::float32, n, 4, 6),
                                   of.floats({0.125f})};
    });
  }
}

TEST(OnDeviceAlone, LossOfAStrip) {
  for (const std::int64_t rows : {1, 100, 1000}) {
    for (const bool begins : {true, false}) {
      Operands expected(1), actual(1);
      const auto make = [&](Operands& of) {
        return kernels::LossFinish{rows,
                                   begins,
                                   of.integers(rows, -100, -98),
                                   of.numbers(DType::float32, rows),
                                   of.numbers(DType::float32, rows, 1, 2),
                                   of.numbers(DType::float32, rows),
                                   of.numbers(DType::float32, rows),
                                   place_of(ControlWord::loss_sum)};
      };
      const Kernel kernel = make(expected);
      make(actual);
      ReferenceBackend().run({{.kernel = kernel}}, expected.memory(true));
      DeviceCopies({}).run({{.kernel = kernel}}, actual.memory(true));
      EXPECT_NEAR(actual.words().loss_sum, expected.words().loss_sum, 1e-9 * std::abs(expected.words().loss_sum));
    }
  }
}

TEST(OnDeviceAlone, TheLogitsOfARow) {
  for (const std::int64_t first : {0, 4, 6}) {
    check_kernel(
        [&](Operands& of) {
          return kernels::GiveLogits{DType::bfloat16,
                                     first,
                                     3,
                                     50,
                                     of.numbers(DType::bfloat16, 150),
                                     place_of(ControlWord::logits_row),
                                     of.numbers(DType::float32, 50)};
        },
        "logits");
  }
}

TEST(OnDeviceAlone, Rotate) {
  for (const DType type : {DType::bfloat16, DType::float16, DType::float32}) {
    for (const auto& [rows, heads, kv_heads, dimension] : {std::array<std::int64_t, 4>{1, 1, 1, 2},
                                                           {37, 3, 1, 10},
                                                           {40, 4, 2, 64},
                                                           {9, 2, 2, 80},
                                                           {33, 6, 2, 128},
                                                           {5, 2, 1, 256}}) {
      for (const bool has_norms : {false, true}) {
        const ops::RopeShape shape{rows, 20, heads, kv_heads, dimension, 1e-6f, rows % 2 == 0 ? 0.0f : 1.0f};
        const std::int64_t all = rows * (heads + 2 * kv_heads) * dimension, turned = rows * (heads + kv_heads) * dimension;
        const auto weight = [&](Operands& of) { return has_norms ? of.numbers(type, dimension) : Place{}; };
        const std::string what = fmt::format("{} {} x {} + {} of {}", name_of(type), rows, heads, kv_heads, dimension);
        for (const bool moves : {false, true}) {
          check_kernel(
              [&, dim = dimension](Operands& of) {
                const auto table = [&] {
                  const Place place = of.numbers(DType::float32, 30 * dim / 2);
                  return moves ? place.moving_with(ControlWord::position, dim / 2 * 4) : place;
                };
                return kernels::Rotate{type,
                                       shape,
                                       table(),
                                       table(),
                                       {},
                                       {},
                                       weight(of),
                                       weight(of),
                                       of.numbers(type, all),
                                       of.numbers(type, turned)};
              },
              what.c_str(), true, {2.0, false, moves && dimension <= 64 ? 1 : 0});
        }
        for (const bool first : {true, false}) {
          check_kernel(
              [&, dim = dimension](Operands& of) {
                const auto sums = [&] { return has_norms ? of.numbers(DType::float32, dim) : Place{}; };
                return kernels::RotateBackward{type,
                                               shape,
                                               of.numbers(DType::float32, 30 * dim / 2),
                                               of.numbers(DType::float32, 30 * dim / 2),
                                               {},
                                               {},
                                               weight(of),
                                               weight(of),
                                               of.numbers(type, all),
                                               of.numbers(type, all),
                                               sums(),
                                               sums()};
              },
              what.c_str(), first, {2.0, true, !first && dimension <= 64 ? 1 : 0});  // sums are written once per block
        }
      }
    }
  }
}

TEST(OnDeviceAlone, RotateDocuments) {
  for (const DType type : {DType::bfloat16, DType::float16, DType::float32}) {
    for (const bool has_norms : {false, true}) {
      const std::int64_t rows = 40, dimension = 64;
      const std::string what = fmt::format("{}{}", name_of(type), has_norms ? " with norms" : "");
      const ops::RopeShape shape{rows, 20, 4, 2, dimension, 1e-6f, 0.0f};
      const std::int64_t all = rows * 8 * dimension, turned = rows * 6 * dimension;
      const auto weight = [&](Operands& of) { return has_norms ? of.numbers(type, dimension) : Place{}; };
      const auto table = [&](Operands& of) { return of.numbers(DType::float32, shape.sequence * dimension / 2); };
      check_kernel(
          [&](Operands& of) {
            kernels::Rotate k{type,
                              shape,
                              table(of),
                              table(of),
                              {},
                              {},
                              weight(of),
                              weight(of),
                              of.numbers(type, all),
                              of.numbers(type, turned)};
            k.first_key = documents_of(of, rows, shape.sequence);
            return k;
          },
          what.c_str(), true, {2.0});
      check_kernel(
          [&](Operands& of) {
            kernels::RotateBackward k{
                type, shape, table(of), table(of), {}, {}, weight(of), weight(of), of.numbers(type, all), of.numbers(type, all)};
            if (has_norms)
              k.dq_weight = of.numbers(DType::float32, dimension), k.dk_weight = of.numbers(DType::float32, dimension);
            k.first_key = documents_of(of, rows, shape.sequence);
            return k;
          },
          what.c_str(), false, {2.0, true});
    }
  }
}

// Each block that sees keys reads them (attention_test.cpp counts how often). Weights and gradients of scores are rounded on the
// way, which adds to the error of a result.
TEST(OnDeviceAlone, Attention) {
  constexpr std::int64_t T = 45, heads = 4, kv_heads = 2;
  constexpr Limits limits{.bytes = 100, .slack = 4};
  for (const DType type : {DType::bfloat16, DType::float16, DType::float32}) {
    for (const std::int64_t D : {64, 20}) {
      for (const bool has_documents : {false, true}) {
        const std::int64_t q_width = heads * D, kv_width = kv_heads * D;
        const ops::AttentionShape shape{2, T, T, heads, kv_heads, D, 0, 30, 1 / std::sqrt(static_cast<float>(D)), 4};
        const auto rows = [=](Operands& of, std::int64_t width) {
          return kernels::Rows{of.numbers(type, 2 * T * (width + 8)), width + 8};
        };
        const auto documents = [=](Operands& of) {
          if (!has_documents) return Place{};
          std::vector<std::int32_t> first(2 * T);
          for (std::int32_t i = 0; i < 2 * T; ++i) first[static_cast<std::size_t>(i)] = i % T / 17 * 17;
          return of.words(first);
        };
        const std::string what = fmt::format("{} heads of {}{}", name_of(type), D, has_documents ? " documents" : "");
        const auto forward = [=](Operands& of) {
          kernels::Attend k{.type = type, .shape = shape, .q = rows(of, q_width), .k = rows(of, kv_width)};
          k.v = rows(of, kv_width), k.o = rows(of, q_width);
          k.lse = of.numbers(DType::float32, 2 * heads * T), k.first_key = documents(of);
          return k;
        };
        check_kernel(forward, what.c_str(), true, limits);
        // The backward takes a forward's output and its log-sum-exp.
        Operands forwards(1);
        const Kernel of_forward = forward(forwards);
        ReferenceBackend().run({{.kernel = of_forward}}, forwards.memory(true));
        check_kernel(
            [&](Operands& of) {
              const kernels::Attend f = forward(of);
              for (const Place& place : {f.o.place, f.lse}) of.data(place) = forwards.data(place);
              kernels::AttendBackward k{.type = type, .shape = shape, .q = f.q, .k = f.k, .v = f.v, .o = f.o};
              k.d_o = rows(of, q_width), k.dq = rows(of, q_width), k.dk = rows(of, kv_width), k.dv = rows(of, kv_width);
              k.lse = f.lse, k.first_key = f.first_key;
              return k;
            },
            what.c_str(), true, limits);
      }
    }
  }
}

TEST(OnDeviceAlone, KeysAreKept) {
  for (const std::int64_t width : {7, 64}) {
    check_kernel(
        [&](Operands& of) {
          const std::int64_t stride = width + 8;
          return kernels::KeepKeys{DType::bfloat16,
                                   5,
                                   width,
                                   20,
                                   {of.numbers(DType::bfloat16, 5 * stride), stride},
                                   {of.numbers(DType::bfloat16, 5 * stride), stride},
                                   of.numbers(DType::bfloat16, 2 * 20 * width)};
        },
        "keys");
  }
}

}  // namespace
}  // namespace spillway::testing
