#include "trainer/keep/state_conversion.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>

#include "offload/host_adamw.h"

namespace spillway {
namespace {

constexpr std::int64_t kElements = 5000;

struct State {
  explicit State(StateForm form_) : form(form_) {
    for (const StateArray& array : trained_state(form))
      arrays[static_cast<std::size_t>(array.kind)].resize(static_cast<std::size_t>(kElements * array.each()));
  }
  std::array<const std::byte*, kStateKinds> in() const {
    std::array<const std::byte*, kStateKinds> pointers{};
    for (std::size_t kind = 0; kind < kStateKinds; ++kind) pointers[kind] = arrays[kind].empty() ? nullptr : arrays[kind].data();
    return pointers;
  }
  std::array<std::byte*, kStateKinds> out() {
    std::array<std::byte*, kStateKinds> pointers{};
    for (std::size_t kind = 0; kind < kStateKinds; ++kind) pointers[kind] = arrays[kind].empty() ? nullptr : arrays[kind].data();
    return pointers;
  }
  template <typename T>
  T& at(StateKind kind, std::int64_t i) {
    return reinterpret_cast<T*>(arrays[static_cast<std::size_t>(kind)].data())[i];
  }
  StateForm form;
  std::array<std::vector<std::byte>, kStateKinds> arrays;
};

State converted(const State& from, StateForm to) {
  State made(to);
  convert_state(from.form, from.in(), to, made.out(), kElements);
  return made;
}

State of_random_numbers() {
  State state(StateForm::fp32);
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  for (std::int64_t i = 0; i < kElements; ++i) {
    state.at<float>(StateKind::weight, i) = i % 50 == 0 ? 0.0f : normal(random);
    state.at<float>(StateKind::m, i) = 1e-3f * normal(random);
    state.at<float>(StateKind::v, i) = std::abs(1e-7f * normal(random));
  }
  return state;
}

TEST(StateConversion, ExactAndFp32HoldTheSameBits) {
  const State single = of_random_numbers();
  const State exact = converted(single, StateForm::exact);
  EXPECT_EQ(converted(exact, StateForm::fp32).arrays, single.arrays);
  EXPECT_EQ(converted(converted(exact, StateForm::fp32), StateForm::exact).arrays, exact.arrays);
}

TEST(StateConversion, CompactKeepsTheWeightsAndRoundsTheMoments) {
  State single = of_random_numbers();
  State compact = converted(single, StateForm::compact), back = converted(compact, StateForm::fp32);
  EXPECT_EQ(back.arrays[static_cast<std::size_t>(StateKind::weight)], single.arrays[static_cast<std::size_t>(StateKind::weight)]);
  for (const StateKind kind : {StateKind::m, StateKind::v}) {
    for (std::int64_t i = 0; i < kElements; ++i) {
      EXPECT_EQ(back.at<float>(kind, i), BFloat16::from_float(single.at<float>(kind, i)).to_float());
    }
  }
  // After the first rounding nothing more is lost.
  EXPECT_EQ(converted(converted(compact, StateForm::exact), StateForm::compact).arrays, compact.arrays);
}

TEST(StateConversion, Fp16HasTheMasterAndItsRounding) {
  State single = of_random_numbers();
  single.at<float>(StateKind::weight, 3) = 1e6f;  // beyond fp16's range
  const State exact = converted(single, StateForm::exact), half = converted(exact, StateForm::fp16);
  State halves = half;
  for (std::int64_t i = 0; i < kElements; ++i) {
    EXPECT_EQ(halves.at<float>(StateKind::master, i), single.at<float>(StateKind::weight, i));
    EXPECT_EQ(halves.at<Float16>(StateKind::weight, i), finite_float16(single.at<float>(StateKind::weight, i)));
  }
  EXPECT_EQ(halves.at<Float16>(StateKind::weight, 3).to_float(), 65504.0f);
  EXPECT_EQ(converted(half, StateForm::fp32).arrays, single.arrays);
  EXPECT_EQ(converted(half, StateForm::exact).arrays, exact.arrays);
}

}  // namespace
}  // namespace spillway
