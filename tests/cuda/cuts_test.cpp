// The cuts that a plan may make change no bit: rows of a call in any number of calls, and a pass recomputed from kept values.
// Not here: parts of an update (optimizer_test.cpp).
#include <utility>

#include "tests/cuda/kernel_testing.h"

namespace spillway::testing {
namespace {

using namespace kernels;

constexpr std::int64_t kRows = 61, kHidden = 264;

Place after(const Place& place, std::int64_t elements, DType type) { return place ? place.at(elements * size_of(type)) : place; }

Norm rows_of(Norm k, std::int64_t first, std::int64_t count) {
  k.rows = count;
  for (Place* place : {&k.x, &k.residual, &k.y}) *place = after(*place, first * k.hidden, k.type);
  k.statistics = after(k.statistics, first, DType::float32);
  return k;
}
NormAgain rows_of(NormAgain k, std::int64_t first, std::int64_t count) {
  k.rows = count;
  for (Place* place : {&k.x, &k.y}) *place = after(*place, first * k.hidden, k.type);
  k.statistics = after(k.statistics, first, DType::float32);
  return k;
}
Activate rows_of(Activate k, std::int64_t first, std::int64_t count) {
  k.rows = count;
  k.up = after(k.up, first * k.columns * (k.gated ? 2 : 1), k.type), k.h = after(k.h, first * k.columns, k.type);
  return k;
}
ActivateBackward rows_of(ActivateBackward k, std::int64_t first, std::int64_t count) {
  k.rows = count;
  for (Place* place : {&k.dh, &k.h}) *place = after(*place, first * k.columns, k.type);
  for (Place* place : {&k.up, &k.dup}) *place = after(*place, first * k.columns * (k.gated ? 2 : 1), k.type);
  return k;
}
LookUp rows_of(LookUp k, std::int64_t first, std::int64_t count) {
  k.rows = count;
  k.tokens = after(k.tokens, first, DType::float32), k.x = after(k.x, first * k.hidden, k.type);
  return k;
}
LossTile rows_of(LossTile k, std::int64_t first, std::int64_t count) {
  k.rows = count;
  k.logits = after(k.logits, first * k.tile.rows, k.type);
  for (Place* place : {&k.targets, &k.maximum, &k.sum, &k.target_logit}) *place = after(*place, first, DType::float32);
  return k;
}
LossBackward rows_of(LossBackward k, std::int64_t first, std::int64_t count) {
  k.rows = count;
  k.logits = after(k.logits, first * k.tile.rows, k.type);
  for (Place* place : {&k.targets, &k.log_sum_exp}) *place = after(*place, first, DType::float32);
  return k;
}
Round rows_of(Round k, std::int64_t first, std::int64_t count) {
  k.elements = count * kHidden;
  k.x = after(k.x, first * kHidden, DType::float32), k.y = after(k.y, first * kHidden, k.type);
  return k;
}

// `make` gives a kernel of kRows rows.
template <typename Make>
void check_cuts(const char* what, const Make& make) {
  Operands whole(1);
  auto kernel = make(whole);
  DeviceCopies on({.seed = 5});
  on.run({{.kernel = kernel}}, whole.memory(true));
  for (const std::vector<std::int64_t>& ends : {std::vector<std::int64_t>{1, 2, kRows}, {32, kRows}, {13, 40, 41, kRows}}) {
    Operands parts(1);
    make(parts);
    CallList calls;
    for (std::int64_t first = 0; const std::int64_t end : ends) {
      calls.push_back({.kernel = rows_of(kernel, first, end - first)});
      first = end;
    }
    on.run(calls, parts.memory(true));
    Kernel all = kernel;
    for (const OperandUse& operand : operands_of(all)) {
      if (operand.place->space != Space::value || operand.access == Access::read) continue;
      EXPECT_EQ(parts.data(*operand.place), whole.data(*operand.place)) << what;
    }
  }
}

class Cuts : public ::testing::TestWithParam<DType> {
 protected:
  Place matrix(Operands& of, std::int64_t columns = kHidden) const { return of.numbers(type, kRows * columns, -3, 3); }
  static Place floats(Operands& of, std::int64_t count) { return of.numbers(DType::float32, count, 1, 2); }
  static Place targets(Operands& of) { return of.integers(kRows, -100, kHidden - 1); }
  const DType type = GetParam();
};
INSTANTIATE_TEST_SUITE_P(Types, Cuts, ::testing::Values(DType::bfloat16, DType::float16, DType::float32));

TEST_P(Cuts, OfRowsChangeNoBit) {
  check_cuts("norm", [&](Operands& of) {
    return Norm{.type = type,
                .rows = kRows,
                .hidden = kHidden,
                .epsilon = 1e-5f,
                .x = matrix(of),
                .weight = of.numbers(type, kHidden),
                .residual = matrix(of),
                .y = matrix(of),
                .statistics = floats(of, kRows)};
  });
  check_cuts("norm again", [&](Operands& of) {
    return NormAgain{.type = type,
                     .rows = kRows,
                     .hidden = kHidden,
                     .x = matrix(of),
                     .weight = of.numbers(type, kHidden),
                     .statistics = floats(of, kRows),
                     .y = matrix(of)};
  });
  for (const bool gated : {false, true}) {
    const std::int64_t up = gated ? 2 * kHidden : kHidden;
    check_cuts("activate", [&](Operands& of) {
      return Activate{type, Activation::gelu_tanh, gated, kRows, kHidden, matrix(of, up), matrix(of)};
    });
    check_cuts("activate backward", [&](Operands& of) {
      return ActivateBackward{type,       Activation::silu, gated,          kRows,     kHidden,
                              matrix(of), matrix(of, up),   matrix(of, up), matrix(of)};
    });
  }
  check_cuts("look up", [&](Operands& of) {
    return LookUp{type, kRows, kHidden, 40, {5, 30}, 1.5f, of.integers(kRows, 0, 39), of.numbers(type, 30 * kHidden), matrix(of)};
  });
  check_cuts("round", [&](Operands& of) { return Round{type, kRows * kHidden, floats(of, kRows * kHidden), matrix(of)}; });
  for (const bool begins : {false, true}) {
    check_cuts("loss tile", [&](Operands& of) {
      return LossTile{type,
                      kRows,
                      {0, kHidden},
                      begins,
                      5.0f,
                      matrix(of),
                      targets(of),
                      floats(of, kRows),
                      floats(of, kRows),
                      floats(of, kRows)};
    });
  }
  check_cuts("loss backward", [&](Operands& of) {
    return LossBackward{type, kRows, {0, kHidden}, 0.0f, matrix(of), targets(of), floats(of, kRows), of.floats({0.5f})};
  });
}

// A backward must recompute the very values that the forward made.
TEST_P(Cuts, WhatIsMadeAgainIsTheSame) {
  DeviceCopies on({.seed = 6});
  Operands of(1);
  const Norm norm{.type = type,
                  .rows = kRows,
                  .hidden = kHidden,
                  .epsilon = 1e-5f,
                  .offset = 1,
                  .x = matrix(of),
                  .weight = of.numbers(type, kHidden),
                  .bias = of.numbers(type, kHidden),
                  .y = matrix(of),
                  .statistics = floats(of, 2 * kRows)};
  const NormAgain again{.type = type,
                        .rows = kRows,
                        .hidden = kHidden,
                        .offset = 1,
                        .x = norm.x,
                        .weight = norm.weight,
                        .bias = norm.bias,
                        .statistics = norm.statistics,
                        .y = matrix(of)};
  const Activate activate{type, Activation::silu, true, kRows, kHidden, matrix(of, 2 * kHidden), matrix(of)};
  const ActivateBackward backward{type,        Activation::silu,        true,      kRows, kHidden, matrix(of),
                                  activate.up, matrix(of, 2 * kHidden), matrix(of)};
  const PassMemory memory = of.memory(true);
  on.run({{.kernel = norm}, {.kernel = again}, {.kernel = activate}, {.kernel = backward}}, memory);
  EXPECT_EQ(of.data(norm.y), of.data(again.y));
  EXPECT_EQ(of.data(activate.h), of.data(backward.h));
}

}  // namespace
}  // namespace spillway::testing
