// A block that is updated while its gradients are squared, and one whose touched rows are kept apart: on the device to the bit as
// on the host, whatever part of the block an update has.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <vector>

#include "memory/random.h"
#include "offload/block_squares.h"
#include "offload/cuda/block_update.cuh"
#include "offload/cuda/rows.cuh"
#include "offload/host_adamw.h"
#include "tests/cuda/device.h"

namespace spillway {
namespace {

using device::Buffer;

float uniform(std::uint64_t stream, std::int64_t i) {  // in [-1, 1)
  return static_cast<float>(static_cast<std::int32_t>(random_bits(7, 0, stream, static_cast<std::uint64_t>(i)))) * 0x1p-31f;
}

template <typename T>
Buffer<T> numbers(std::uint64_t stream, std::int64_t count, bool squared = false) {
  Buffer<T> buffer(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    const float x = uniform(stream, i);
    buffer.data()[i] = from_float<T>(squared ? x * x : x);
  }
  return buffer;
}

template <typename T>
void expect_same(const Buffer<T>& device, const Buffer<T>& host, const char* what) {
  ASSERT_EQ(device.all().size(), host.all().size());
  for (std::size_t i = 0; i < host.all().size(); ++i)
    ASSERT_EQ(std::memcmp(&device.all()[i], &host.all()[i], sizeof(T)), 0) << what << ", element " << i;
}

constexpr AdamWSettings settings_of(std::int64_t step) {
  return {.step = step, .lr = 3e-3, .beta1 = 0.9, .beta2 = 0.95, .weight_decay = 0.1, .gradient_scale = 1, .seed = 23};
}

// A block's state, of which some elements are taken.
template <typename Moment>
struct SplitArrays {
  explicit SplitArrays(std::int64_t count)
      : high(numbers<BFloat16>(1, count)),
        low(static_cast<std::size_t>(count)),
        m(numbers<Moment>(2, count)),
        v(numbers<Moment>(3, count, true)) {
    for (std::int64_t i = 0; i < count; ++i)
      low.data()[i] = static_cast<std::int16_t>(random_bits(1, 1, 1, static_cast<std::uint64_t>(i)));
  }
  SplitState<Moment> from(std::int64_t i) const { return {high.data() + i, low.data() + i, m.data() + i, v.data() + i}; }
  void expect(const SplitArrays& host) const {
    expect_same(high, host.high, "high"), expect_same(low, host.low, "low");
    expect_same(m, host.m, "m"), expect_same(v, host.v, "v");
  }
  Buffer<BFloat16> high;
  Buffer<std::int16_t> low;
  Buffer<Moment> m, v;
};
struct Fp32Arrays {
  explicit Fp32Arrays(std::int64_t count)
      : weight(numbers<float>(1, count)), m(numbers<float>(2, count)), v(numbers<float>(3, count, true)) {}
  Fp32State from(std::int64_t i) const { return {weight.data() + i, m.data() + i, v.data() + i}; }
  void expect(const Fp32Arrays& host) const {
    expect_same(weight, host.weight, "weight"), expect_same(m, host.m, "m"), expect_same(v, host.v, "v");
  }
  Buffer<float> weight, m, v;
};

// --- squares with the update ----------------------------------------------------------------------------------------------

// Pieces that begin and end anywhere, of which some do not decay, with NaN between them.
struct Block {
  ParameterBlock of{.elements = 6144};
  std::vector<cuda::CountedRange> ranges;
  std::vector<std::int32_t> decays;
  Buffer<float> gradient{6144};

  Block() {
    of.pieces = {{.rows = 27, .columns = 41, .begin = 0},
                 {.decay = Decay::none, .rows = 100, .begin = 1152},
                 {.rows = 33, .columns = 70, .begin = 1280},
                 {.decay = Decay::none, .rows = 33, .columns = 65, .begin = 3648}};
    for (const TensorPiece& piece : of.pieces) {
      ranges.push_back({piece.begin, piece.begin + piece.elements()});
      decays.push_back(piece.decay == Decay::applied ? 1 : 0);
      for (std::int64_t i = piece.begin; i < piece.begin + piece.elements(); ++i) gradient.data()[i] = uniform(4, i);
    }
  }
};

struct Part {
  std::int64_t begin, elements, node;
};
// Whole; cut where updates are; and where a rank's part may begin.
constexpr Part kParts[] = {{0, 6144, 1024}, {2048, 2048, 1024}, {4096, 2048, 256}, {1040, 3008, 16}};

template <typename Arrays>
void check_square_and_update(std::int64_t offset) {
  const Block block;
  const Buffer<cuda::CountedRange> ranges{std::span<const cuda::CountedRange>(block.ranges)};
  const Buffer<std::int32_t> decays{std::span<const std::int32_t>(block.decays)};
  for (const Part& part : kParts) {
    // Where vectors do not fit, all begins an element further.
    const Arrays device(block.of.elements + offset), host(block.of.elements + offset);
    Buffer<float> gradient(static_cast<std::size_t>(block.of.elements + offset));
    std::ranges::copy(block.gradient.all(), gradient.data() + offset);
    const std::int64_t nodes = part.elements / part.node;
    const Buffer<double> sums(static_cast<std::size_t>(nodes));
    device::Queue queue({.seed = static_cast<std::uint64_t>(part.begin + 1)});
    cuda::device_square_and_update(
        queue, settings_of(3), 5,
        {part.begin, part.elements, part.node, sums.data(), ranges.data(), decays.data(), static_cast<int>(block.ranges.size())},
        device.from(offset + part.begin), gradient.data() + offset + part.begin);
    queue.synchronize();
    for (const TensorPiece& piece : block.of.pieces) {
      const std::int64_t from = std::max(piece.begin, part.begin),
                         to = std::min(piece.begin + piece.elements(), part.begin + part.elements);
      if (from >= to) continue;
      const auto state = host.from(offset + from);
      host_adamw(settings_of(3), {.block = 5, .begin = from, .count = to - from, .decay = piece.decay}, source_of(state),
                 gradient.data() + offset + from, state);
    }
    device.expect(host);
    // All of the block's squares, of which a part's are nodes.
    std::vector<float> counted(static_cast<std::size_t>(block.of.elements), 0.0f);
    for (const auto& range : block.ranges)
      std::copy(block.gradient.data() + range.begin, block.gradient.data() + range.end, counted.begin() + range.begin);
    std::vector<double> expected(static_cast<std::size_t>(nodes));
    square_nodes(part.elements, part.node, {counted.data() + part.begin}, expected.data());
    for (std::int64_t i = 0; i < nodes; ++i) ASSERT_EQ(sums.data()[i], expected[static_cast<std::size_t>(i)]) << i;
  }
}

TEST(SquareAndUpdate, IsTheHostsInAnyPart) {
  for (const std::int64_t offset : {0, 1}) {
    check_square_and_update<SplitArrays<float>>(offset);
    check_square_and_update<Fp32Arrays>(offset);
  }
}

// Nothing twice, the gradients among it.
TEST(SquareAndUpdate, MovesWhatItsOperandsHave) {
  if (!device::kCounts) GTEST_SKIP() << "bytes are counted on the emulated device";
  constexpr std::int64_t count = 8192;
  const SplitArrays<float> state(count);
  const auto gradient = numbers<float>(4, count);
  const cuda::CountedRange all{0, count};
  const Buffer<cuda::CountedRange> ranges{std::span<const cuda::CountedRange>(&all, 1)};
  const std::int32_t decay = 1;
  const Buffer<std::int32_t> decays{std::span<const std::int32_t>(&decay, 1)};
  const Buffer<double> sums(count / kSquareStretch);
  device::Queue queue({.counts = true});
  cuda::device_square_and_update(queue, settings_of(1), 0,
                                 {0, count, kSquareStretch, sums.data(), ranges.data(), decays.data(), 1}, state.from(0),
                                 gradient.data());
  EXPECT_LE(queue.counts().read_bytes + queue.counts().written_bytes, count * 28 + 160);
}

// --- touched rows ---------------------------------------------------------------------------------------------------------

// A step of two micro-batches over a vocabulary, as the host notes it.
struct Step {
  static constexpr std::int64_t kRows = 70, kVocabulary = 90, kPadding = 11;
  std::vector<std::int32_t> tokens, first;
  std::vector<TouchedRow> touched;  // by token

  Step() {
    std::map<std::int32_t, std::int32_t> places;
    for (std::int32_t i = 0; i < 2 * kRows; ++i) {
      tokens.push_back(static_cast<std::int32_t>(random_bits(3, 0, 8, static_cast<std::uint64_t>(i)) % 60 + 3));
      if (i % 17 == 0) tokens.back() = kPadding;
      first.push_back(places.try_emplace(tokens.back(), i).first->second);
    }
    for (const auto& [token, place] : places) touched.push_back({token, place});
  }
};

template <typename T, int n>
void enqueue_sums(device::Queue& queue, const Step& step, std::int64_t H, float factor, const Buffer<T>& dx,
                  const Buffer<float>& sums) {
  const Buffer<std::int32_t> tokens{std::span<const std::int32_t>(step.tokens)}, first{std::span<const std::int32_t>(step.first)};
  const Buffer<std::int32_t> same(static_cast<std::size_t>(2 * Step::kRows));
  for (std::int64_t begin = 0; begin < 2 * Step::kRows; begin += Step::kRows) {
    launch(
        queue, {1, cuda::SamePlaces::kShared},
        cuda::SamePlaces{Step::kRows, {0, Step::kVocabulary}, -1, tokens.data() + begin, same.data(), same.data() + Step::kRows});
    const cuda::TouchedSums<T, n> kernel{Step::kRows,
                                         H,
                                         begin,
                                         factor,
                                         Step::kPadding,
                                         tokens.data() + begin,
                                         first.data() + begin,
                                         same.data(),
                                         same.data() + Step::kRows,
                                         dx.data() + begin * H,
                                         sums.data()};
    launch(queue, {(Step::kRows * H / n + kernel.kThreads - 1) / kernel.kThreads}, kernel);
    queue.synchronize();
  }
}

template <typename T>
void check_sums(std::int64_t H, float factor) {
  const Step step;
  const auto dx = numbers<T>(6, 2 * Step::kRows * H);
  const Buffer<float> sums(static_cast<std::size_t>(2 * Step::kRows * H)), expected(sums.all().size());
  device::Queue queue({.seed = 4});
  H % 8 == 0 ? enqueue_sums<T, 16 / sizeof(T)>(queue, step, H, factor, dx, sums)
             : enqueue_sums<T, 1>(queue, step, H, factor, dx, sums);
  for (std::int64_t i = 0; i < 2 * Step::kRows; ++i) {
    const std::int64_t first = step.first[static_cast<std::size_t>(i)];
    const float its_factor = step.tokens[static_cast<std::size_t>(i)] == Step::kPadding ? 0.0f : factor;
    for (std::int64_t c = 0; c < H; ++c) {
      float& sum = expected.data()[first * H + c];
      sum = (first == i ? 0.0f : sum) + its_factor * to_float(dx.data()[i * H + c]);
    }
  }
  expect_same(sums, expected, "sums");
}

TEST(TouchedRows, SumsAreTheHosts) {
  for (const std::int64_t H : {8, 48, 3}) {
    for (const float factor : {1.0f, 1.7f}) check_sums<float>(H, factor), check_sums<BFloat16>(H, factor);
  }
  check_sums<Float16>(16, 0.3f);
}

template <bool rounds>
void check_finished(std::int64_t H, bool with_head) {
  const Step step;
  const std::int64_t places = 2 * Step::kRows, node = std::min(row_node(H), kSquareStretch);
  const auto sums = numbers<float>(7, places * H), by_head = numbers<float>(8, places * H);
  using Waiting = std::conditional_t<rounds, BFloat16, float>;
  const Buffer<Waiting> waiting(static_cast<std::size_t>(places * H)), expected_waiting(waiting.all().size());
  const std::size_t nodes = static_cast<std::size_t>(Step::kVocabulary * (H / node));
  const Buffer<double> squares(nodes), expected(nodes);
  const Buffer<TouchedRow> touched{std::span<const TouchedRow>(step.touched)};
  device::Queue queue({.seed = 9});
  cuda::device_finish_rows<rounds>(queue, {std::ssize(step.touched), H, node, touched.data(), sums.data(),
                                           with_head ? by_head.data() : nullptr, waiting.data(), squares.data()});
  queue.synchronize();
  std::vector<float> row(static_cast<std::size_t>(H));
  for (std::int64_t i = 0; i < std::ssize(step.touched); ++i) {
    const TouchedRow& of = step.touched[static_cast<std::size_t>(i)];
    for (std::int64_t c = 0; c < H; ++c) {
      row[static_cast<std::size_t>(c)] = sums.data()[of.place * H + c] + (with_head ? by_head.data()[of.place * H + c] : 0.0f);
      expected_waiting.data()[of.place * H + c] = from_float<Waiting>(row[static_cast<std::size_t>(c)]);
    }
    std::vector<BFloat16> rounded(row.size());
    square_nodes(H, node, {row.data(), rounds ? rounded.data() : nullptr},
                 expected.data() + (with_head ? of.token : i) * (H / node));
  }
  expect_same(waiting, expected_waiting, "waiting");
  expect_same(squares, expected, "squares");
}

TEST(TouchedRows, AreFinishedAsTheHostDoes) {
  for (const std::int64_t H : {16, 48, 1040, 2048}) {
    for (const bool with_head : {false, true}) check_finished<false>(H, with_head), check_finished<true>(H, with_head);
  }
}

TEST(TouchedRows, OfAWholeGradientAreKeptApart) {
  constexpr std::int64_t H = 20, first = 30;
  const Step step;
  std::vector<TouchedRow> of_table;
  std::ranges::copy_if(step.touched, std::back_inserter(of_table), [](const TouchedRow& row) { return row.token >= first; });
  const auto gradient = numbers<float>(5, (Step::kVocabulary - first) * H);
  const Buffer<float> apart(static_cast<std::size_t>(2 * Step::kRows * H)), expected(apart.all().size());
  const Buffer<TouchedRow> touched{std::span<const TouchedRow>(of_table)};
  device::Queue queue;
  const cuda::KeepRowsApart<4> kernel{std::ssize(of_table), H, first, touched.data(), gradient.data(), apart.data()};
  launch(queue, {(kernel.rows * H / 4 + kernel.kThreads - 1) / kernel.kThreads}, kernel);
  queue.synchronize();
  for (const TouchedRow& row : of_table)
    std::copy_n(gradient.data() + (row.token - first) * H, H, expected.data() + row.place * H);
  expect_same(apart, expected, "rows");
}

// Updates of a table's parts, whose rows are apart with gradients or to be left as they are; the others have a gradient or none.
template <typename Arrays, typename Gradient>
void check_update(std::int64_t H, bool have_gradients, bool is_dense) {
  constexpr std::int64_t first = 10, rows = 64;
  const Step step;
  const std::int64_t elements = rows * H;
  const Arrays device(elements), host(elements);
  const auto gradient = numbers<Gradient>(4, elements), apart = numbers<Gradient>(5, 2 * Step::kRows * H);
  const Buffer<TouchedRow> touched{std::span<const TouchedRow>(step.touched)};
  const Buffer<std::int32_t> places(rows);
  device::Queue queue({.seed = 2});
  launch(queue, {1}, cuda::PlacesOfRows{first, rows, std::ssize(step.touched), touched.data(), places.data()});
  const std::int64_t cut = elements / 3 / 8 * 8 + (H % 8 == 0 ? 0 : 1);
  for (const auto& [begin, end] : {std::pair{std::int64_t{0}, cut}, std::pair{cut, elements}})
    cuda::device_adamw_by_rows(queue, settings_of(2), {.block = 1, .begin = begin, .count = end - begin}, device.from(begin),
                               is_dense ? gradient.data() + begin : nullptr, have_gradients ? apart.data() : nullptr,
                               places.data(), H);
  queue.synchronize();
  const std::vector<Gradient> zeros(static_cast<std::size_t>(H), from_float<Gradient>(0.0f));
  for (std::int64_t row = 0; row < rows; ++row) {
    const auto found = std::ranges::find(step.touched, static_cast<std::int32_t>(first + row), &TouchedRow::token);
    const bool is_apart = found != step.touched.end();
    EXPECT_EQ(places.data()[row], is_apart ? found->place : -1);
    if (is_apart && !have_gradients) continue;
    const Gradient* g = is_apart ? apart.data() + found->place * H : is_dense ? gradient.data() + row * H : zeros.data();
    const auto state = host.from(row * H);
    host_adamw(settings_of(2), {.block = 1, .begin = row * H, .count = H}, source_of(state), g, state);
  }
  device.expect(host);
}

TEST(TouchedRows, AreUpdatedByTheirOwnGradients) {
  for (const std::int64_t H : {16, 24, 7}) {
    for (const bool have_gradients : {true, false}) {
      for (const bool is_dense : {true, false}) {
        check_update<SplitArrays<float>, float>(H, have_gradients, is_dense);
        check_update<SplitArrays<BFloat16>, BFloat16>(H, have_gradients, is_dense);
        check_update<Fp32Arrays, float>(H, have_gradients, is_dense);
      }
    }
  }
}

}  // namespace
}  // namespace spillway
