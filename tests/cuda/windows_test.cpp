// Rows in windows of their own are updated, copied and shared on the device to the bit as on the host; and gradients are added.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "memory/random.h"
#include "offload/cuda/add_gradients.cuh"
#include "offload/cuda/windows.cuh"
#include "tests/cuda/device.h"

namespace spillway {
namespace {

using device::Buffer;

float uniform(std::uint64_t stream, std::int64_t i) {  // in [-1, 1)
  return static_cast<float>(static_cast<std::int32_t>(random_bits(9, 0, stream, static_cast<std::uint64_t>(i)))) * 0x1p-31f;
}

constexpr AdamWSettings kSettings{
    .step = 4, .lr = 3e-3, .beta1 = 0.9, .beta2 = 0.95, .weight_decay = 0.1, .gradient_scale = 0.5, .seed = 31};
constexpr std::int64_t kWindows = 11;

// Windows of one array, with NaN around the rows.
template <typename T>
struct Array {
  Array(std::uint64_t stream, std::int64_t row_elements, const std::vector<cuda::WindowedRow>& rows, bool is_square = false)
      : hidden(row_elements),
        each(round_up((row_elements + 40) * Bytes{sizeof(T)}, 16)),
        bytes(static_cast<std::size_t>(kWindows * each)) {
    for (const cuda::WindowedRow& of : rows) {
      for (std::int64_t i = 0; i < hidden; ++i) {
        const float x = uniform(stream, of.window * hidden + i);
        if constexpr (std::is_integral_v<T>) {
          row(of)[i] = static_cast<T>(x * 0x1p15f);
        } else {
          row(of)[i] = from_float<T>(is_square ? x * x : x);
        }
      }
    }
  }
  cuda::Windows windows() const { return {bytes.data(), each}; }
  T* row(const cuda::WindowedRow& of) const {
    return reinterpret_cast<T*>(bytes.data() + of.window * each + of.within[sizeof(T) == 4 ? 1 : 0]);
  }
  void expect(const Array& host, const char* what) const {
    EXPECT_EQ(std::memcmp(bytes.data(), host.bytes.data(), bytes.all().size()), 0) << what;
  }
  std::int64_t hidden;
  Bytes each;
  Buffer<std::byte> bytes;
};

// Of two blocks, of which one does not decay; some gradients are apart, the others in windows.
std::vector<cuda::WindowedRow> rows_of(std::int64_t hidden) {
  std::vector<cuda::WindowedRow> rows;
  for (std::int64_t i = 0; i < kWindows; i += i % 3 == 0 ? 2 : 1) {
    const auto before = static_cast<std::int32_t>(hidden % 8 == 0 ? i % 3 * 8 : i);
    rows.push_back({.block = static_cast<std::uint64_t>(i % 2),
                    .element = (i * 7 + 60000) * hidden,
                    .window = i,
                    .gradient = i % 4 == 1 ? -1 : kWindows - 1 - i,
                    .within = {2 * before, 4 * before},
                    .decays = static_cast<std::int32_t>(1 - i % 2)});
  }
  return rows;
}

template <typename State, typename Weight, typename Moment, typename Gradient>
void check_update(std::int64_t hidden, bool has_windows) {
  SCOPED_TRACE(hidden);
  const std::vector<cuda::WindowedRow> rows = rows_of(hidden);
  const Array<Weight> weight(1, hidden, rows), weight_host(1, hidden, rows);
  const Array<std::int16_t> low(6, hidden, rows), low_host(6, hidden, rows);
  const Array<Moment> m(2, hidden, rows), m_host(2, hidden, rows), v(3, hidden, rows, true), v_host(3, hidden, rows, true);
  const Array<Gradient> gradients(4, hidden, rows);
  Buffer<Gradient> apart(static_cast<std::size_t>(kWindows * hidden));
  for (std::int64_t i = 0; i < kWindows * hidden; ++i) apart.data()[i] = from_float<Gradient>(uniform(5, i));
  const Buffer<cuda::WindowedRow> device_rows{std::span<const cuda::WindowedRow>(rows)};
  device::Queue queue({.seed = 3});
  cuda::device_adamw_of_windows(
      queue, cuda::AdamWOfWindows<State, Gradient, 1>{.constants = constants_of(kSettings, Decay::applied),
                                                      .seed = kSettings.seed,
                                                      .step = static_cast<std::uint64_t>(kSettings.step),
                                                      .count = std::ssize(rows),
                                                      .hidden = hidden,
                                                      .rows = device_rows.data(),
                                                      .weight = weight.windows(),
                                                      .low = low.windows(),
                                                      .m = m.windows(),
                                                      .v = v.windows(),
                                                      .gradients = has_windows ? gradients.windows() : cuda::Windows{},
                                                      .apart = apart.data()});
  queue.synchronize();
  const std::vector<Gradient> zeros(static_cast<std::size_t>(hidden), from_float<Gradient>(0.0f));
  for (const cuda::WindowedRow& row : rows) {
    const Gradient* const g = row.gradient >= 0 ? apart.data() + row.gradient * hidden
                              : has_windows     ? gradients.row(row)
                                                : zeros.data();
    const AdamWRun run{
        .block = row.block, .begin = row.element, .count = hidden, .decay = row.decays != 0 ? Decay::applied : Decay::none};
    State state;
    if constexpr (std::is_same_v<State, Fp32State>) {
      state = {weight_host.row(row), m_host.row(row), v_host.row(row)};
    } else {
      state = {weight_host.row(row), low_host.row(row), m_host.row(row), v_host.row(row)};
    }
    host_adamw(kSettings, run, source_of(state), g, state);
  }
  weight.expect(weight_host, "weight"), low.expect(low_host, "low"), m.expect(m_host, "m"), v.expect(v_host, "v");
}

TEST(Windows, RowsAreUpdatedAsOnTheHost) {
  for (const std::int64_t hidden : {24, 7, 1}) {
    for (const bool has_windows : {true, false}) {
      check_update<ExactState, BFloat16, float, float>(hidden, has_windows);
      check_update<CompactState, BFloat16, BFloat16, BFloat16>(hidden, has_windows);
      check_update<Fp32State, float, float, float>(hidden, has_windows);
    }
  }
}

template <typename T, int n>
void check_copy(std::int64_t hidden) {
  const std::vector<cuda::WindowedRow> rows = rows_of(hidden);
  const Array<T> weight(1, hidden, rows);
  const Buffer<cuda::WindowedRow> device_rows{std::span<const cuda::WindowedRow>(rows)};
  const Buffer<T> to(rows.size() * static_cast<std::size_t>(hidden));
  device::Queue queue;
  const cuda::CopyFromWindows<T, n> kernel{std::ssize(rows), hidden, device_rows.data(), weight.windows(), to.data()};
  launch(queue, {(std::ssize(rows) * hidden / n + kernel.kThreads - 1) / kernel.kThreads}, kernel);
  queue.synchronize();
  for (std::size_t i = 0; i < rows.size(); ++i)
    EXPECT_EQ(std::memcmp(to.data() + static_cast<std::int64_t>(i) * hidden, weight.row(rows[i]),
                          static_cast<std::size_t>(hidden) * sizeof(T)),
              0);
}
TEST(Windows, WeightsAreCopied) {
  check_copy<BFloat16, 1>(7), check_copy<BFloat16, 8>(64), check_copy<float, 1>(7), check_copy<float, 4>(64);
}

template <typename T>
void check_share() {
  constexpr std::int64_t count = 4000;
  const Buffer<T> windows(count), expected(count);
  std::vector<std::byte> bytes(count * sizeof(T));
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(random_bits(1, 2, 3, i));
  std::memcpy(windows.data(), bytes.data(), bytes.size()), std::memcpy(expected.data(), bytes.data(), bytes.size());
  const std::vector<cuda::WindowPart> parts = {{0, 1000, 300}, {0, 2000, 1}, {500, 3000, 256}, {500, 3500, 7}};
  const Buffer<cuda::WindowPart> device_parts{std::span<const cuda::WindowPart>(parts)};
  device::Queue queue;
  launch(queue, {std::ssize(parts)}, cuda::ShareWindows<T>{device_parts.data(), windows.data()});
  queue.synchronize();
  for (const cuda::WindowPart& part : parts) std::copy_n(expected.data() + part.from, part.count, expected.data() + part.to);
  EXPECT_EQ(std::memcmp(windows.data(), expected.data(), bytes.size()), 0);
}
TEST(Windows, WhatOverlapsIsShared) { check_share<std::uint16_t>(), check_share<cuda::Pack<std::uint32_t, 4>>(); }

TEST(AddGradients, IsTheHostsSum) {
  for (const std::int64_t shift : {0, 1}) {
    for (const std::int64_t elements : {1, 1024, 3001}) {
      Buffer<float> sum(static_cast<std::size_t>(elements + shift)), addend(sum.all().size());
      std::vector<float> expected;
      for (std::int64_t i = 0; i < elements; ++i) {
        sum.data()[shift + i] = uniform(1, i), addend.data()[shift + i] = uniform(2, i);
        expected.push_back(uniform(1, i) + uniform(2, i));
      }
      device::Queue queue({.counts = true});
      cuda::device_add_gradients(queue, elements, addend.data() + shift, sum.data() + shift);
      queue.synchronize();
      EXPECT_EQ(std::memcmp(sum.data() + shift, expected.data(), expected.size() * sizeof(float)), 0);
      if (device::kCounts && elements == 1024 && shift == 0) {
        EXPECT_EQ(queue.counts().read_bytes + queue.counts().written_bytes, elements * 12);
      }
    }
  }
}

}  // namespace
}  // namespace spillway
