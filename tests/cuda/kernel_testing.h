// A kernel call on the emulated device beside the plain loops: its operands, and checks of its results, of other orders of blocks
// and warps, and of the bytes that it moves. Not here: the shapes (kernels_test.cpp), the table of bytes (bytes_test.cpp).
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <vector>

#include "memory/base/element.h"
#include "models/reference/reference_backend.h"
#include "tests/cuda/device_copies.h"

namespace spillway::testing {

// Operands of one call, on the host. Each is a value of its own, and begins `shift` elements behind an address that packs fit.
class Operands {
 public:
  explicit Operands(std::uint64_t seed, std::int64_t shift = 0) : random_(seed), shift_(shift) {}

  Place numbers(DType type, std::int64_t count, double from = -1, double to = 1) {
    const Bytes offset = shift_ * size_of(type);
    std::vector<std::byte>& data = add(offset + count * size_of(type));
    std::fill_n(data.begin(), offset, std::byte{0xff});
    std::uniform_real_distribution<double> uniform(from, to);
    for (std::int64_t i = 0; i < count; ++i) set_element(data.data(), type, shift_ + i, uniform(random_));
    return last().at(offset);
  }
  Place integers(std::int64_t count, std::int32_t from, std::int32_t to) {
    std::vector<std::byte>& data = add(count * 4);
    std::uniform_int_distribution<std::int32_t> uniform(from, to);
    for (std::int64_t i = 0; i < count; ++i) reinterpret_cast<std::int32_t*>(data.data())[i] = uniform(random_);
    return last();
  }
  Place words(const std::vector<std::int32_t>& values) {
    std::vector<std::byte>& data = add(std::ssize(values) * 4);
    std::memcpy(data.data(), values.data(), data.size());
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
  std::int64_t shift_;
  std::vector<std::vector<std::byte>> values_;
  std::vector<std::byte*> addresses_;
  MicroBatchWords words_{.loss_sum = 0.5, .loss_scale = 0.25f, .position = 3, .logits_row = 5, .dropout = 0x1234567890abcdef};
};

struct Limits {
  double bytes = 1.1;  // moved per byte of the operands; calls that allow more say why
  bool any_conflicts = false;
  std::int64_t shift = 0;  // of operands
  double slack = 1;        // on the tolerance
};

// The error that a number may have, relative to the largest: that of a sum in fp32, or of rounding to the result's type.
inline double tolerance_of(DType type) {
  return type == DType::float32 ? 2e-5 : type == DType::bfloat16 ? 1.0 / 128 : 1.0 / 1024;
}

// `make` gives the kernel with its operands; the same ones for the same seed.
inline void check_kernel(const std::function<Kernel(Operands&)>& make, const char* what, bool first = true, Limits limits = {}) {
  Operands expected(1, limits.shift);
  Kernel kernel = make(expected);
  ReferenceBackend().run({{.kernel = kernel}}, expected.memory(first));
  std::vector<std::vector<std::byte>> before;
  for (const std::uint64_t seed : {1, 2}) {
    Operands actual(1, limits.shift);
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
      EXPECT_LE(worst, limits.slack * tolerance_of(operand.type) * largest) << what;
      if (seed == 1) {
        before.push_back(got);
      } else {
        EXPECT_EQ(got, before.front()) << what << ": other bits in another order";
        before.erase(before.begin());
      }
    }
    const device::Counts counts = on.queue().counts();
    // The ends of small rows share sectors; the table of bytes (bytes_test.cpp) is at a size that models have.
    if (device::kCounts && seed == 1 && needed > 512 * kKiB && limits.shift == 0) {
      EXPECT_LE(static_cast<double>(counts.read_bytes + counts.written_bytes), limits.bytes * static_cast<double>(needed))
          << what;
    }
    EXPECT_TRUE(limits.any_conflicts || counts.bank_conflicts == 0) << what << ": " << counts.bank_conflicts << " conflicts";
  }
}

}  // namespace spillway::testing
