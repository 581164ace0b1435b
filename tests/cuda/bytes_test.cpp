// Every kernel at a size that a model has, in every type: its results beside those of the plain loops, and the table of bytes,
// which has what it reads and writes beside what its operands have. Sectors count once for each block that touches them, so that
// the table includes what several blocks share, though a cache would serve it.
// Not here: attention, whose blocks read keys again and again (attention_test.cpp says how often), products, which are the
// library's, and the optimizer's kernels, which move their operands to the byte (optimizer_test.cpp).
#include <fmt/core.h>

#include <set>

#include "tests/cuda/kernel_testing.h"

namespace spillway::testing {
namespace {

using namespace kernels;

constexpr DType kType = DType::bfloat16;
constexpr std::int64_t kRows = 64, kHidden = 4096, kTile = 8192, kHeads = 24, kKvHeads = 8, kHead = 128;

struct Counted {
  const char* name;
  std::function<Kernel(Operands&)> make;
  double most = 1.1;
};

Place floats(Operands& of, std::int64_t count) { return of.numbers(DType::float32, count, 0.5, 1); }
auto matrix_of(DType type) {
  return [=](Operands& of, std::int64_t columns = kHidden) { return of.numbers(type, kRows * columns); };
}

std::vector<Counted> norms(DType type) {
  const auto matrix = matrix_of(type);
  return {
      {"norm",
       [=](Operands& of) {
         return Norm{.type = type,
                     .rows = kRows,
                     .hidden = kHidden,
                     .epsilon = 1e-5f,
                     .x = matrix(of),
                     .weight = of.numbers(type, kHidden),
                     .residual = matrix(of),
                     .y = matrix(of),
                     .statistics = floats(of, kRows)};
       }},
      {"norm_again",
       [=](Operands& of) {
         return NormAgain{.type = type,
                          .rows = kRows,
                          .hidden = kHidden,
                          .x = matrix(of),
                          .weight = of.numbers(type, kHidden),
                          .statistics = floats(of, kRows),
                          .y = matrix(of)};
       }},
      {"norm_backward",
       [=](Operands& of) {
         return NormBackward{.type = type,
                             .gradient_type = type,
                             .rows = kRows,
                             .hidden = kHidden,
                             .dy = matrix(of),
                             .x = matrix(of),
                             .weight = of.numbers(type, kHidden),
                             .statistics = floats(of, kRows),
                             .residual_gradient = matrix(of),
                             .dx = matrix(of),
                             .dweight = floats(of, kHidden)};
       }},
  };
}

std::vector<Counted> activations_and_copies(DType type) {
  const auto matrix = matrix_of(type);
  return {
      {"activate",
       [=](Operands& of) { return Activate{type, Activation::silu, true, kRows, kHidden, matrix(of, 2 * kHidden), matrix(of)}; }},
      {"activate_backward",
       [=](Operands& of) {
         return ActivateBackward{
             type,      Activation::silu, true, kRows, kHidden, matrix(of), matrix(of, 2 * kHidden), matrix(of, 2 * kHidden),
             matrix(of)};
       }},
      {"column_sums", [=](Operands& of) { return ColumnSums{type, kRows, kHidden, matrix(of), floats(of, kHidden)}; }},
      {"round", [=](Operands& of) { return Round{type, kRows * kHidden, floats(of, kRows * kHidden), matrix(of)}; }},
      {"dropout",
       [=](Operands& of) {
         return Dropout{.type = type,
                        .elements = kRows * kHidden,
                        .mask = {.site = 1, .probability = 0.5f},
                        .x = matrix(of),
                        .y = matrix(of),
                        .key = place_of(ControlWord::dropout)};
       }},
      {"cap", [=](Operands& of) { return Cap{type, kRows * kHidden, 30.0f, matrix(of)}; }},
  };
}

std::vector<Counted> positions_and_rows(DType type) {
  const auto matrix = matrix_of(type);
  const ops::RopeShape rope{kRows, kRows, kHeads, kKvHeads, kHead, 1e-6f};
  const auto angles = [=](Operands& of) { return floats(of, kRows * kHead / 2); };
  const std::int64_t qkv = (kHeads + 2 * kKvHeads) * kHead, qk = (kHeads + kKvHeads) * kHead;
  const ops::VocabularyTile table{0, kRows};
  return {
      {"rotate",
       [=](Operands& of) {
         return Rotate{type,
                       rope,
                       angles(of),
                       angles(of),
                       {},
                       {},
                       of.numbers(type, kHead),
                       of.numbers(type, kHead),
                       matrix(of, qkv),
                       matrix(of, qk)};
       }},
      {"rotate_backward",
       [=](Operands& of) {
         return RotateBackward{type,
                               rope,
                               angles(of),
                               angles(of),
                               {},
                               {},
                               of.numbers(type, kHead),
                               of.numbers(type, kHead),
                               matrix(of, qkv),
                               matrix(of, qkv),
                               floats(of, kHead),
                               floats(of, kHead)};
       }},
      {"look_up",
       [=](Operands& of) {
         // Each token occurs once, as most of a vocabulary's do.
         std::vector<std::int32_t> tokens(kRows);
         for (std::int32_t i = 0; i < kRows; ++i) tokens[static_cast<std::size_t>(i)] = (i * 7 + 3) % static_cast<int>(kRows);
         return LookUp{type, kRows, kHidden, kRows, table, 1.0f, of.words(tokens), matrix(of, kHidden), matrix(of, kHidden)};
       }},
      {"add_positions",
       [=](Operands& of) { return AddPositions{type, kRows, kHidden, kRows, matrix(of, kHidden), matrix(of, kHidden)}; }},
      {"add_positions_backward",
       [=](Operands& of) {
         return AddPositionsBackward{type, kRows, kHidden, kRows, kRows, matrix(of, kHidden), floats(of, kRows * kHidden)};
       }},
      {"keep_keys",
       [=](Operands& of) {
         return KeepKeys{type,
                         kRows,
                         kHidden,
                         kRows + 3,
                         {matrix(of, kHidden), kHidden},
                         {matrix(of, kHidden), kHidden},
                         of.numbers(type, 2 * (kRows + 3) * kHidden)};
       }},
  };
}

std::vector<Counted> sinks(DType type) {
  const auto matrix = matrix_of(type);
  const ops::AttentionShape shape{
      .sequences = 1, .queries = kRows, .keys = kRows, .heads = kHidden / kHead, .kv_heads = kHidden / kHead, .head_dim = kHead};
  return {
      {"sink",
       [=](Operands& of) {
         return Sink{type, shape, of.numbers(type, shape.heads), floats(of, kRows * shape.heads), matrix(of)};
       },
       1.15},  // a block has eight heads of a row, whose log-sum-exps lie apart
      {"sink_backward",
       [=](Operands& of) {
         return SinkBackward{type,       shape,      of.numbers(type, shape.heads), floats(of, kRows * shape.heads),
                             matrix(of), matrix(of), floats(of, shape.heads)};
       }},
  };
}

std::vector<Counted> losses(DType type) {
  const auto matrix = matrix_of(type);
  const ops::VocabularyTile tile{0, kTile};
  const auto targets = [](Operands& of) { return of.integers(kRows, 0, static_cast<std::int32_t>(kTile) - 1); };
  return {
      {"loss_tile",
       [=](Operands& of) {
         return LossTile{type,
                         kRows,
                         tile,
                         true,
                         0.0f,
                         matrix(of, kTile),
                         targets(of),
                         floats(of, kRows),
                         floats(of, kRows),
                         floats(of, kRows)};
       }},
      {"loss_finish",
       [=](Operands& of) {
         constexpr std::int64_t rows = 20000;
         return LossFinish{rows,
                           true,
                           of.integers(rows, 0, 9),
                           floats(of, rows),
                           floats(of, rows),
                           floats(of, rows),
                           floats(of, rows),
                           place_of(ControlWord::loss_sum)};
       }},
      {"loss_backward",
       [=](Operands& of) {
         return LossBackward{type, kRows, tile, 0.0f, matrix(of, kTile), targets(of), floats(of, kRows), of.floats({0.5f})};
       }},
      {"give_logits",
       [=](Operands& of) {
         return GiveLogits{
             type, 0, 8, 32 * kTile, of.numbers(type, 8 * 32 * kTile), place_of(ControlWord::logits_row), floats(of, 32 * kTile)};
       }},
  };
}

// The bytes that a call needs, computed by hand: of tables and caches only the rows that the call names.
double needed_of(Kernel& kernel) {
  if (const auto* k = std::get_if<KeepKeys>(&kernel)) return static_cast<double>(4 * k->rows * k->width * size_of(k->type));
  if (const auto* k = std::get_if<GiveLogits>(&kernel)) return static_cast<double>(k->columns * (size_of(k->type) + 4));
  double bytes = 0;
  for (const OperandUse& operand : operands_of(kernel)) {
    if (operand.place->space == Space::none) continue;
    bytes += static_cast<double>(operand.bytes) * (operand.access == Access::update ? 2 : 1);
  }
  return bytes;
}

class EveryKernel : public ::testing::TestWithParam<DType> {
 protected:
  EveryKernel() {
    for (const auto& more : {activations_and_copies, positions_and_rows, sinks, losses})
      std::ranges::copy(more(GetParam()), std::back_inserter(table));
  }
  // Product, Attend, AttendBackward and LookUpBackward are elsewhere: see above, and below. So are the five calls of mixtures,
  // whose operands no random numbers are: golden_kernels_test.cpp.
  static constexpr std::size_t kElsewhere = 9;
  std::vector<Counted> table = norms(GetParam());
  std::set<std::size_t> seen;
};
INSTANTIATE_TEST_SUITE_P(Types, EveryKernel, ::testing::Values(DType::bfloat16, DType::float16, DType::float32),
                         [](const auto& type) { return std::string(name_of(type.param)); });

// The test fails if a new kind of call is missing here. The first four of the others are compared in each type, too, in
// gemm_test.cpp and kernels_test.cpp.
TEST_P(EveryKernel, IsThePlainLoops) {
  for (const Counted& of : table) {
    Operands operands(1);
    const Kernel kernel = of.make(operands);
    seen.insert(kernel.index());
    // The sums of RotateBackward meet once per block, at the end.
    check_kernel(of.make, of.name, false, {.bytes = of.most, .any_conflicts = std::holds_alternative<RotateBackward>(kernel)});
  }
  EXPECT_EQ(seen.size(), std::variant_size_v<Kernel> - kElsewhere);
}

TEST_P(EveryKernel, MovesTheBytesOfItsOperands) {
  if (!device::kCounts) GTEST_SKIP() << "bytes are counted on the emulated device";
  fmt::print("{:24} {:>10} {:>10} {:>6}\n", "kernel", "needed", "moved", "ratio");
  for (const Counted& of : table) {
    Operands operands(1);
    Kernel kernel = of.make(operands);
    seen.insert(kernel.index());
    DeviceCopies on({.counts = true});
    on.run({{.kernel = kernel}}, operands.memory(false));  // gradients are added to
    const device::Counts counts = on.queue().counts();
    const double needed = needed_of(kernel), moved = static_cast<double>(counts.read_bytes + counts.written_bytes);
    fmt::print("{:24} {:10.0f} {:10.0f} {:6.3f}\n", of.name, needed, moved, moved / needed);
    EXPECT_LE(moved, of.most * needed) << of.name;
    EXPECT_GE(moved, 0.9 * needed) << of.name << ": less than its operands have, so these are not what it moves";
  }
  EXPECT_EQ(seen.size(), std::variant_size_v<Kernel> - kElsewhere);
}

// A table's whole gradient is set to zeros, and the rows of the tokens are read and written once more. Micro-batches after the
// first touch only these rows.
TEST(MovedBytes, OfATablesGradient) {
  if (!device::kCounts) GTEST_SKIP() << "bytes are counted on the emulated device";
  constexpr std::int64_t rows = 64, table_rows = 1024, hidden = 512;
  for (const bool first : {true, false}) {
    Operands operands(1);
    std::vector<std::int32_t> tokens(rows);
    for (std::int32_t i = 0; i < rows; ++i) tokens[static_cast<std::size_t>(i)] = i * 16;
    const Kernel kernel = LookUpBackward{kType,
                                         rows,
                                         hidden,
                                         table_rows,
                                         {0, table_rows},
                                         1.0f,
                                         -1,
                                         operands.words(tokens),
                                         operands.numbers(kType, rows * hidden),
                                         operands.numbers(DType::float32, table_rows * hidden)};
    DeviceCopies on({.counts = true});
    on.run({{.kernel = kernel}}, operands.memory(first));
    const device::Counts counts = on.queue().counts();
    const double needed = static_cast<double>(rows * hidden * (2 + 8) + (first ? table_rows * hidden * 4 : 0));
    EXPECT_LE(static_cast<double>(counts.read_bytes + counts.written_bytes), 1.1 * needed);
  }
}

}  // namespace
}  // namespace spillway::testing
