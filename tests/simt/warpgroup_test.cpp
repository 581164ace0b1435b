// Products of a warpgroup, and mistakes that a kernel may make around them, which must be noticed: each of these kernels is right
// without its mistake.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "memory/base/bfloat16.h"
#include "tests/simt/gpu.h"

namespace spillway::simt {
namespace {

using testing::HasSubstr;

constexpr int kColumns64 = 64, kTile = 64 * 64;

struct OneGroup {
  static constexpr int kThreads = 128;
  const std::function<void(const Gpu&)>* body;
  void operator()(const Gpu& gpu) const { (*body)(gpu); }
};

std::string error_of(const std::function<void(const Gpu&)>& body, Chip chip = Chip::sm_90) {
  try {
    Queue queue({.chip = chip});
    launch(queue, {.blocks = 1, .shared_bytes = 4 * kTile * 2}, OneGroup{&body});
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// Element (row, column) of the i-th tile of 64 x 64, and its value: a small integer.
Shared<BFloat16> place_of(const Gpu& gpu, int tile, int row, int column) {
  return gpu.shared<BFloat16>() + (tile * kTile + row * kColumns64 + (column / 8 ^ row % 8) * 8 + column % 8);
}
float value_of(int tile, int row, int column) { return static_cast<float>((row * (3 + tile) + column * 5) % 7 - 3); }
void fill(const Gpu& gpu, int tiles) {
  for (int i = gpu.thread(); i < tiles * kTile; i += OneGroup::kThreads) {
    const int tile = i / kTile, row = i % kTile / kColumns64, column = i % kColumns64;
    gpu.store(place_of(gpu, tile, row, column), BFloat16::from_float(value_of(tile, row, column)));
  }
}
Panels<BFloat16> tile_of(const Gpu& gpu, int tile) { return Panels<BFloat16>(gpu.shared<BFloat16>() + tile * kTile, kTile); }

// A lane's fragment of 16 columns of the first tile.
void hold(const Gpu& gpu, std::uint32_t (&held)[4], int column) {
  for (int i = 0; i < 4; ++i) {
    const int row = gpu.warp() * 16 + gpu.lane() / 4 + i % 2 * 8, k = column + i / 2 * 8 + 2 * (gpu.lane() % 4);
    held[i] = gpu.pack<BFloat16>(value_of(0, row, k), value_of(0, row, k + 1));
  }
}

// Expects each sum to be expected(row, column). Sums begin at 1.
template <int eights>
void expect_sums(const Gpu& gpu, const float (&c)[eights][4], const std::function<float(int, int)>& expected) {
  for (int j = 0; j < eights; ++j) {
    for (int i = 0; i < 4; ++i) {
      const int row = gpu.warp() * 16 + gpu.lane() / 4 + i / 2 * 8, column = 8 * j + 2 * (gpu.lane() % 4) + i % 2;
      EXPECT_EQ(c[j][i], expected(row, column)) << row << ", " << column;
    }
  }
}

enum class Form { rows, rows_added, columns_added };
template <int eights>
void with_sums(const Gpu& gpu, Form form) {
  float c[eights][4];
  for (auto& four : c)
    for (float& x : four) x = 1;
  fill(gpu, 3);
  gpu.show_to_products();
  gpu.sync();
  std::uint32_t left[4][4];
  for (int k = 0; k < 4; ++k) hold(gpu, left[k], 16 * k);
  gpu.begin_products();
  for (int k = 0; k < 4; ++k) {
    const auto rows = tile_of(gpu, 0) + 16 * k, by = tile_of(gpu, 1) + 16 * k;
    if (form == Form::columns_added) {
      gpu.add_columns(c, left[k], tile_of(gpu, 1) + 16 * k * kColumns64);
    } else if (form == Form::rows && k == 0) {
      gpu.multiply_rows(c, rows, by);
    } else {
      gpu.add_rows(c, rows, by);
    }
  }
  gpu.commit_products();
  gpu.wait_for_products<0>(c);
  expect_sums(gpu, c, [&](int row, int column) {
    float sum = form == Form::rows ? 0 : 1;
    for (int k = 0; k < 64; ++k) {
      // Rows from the 64th on, and columns, are those of the next tile.
      const int tile = 1 + column / 64, at = column % 64;
      sum += value_of(0, row, k) * (form == Form::columns_added ? value_of(tile, k, at) : value_of(tile, at, k));
    }
    return sum;
  });
}

TEST(Warpgroup, SumsOfAllForms) {
  for (const Form form : {Form::rows, Form::rows_added, Form::columns_added}) {
    EXPECT_EQ(error_of([&](const Gpu& gpu) { with_sums<8>(gpu, form); }), "");
    EXPECT_EQ(error_of([&](const Gpu& gpu) { with_sums<16>(gpu, form); }), "");
  }
}

// One product of the first tile's rows, held in registers, by those of the second; and steps that can be left out or done too
// much.
enum class Mistake {
  none,
  not_shown,
  shown_late,
  not_begun,
  sums_written,
  left_written,
  right_written,
  right_copied_over,
  not_committed,
  not_waited_for,
  one_group_too_few,
  off_by_a_row,
  without_a_warp,
  apart
};
void product_with(const Gpu& gpu, Mistake mistake) {
  const auto is = [&](Mistake other) { return mistake == other; };
  float c[8][4] = {};
  std::uint32_t left[4];
  hold(gpu, left, 0);
  fill(gpu, 2);
  if (!is(Mistake::not_shown) && !is(Mistake::shown_late)) gpu.show_to_products();
  gpu.sync();
  if (is(Mistake::shown_late)) gpu.show_to_products();
  if (is(Mistake::without_a_warp) && gpu.warp() == 3) return;
  if (!is(Mistake::not_begun)) gpu.begin_products();
  const auto right = tile_of(gpu, 1) + (is(Mistake::off_by_a_row) ? kColumns64 : 0);
  if (is(Mistake::apart) && gpu.warp() == 2) {
    gpu.add_columns(c, left, right);
  } else {
    gpu.add_columns(c, left, right);
  }
  if (!is(Mistake::not_committed)) gpu.commit_products();
  if (is(Mistake::sums_written)) c[3][1] = 0;
  if (is(Mistake::left_written)) left[2] = 0;
  if (is(Mistake::right_written) && gpu.thread() == 77) gpu.store(place_of(gpu, 1, 5, 5), {});
  if (is(Mistake::right_copied_over)) {
    gpu.sync();
    gpu.store(place_of(gpu, 1, gpu.thread() % 64, 0), {});
  }
  if (is(Mistake::not_waited_for)) return;
  is(Mistake::one_group_too_few) ? gpu.wait_for_products<1>(c) : gpu.wait_for_products<0>(c);
}

TEST(Warpgroup, MistakesAreNoticed) {
  const auto error_with = [](Mistake mistake) { return error_of([=](const Gpu& gpu) { product_with(gpu, mistake); }); };
  EXPECT_EQ(error_with(Mistake::none), "");
  EXPECT_THAT(error_with(Mistake::not_shown), HasSubstr("has not shown to products"));
  EXPECT_THAT(error_with(Mistake::shown_late), HasSubstr("has not shown to products"));
  EXPECT_THAT(error_with(Mistake::not_begun), HasSubstr("is not told that registers were written"));
  EXPECT_THAT(error_with(Mistake::sums_written), HasSubstr("sums of the product"));
  EXPECT_THAT(error_with(Mistake::left_written), HasSubstr("registers on the left side of the product"));
  EXPECT_THAT(error_with(Mistake::right_written), HasSubstr("race"));
  EXPECT_THAT(error_with(Mistake::right_copied_over), HasSubstr("race"));
  EXPECT_THAT(error_with(Mistake::not_committed), HasSubstr("still on their way"));
  EXPECT_THAT(error_with(Mistake::not_waited_for), HasSubstr("ends with products"));
  EXPECT_THAT(error_with(Mistake::one_group_too_few), HasSubstr("still on their way"));
  EXPECT_THAT(error_with(Mistake::off_by_a_row), HasSubstr("not aligned to their size"));
  EXPECT_THAT(error_with(Mistake::without_a_warp), HasSubstr("which others of it do not reach"));
  EXPECT_THAT(error_with(Mistake::apart), HasSubstr("of its warpgroup at a product"));
  EXPECT_THAT(error_of([](const Gpu& gpu) { product_with(gpu, Mistake::none); }, Chip::sm_120), HasSubstr("no warpgroup here"));
}

TEST(Warpgroup, ABarrierOfTooManyThreads) {
  EXPECT_EQ(error_of([](const Gpu& gpu) { gpu.sync_steps<128>(); }), "");
  EXPECT_THAT(error_of([](const Gpu& gpu) { gpu.sync_steps<256>(); }), HasSubstr("a barrier of 256 of 128 threads"));
}

}  // namespace
}  // namespace spillway::simt
