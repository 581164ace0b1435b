#include "tests/simt/warpgroup.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cstring>

namespace spillway::simt {
namespace {

constexpr std::uint32_t kOnTheirWay = 0x7fc0dead;  // a NaN
constexpr std::uint32_t kPanelColumns = 64, kRowBytes = 128, kTurnedBytes = 1024, kChunk = 8;

// The place of a lane's sum, as in the fragments of mma: a lane has its part of its warp's 16 rows.
std::size_t place_of(std::size_t lane, std::size_t index, std::size_t columns) {
  const std::size_t row = lane / 32 * 16 + lane % 32 / 4 + index % 4 / 2 * 8, column = index / 4 * 8 + 2 * (lane % 4) + index % 2;
  return row * columns + column;
}

// Chunks of 16 bytes are turned by bits 7 to 9 of the address.
std::uint32_t turned(std::uint32_t byte) { return byte ^ (byte >> 7 & 7) << 4; }

// Calls visit(chunk's byte, row, first column) for rows of 64 numbers: `columns` of each, from the panel's first on.
template <typename F>
void each_chunk(const Panel& panel, std::uint32_t rows, std::uint32_t columns, const Site& at, const F& visit) {
  if (panel.byte / kRowBytes * kRowBytes % kTurnedBytes != 0)
    throw Error(fmt::format("{} takes a tile from byte {} of shared memory on: eight rows of it are not aligned to their size",
                            text_of(at), panel.byte));
  for (std::uint32_t row = 0; row < rows; ++row) {
    for (std::uint32_t column = 0; column < columns; column += kChunk) {
      const std::uint32_t of_panel = column / kPanelColumns * panel.next + column % kPanelColumns * 2;
      visit(turned(panel.byte + row * kRowBytes + of_panel), row, column);
    }
  }
}
template <typename F>
void each_right_chunk(const GroupProduct& of, const Site& at, const F& visit) {
  const auto columns = static_cast<std::uint32_t>(of.columns);
  of.held != nullptr ? each_chunk(of.right, kDepth, columns, at, visit) : each_chunk(of.right, columns, kDepth, at, visit);
}

}  // namespace

Warpgroup::Sums& Warpgroup::sums_of(std::span<const GroupProduct* const> of_lanes) {
  const auto same = std::ranges::find_if(sums_, [&](const Sums& sums) { return sums.of_lanes[0] == of_lanes[0]->c; });
  if (same != sums_.end()) return *same;
  const auto columns = static_cast<std::size_t>(of_lanes[0]->columns);
  Sums sums{.values = std::vector<float>(kGroupRows * columns)};
  for (std::size_t lane = 0; lane < of_lanes.size(); ++lane) {
    float* const c = sums.of_lanes[lane] = of_lanes[lane]->c;
    for (std::size_t i = 0; i < columns / 2; ++i) {
      sums.values[place_of(lane, i, columns)] = c[i];
      c[i] = std::bit_cast<float>(kOnTheirWay);
    }
  }
  return sums_.emplace_back(std::move(sums));
}

void Warpgroup::multiply(std::span<const GroupProduct* const> of_lanes, const Readers& readers, SharedMemory& shared,
                         const Site& at) {
  if (!is_begun_) throw Error(fmt::format("a product at {} is not told that registers were written before it", text_of(at)));
  ++sums_of(of_lanes).products;
  Product product{.of = *of_lanes[0], .at = at, .group = groups_};
  for (std::size_t lane = 0; lane < of_lanes.size() && product.of.held != nullptr; ++lane) {
    product.held[lane] = of_lanes[lane]->held;
    std::copy_n(of_lanes[lane]->held, 4, product.held_before[lane].begin());
  }
  const auto check = [&](std::uint32_t byte, std::uint32_t, std::uint32_t) {
    shared.read_for_product(readers.one, byte, 16, at);
  };
  if (product.of.held == nullptr) each_chunk(product.of.left, kGroupRows, kDepth, at, check);
  each_right_chunk(product.of, at, check);
  products_.push_back(product);
}

void Warpgroup::make(const Product& product, Chip chip, const Readers& readers, SharedMemory& shared, const Site& at) {
  const GroupProduct& of = product.of;
  Sums& sums = *std::ranges::find_if(sums_, [&](const Sums& each) { return each.of_lanes[0] == of.c; });
  const auto columns = static_cast<std::size_t>(of.columns);
  for (std::size_t lane = 0; lane < sums.of_lanes.size(); ++lane) {
    for (std::size_t i = 0; i < columns / 2; ++i) {
      if (std::bit_cast<std::uint32_t>(sums.of_lanes[lane][i]) != kOnTheirWay)
        throw Error(fmt::format("sums of the product at {} were written before it was waited for at {}", text_of(product.at),
                                text_of(at)));
    }
    if (of.held != nullptr && !std::equal(product.held_before[lane].begin(), product.held_before[lane].end(), product.held[lane]))
      throw Error(fmt::format("registers on the left side of the product at {} were written before it was waited for at {}",
                              text_of(product.at), text_of(at)));
  }
  Line left[kGroupRows];
  std::vector<Line> right(columns);
  const auto read = [&](std::uint32_t byte) {
    std::array<std::uint16_t, kChunk> numbers;
    shared.read_for_product(readers.one, byte, 16, product.at);
    std::memcpy(numbers.data(), shared.read_for_product(readers.other, byte, 16, product.at), 16);
    return numbers;
  };
  for (std::size_t lane = 0; lane < sums.of_lanes.size() && of.held != nullptr; ++lane) {
    for (std::size_t i = 0; i < 8; ++i) {
      const std::size_t row = lane / 32 * 16 + lane % 32 / 4 + i / 2 % 2 * 8, k = i / 4 * 8 + 2 * (lane % 4) + i % 2;
      left[row][k] = static_cast<std::uint16_t>(product.held_before[lane][i / 2] >> i % 2 * 16);
    }
  }
  if (of.held == nullptr)
    each_chunk(of.left, kGroupRows, kDepth, product.at, [&](std::uint32_t byte, std::uint32_t row, std::uint32_t column) {
      std::ranges::copy(read(byte), left[row].begin() + column);
    });
  each_right_chunk(of, product.at, [&](std::uint32_t byte, std::uint32_t row, std::uint32_t column) {
    const auto numbers = read(byte);
    for (std::uint32_t i = 0; i < kChunk; ++i)
      (of.held != nullptr ? right[column + i][row] : right[row][column + i]) = numbers[i];
  });
  if (!of.adds) std::ranges::fill(sums.values, 0.0f);
  multiply_add(chip, of.type, left, right, sums.values.data());
  if (--sums.products == 0) give_back(sums), sums_.erase(sums_.begin() + (&sums - sums_.data()));
}

void Warpgroup::give_back(const Sums& sums) {
  const std::size_t columns = sums.values.size() / kGroupRows;
  for (std::size_t lane = 0; lane < sums.of_lanes.size(); ++lane)
    for (std::size_t i = 0; i < columns / 2; ++i) sums.of_lanes[lane][i] = sums.values[place_of(lane, i, columns)];
}

void Warpgroup::wait(int groups_left, const float* sums, Chip chip, const Readers& readers, SharedMemory& shared,
                     const Site& at) {
  const auto is_awaited = [&](const Product& product) { return product.group < groups_ - groups_left; };
  for (const Product& product : products_)
    if (is_awaited(product)) make(product, chip, readers, shared, at);
  std::erase_if(products_, is_awaited);
  if (std::ranges::any_of(sums_, [&](const Sums& each) { return each.of_lanes[0] == sums; }))
    throw Error(fmt::format("sums that are waited for at {} are still on their way", text_of(at)));
  is_begun_ = false;
}

}  // namespace spillway::simt
