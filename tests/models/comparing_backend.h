// Runs each kernel call twice on the same operands, by the plain loops and by the tested backend, compares what the two wrote,
// and goes on with the tested backend's results.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <map>
#include <span>
#include <vector>

#include "memory/base/element.h"
#include "models/reference/reference_backend.h"
#include "tests/models/golden_case.h"
#include "tests/models/in_core_runner.h"

namespace spillway::testing {

class ComparingBackend final : public Backend {
 public:
  explicit ComparingBackend(Backend& tested) : tested_(tested) {}  // `tested` must outlive it
  void prepare(const CompiledModel& model) override { tested_.prepare(model); }
  void run(const CallList& list, const PassMemory& memory) override {
    for (const KernelCall& call : list) {
      KernelCall one = call;
      std::vector<Written> written;
      for (const OperandUse& operand : operands_of(one.kernel)) {
        std::byte* const at = memory.at(*operand.place);
        if (operand.access == Access::read || operand.is_room || at == nullptr) continue;
        written.push_back({at, operand.type, operand.place->space, copy(at, operand.reach), {}});
      }
      const CallList alone{call};
      reference_.run(alone, memory);
      for (Written& w : written) w.expected = copy(w.at, static_cast<Bytes>(w.before.size()));
      for (const Written& w : written) std::memcpy(w.at, w.before.data(), w.before.size());
      tested_.run(alone, memory);
      for (const Written& w : written) compare(call.kernel, w);
      ++kernels_[call.kernel.index()];
    }
  }
  const std::map<std::size_t, int>& kernels() const { return kernels_; }

 private:
  struct Written {
    std::byte* at;
    DType type;
    Space space;
    std::vector<std::byte> before, expected;
  };
  static std::vector<std::byte> copy(const std::byte* at, Bytes bytes) { return {at, at + bytes}; }

  // Allows what the rounding of sums of this size gives, relative to the largest of the numbers.
  static void compare(const Kernel& kernel, const Written& w) {
    if (w.space == Space::word && w.expected.size() == sizeof(std::int32_t)) {
      EXPECT_EQ(std::memcmp(w.at, w.expected.data(), w.expected.size()), 0) << "kernel " << kernel.index();
      return;
    }
    for (std::size_t at = 0; w.space == Space::word && at < w.expected.size(); at += sizeof(double)) {
      double expected = 0, actual = 0;
      std::memcpy(&expected, w.expected.data() + at, sizeof(expected));
      std::memcpy(&actual, w.at + at, sizeof(actual));
      EXPECT_NEAR(actual, expected, 1e-5 * std::abs(expected)) << "kernel " << kernel.index();
    }
    if (w.space == Space::word) return;
    const std::size_t count = w.expected.size() / static_cast<std::size_t>(size_of(w.type));
    double largest = 0, worst = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const double expected = element(w.expected.data(), w.type, static_cast<std::int64_t>(i)),
                   actual = element(w.at, w.type, static_cast<std::int64_t>(i));
      if (std::isnan(expected) && std::isnan(actual)) continue;  // bytes that nobody wrote
      ASSERT_EQ(std::isfinite(expected), std::isfinite(actual)) << "kernel " << kernel.index() << ", element " << i;
      if (!std::isfinite(expected)) continue;
      largest = std::max(largest, std::abs(expected));
      worst = std::max(worst, std::abs(expected - actual));
    }
    const bool rounds = w.type != DType::float32 || rounds_between(kernel);
    EXPECT_LE(worst, (rounds ? 1.0 / 64 : 2e-5) * largest) << "kernel " << kernel.index();
  }
  // An expert rounds what is between its products to bf16, where the plain loops do not.
  static bool rounds_between(const Kernel& kernel) {
    const auto* forward = std::get_if<kernels::Experts>(&kernel);
    const auto* backward = std::get_if<kernels::ExpertsBackward>(&kernel);
    return (forward != nullptr && forward->type == DType::bfloat16) || (backward != nullptr && backward->type == DType::bfloat16);
  }

  ReferenceBackend reference_;
  Backend& tested_;
  std::map<std::size_t, int> kernels_;
};

// Runs every kernel of a golden case's backward passes, on the operands that training gives it, beside the plain loops.
inline void compare_golden(const GoldenCase& golden, DType dtype, HeadMode head, Backend& tested,
                           std::initializer_list<SavedValues> all_saved) {
  ComparingBackend backend(tested);
  Cuts cuts = canonical_cuts(golden.config);
  if (head == HeadMode::tiled) cuts = {.vocabulary_rows = 96, .mlp_columns = 48, .head_strip = 24};
  InCoreRunner runner(golden.config, {dtype, 2, golden.sequence, head}, cuts, 2, &backend);
  runner.load(SafetensorsReader(golden.directory));
  const auto tokens = std::span(golden.tokens).first(static_cast<std::size_t>(4 * golden.sequence)),
             targets = std::span(golden.targets).first(tokens.size());
  for (const SavedValues saved : all_saved) runner.backward(tokens, targets, saved);
}

}  // namespace spillway::testing
