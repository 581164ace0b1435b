// Each kernel on the emulated device beside the plain loops, over shapes that are odd, tiny, one row, and such that vectors do
// not fit; the same bits for every order of blocks and warps; and the bytes that it moves beside those that its operands have.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <vector>

#include "memory/element.h"
#include "models/reference/reference_backend.h"
#include "tests/cuda/device_copies.h"

namespace spillway::testing {
namespace {

using namespace kernels;

// Operands of one call, on the host, each a value of its own.
class Operands {
 public:
  explicit Operands(std::uint64_t seed) : random_(seed) {}

  Place numbers(DType type, std::int64_t count, double from = -1, double to = 1) {
    std::vector<std::byte>& data = add(count * size_of(type));
    std::uniform_real_distribution<double> uniform(from, to);
    for (std::int64_t i = 0; i < count; ++i) set_element(data.data(), type, i, uniform(random_));
    return last();
  }
  Place integers(std::int64_t count, std::int32_t from, std::int32_t to) {
    std::vector<std::byte>& data = add(count * 4);
    std::uniform_int_distribution<std::int32_t> uniform(from, to);
    for (std::int64_t i = 0; i < count; ++i) reinterpret_cast<std::int32_t*>(data.data())[i] = uniform(random_);
    return last();
  }
  Place floats(std::vector<float> values) {
    std::vector<std::byte>& data = add(std::ssize(values) * 4);
    std::memcpy(data.data(), values.data(), data.size());
    return last();
  }
  std::vector<std::byte>& data(const Place& place) { return values_[static_cast<std::size_t>(place.index)]; }

  PassMemory memory(bool first_micro_batch) {
    addresses_.clear();
    for (auto& value : values_) addresses_.push_back(value.data());
    return {.values = addresses_, .words = &words_, .first_micro_batch = first_micro_batch};
  }
  MicroBatchWords& words() { return words_; }

 private:
  std::vector<std::byte>& add(Bytes bytes) { return values_.emplace_back(static_cast<std::size_t>(bytes)); }
  Place last() const { return {.space = Space::value, .index = static_cast<int>(values_.size()) - 1}; }
  std::mt19937_64 random_;
  std::vector<std::vector<std::byte>> values_;
  std::vector<std::byte*> addresses_;
  MicroBatchWords words_{.loss_sum = 0.5, .loss_scale = 0.25f, .position = 3, .logits_row = 5};
};

struct Limits {
  double bytes = 1.1;  // moved for each that the operands have, but for what is said to be above it and why
  bool any_conflicts = false;
};

// `make` gives the kernel with its operands; the same ones for the same seed.
void check(const std::function<Kernel(Operands&)>& make, const char* what, bool first = true, Limits limits = {}) {
  Operands expected(1);
  Kernel kernel = make(expected);
  ReferenceBackend().run({{.kernel = kernel}}, expected.memory(first));
  std::vector<std::vector<std::byte>> before;
  for (const std::uint64_t seed : {1, 2}) {
    Operands actual(1);
    make(actual);
    DeviceCopies on({.seed = seed, .counts = seed == 1, .threads = 1});
    on.run({{.kernel = kernel}}, actual.memory(first));
    Bytes needed = 0;
    for (const OperandUse& operand : operands_of(kernel)) {
      needed += operand.bytes * (operand.access == Access::update ? 2 : 1);
      if (operand.place->space != Space::value || operand.access == Access::read) continue;
      const std::vector<std::byte>&got = actual.data(*operand.place), &wanted = expected.data(*operand.place);
      double largest = 0, worst = 0;
      for (std::int64_t i = 0; i < std::ssize(got) / size_of(operand.type); ++i) {
        const double x = element(got.data(), operand.type, i), y = element(wanted.data(), operand.type, i);
        if (std::isnan(x) && std::isnan(y)) continue;
        largest = std::max(largest, std::abs(y)), worst = std::max(worst, std::abs(x - y));
        ASSERT_FALSE(std::isnan(x)) << what << ", element " << i;
      }
      EXPECT_LE(worst, (operand.type == DType::float32 ? 2e-5 : 1.0 / 128) * largest) << what;
      if (seed == 1) {
        before.push_back(got);
      } else {
        EXPECT_EQ(got, before.front()) << what << ": other bits in another order";
        before.erase(before.begin());
      }
    }
    const device::Counts counts = on.queue().counts();
    if (device::kCounts && seed == 1 && needed > 100 * kKiB) {
      EXPECT_LE(static_cast<double>(counts.read_bytes + counts.written_bytes), limits.bytes * static_cast<double>(needed))
          << what;
    }
    EXPECT_TRUE(limits.any_conflicts || counts.bank_conflicts == 0) << what << ": " << counts.bank_conflicts << " conflicts";
  }
}

struct Shape {
  DType type;
  std::int64_t rows, columns;
};
const Shape kShapes[] = {{DType::bfloat16, 1, 8},     {DType::bfloat16, 7, 33},    {DType::bfloat16, 70, 576},
                         {DType::bfloat16, 33, 2056}, {DType::float32, 1, 3},      {DType::float32, 65, 100},
                         {DType::float32, 40, 1030},  {DType::bfloat16, 64, 4096}, {DType::float16, 33, 100},
                         {DType::float16, 40, 1024}};

std::string text_of(const Shape& shape) { return fmt::format("{} {} x {}", name_of(shape.type), shape.rows, shape.columns); }

class OnDevice : public ::testing::TestWithParam<Shape> {
 protected:
  void check_all(const std::function<Kernel(Operands&)>& make, Limits limits = {}) {
    for (const bool first : {true, false}) check(make, text_of(GetParam()).c_str(), first, limits);
  }
  const DType type = GetParam().type;
  const std::int64_t n = GetParam().rows, H = GetParam().columns;
};
INSTANTIATE_TEST_SUITE_P(Shapes, OnDevice, ::testing::ValuesIn(kShapes),
                         [](const auto& shape) { return "Shape" + std::to_string(shape.index); });

TEST_P(OnDevice, Norm) {
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
        {1.25});  // weights once a block
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
  for (const bool is_layernorm : {false, true}) {
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

TEST_P(OnDevice, SumsAndCopies) {
  check_all(
      [&](Operands& of) {
        return kernels::ColumnSums{type, n, H, of.numbers(type, n * H), of.numbers(DType::float32, H)};
      },
      {1.3});
  check_all([&](Operands& of) {
    return kernels::Round{type, n * H, of.numbers(DType::float32, n * H), of.numbers(type, n * H)};
  });
  check_all([&](Operands& of) { return kernels::CopyRows{type, n, H, 1.5f, of.numbers(type, n * H), of.numbers(type, n * H)}; });
  check_all([&](Operands& of) { return kernels::Cap{type, n * H, 2.0f, of.numbers(type, n * H, -5, 5)}; });
}

TEST_P(OnDevice, Positions) {
  const std::int64_t sequence = std::max<std::int64_t>(1, n / 2 + 1);
  check_all(
      [&](Operands& of) {
        return kernels::AddPositions{type, n, H, sequence, of.numbers(type, sequence * H), of.numbers(type, n * H)};
      },
      {1.5});  // the table once a block
  check_all([&](Operands& of) {
    return kernels::AddPositionsBackward{
        type, n, H, sequence, sequence + 3, of.numbers(type, n * H), of.numbers(DType::float32, (sequence + 3) * H)};
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
    for (const bool begins : {true, false}) {
      check_all([&](Operands& of) {
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
      });
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
    check(
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
        const ops::RopeShape shape{rows, 20, heads, kv_heads, dimension, 1e-6f};
        const std::int64_t all = rows * (heads + 2 * kv_heads) * dimension, turned = rows * (heads + kv_heads) * dimension;
        const auto weight = [&](Operands& of) { return has_norms ? of.numbers(type, dimension) : Place{}; };
        const std::string what = fmt::format("{} {} x {} + {} of {}", name_of(type), rows, heads, kv_heads, dimension);
        for (const bool moves : {false, true}) {
          check(
              [&, dim = dimension](Operands& of) {
                const auto table = [&] {
                  const Place place = of.numbers(DType::float32, 30 * dim / 2);
                  return moves ? place.moving_with(ControlWord::position, dim / 2 * 4) : place;
                };
                return kernels::Rotate{
                    type, shape, table(), table(), weight(of), weight(of), of.numbers(type, all), of.numbers(type, turned)};
              },
              what.c_str(), true, {2.0});
        }
        for (const bool first : {true, false}) {
          check(
              [&, dim = dimension](Operands& of) {
                const auto sums = [&] { return has_norms ? of.numbers(DType::float32, dim) : Place{}; };
                return kernels::RotateBackward{type,
                                               shape,
                                               of.numbers(DType::float32, 30 * dim / 2),
                                               of.numbers(DType::float32, 30 * dim / 2),
                                               weight(of),
                                               weight(of),
                                               of.numbers(type, all),
                                               of.numbers(type, all),
                                               sums(),
                                               sums()};
              },
              what.c_str(), first, {2.0, true});  // sums once a block, at the end
        }
      }
    }
  }
}

TEST(OnDeviceAlone, KeysAreKept) {
  for (const std::int64_t width : {7, 64}) {
    check(
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
