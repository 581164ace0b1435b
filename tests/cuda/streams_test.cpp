// Kernels and products behind copies on other streams, in the memory of the device's runtime. With the necessary waits the bits
// are the same, whatever runs late or early. tests/simt/runtime_test.cpp tests that a missing wait is noticed.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "memory/base/bfloat16.h"
#include "memory/base/random.h"
#include "models/cuda/cuda_backend.cuh"
#include "tests/cuda/device.h"

namespace spillway {
namespace {

constexpr std::int64_t kRows = 24, kHidden = 64, kOut = 32, kBatches = 5;
constexpr DType kType = DType::bfloat16;

float number(std::uint64_t stream, std::int64_t i) {  // in [-1, 1), of the type
  const auto bits = random_bits(4, 0, stream, static_cast<std::uint64_t>(i));
  return BFloat16::from_float(static_cast<float>(static_cast<std::int32_t>(bits)) * 0x1p-31f).to_float();
}
void fill(const Allocation& memory, std::uint64_t stream, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i)
    reinterpret_cast<BFloat16*>(memory.data())[i] = BFloat16::from_float(number(stream, i));
}

// y = norm(x) W^T, batch after batch: two buffers take turns for x, one is for y.
class Pipeline {
 public:
  explicit Pipeline(std::uint64_t seed) : runtime_(device::make_runtime(seed)) {
    fill(host_w_, 100, kOut * kHidden), fill(host_scale_, 101, kHidden);
    runtime_->copy(w_.data(), host_w_.data(), w_.bytes());
    runtime_->copy(scale_.data(), host_scale_.data(), scale_.bytes());
    gemm_->prepare(product_);
  }

  std::vector<std::byte> run() {
    std::vector<std::byte> results;
    for (std::int64_t batch = 0; batch < kBatches; ++batch) {
      const auto turn = static_cast<std::size_t>(batch % 2);
      came_[turn]->synchronize();  // the host's buffer has been read
      fill(host_x_[turn], static_cast<std::uint64_t>(batch), kRows * kHidden);
      up_->wait(*done_[turn]);  // the device's, too
      up_->copy_async(x_[turn].data(), host_x_[turn].data(), x_[turn].bytes());
      up_->record(*came_[turn]);
      work_->wait(*came_[turn]);
      work_->wait(*went_);  // y has been fetched
      compute(turn);
      work_->record(*done_[turn]);
      down_->wait(*done_[turn]);
      down_->copy_async(host_y_.data() + batch * y_.bytes(), y_.data(), y_.bytes());
      down_->record(*went_);
    }
    down_->synchronize();
    results.assign(host_y_.data(), host_y_.data() + host_y_.bytes());
    up_->synchronize(), work_->synchronize();
    return results;
  }

 private:
  void compute(std::size_t turn) {
    enum : int { x, scale, statistics, normed, w, y, scratch };
    std::vector<std::byte*> places;
    for (const Allocation* of : {&x_[turn], &scale_, &statistics_, &normed_, &w_, &y_, &scratch_})
      places.push_back(runtime_->device_pointer(of->data()));
    const auto place = [](int index) { return Place{.space = Space::value, .index = index}; };
    const kernels::Norm norm{.type = kType,
                             .rows = kRows,
                             .hidden = kHidden,
                             .epsilon = 1e-5f,
                             .x = place(x),
                             .weight = place(scale),
                             .y = place(normed),
                             .statistics = place(statistics)};
    const kernels::Product product{.spec = product_, .a = place(normed), .b = place(w), .c = place(y)};
    backend_.run({{.kernel = norm}, {.kernel = product, .scratch = place(scratch)}},
                 {.values = places, .words = nullptr, .first_micro_batch = true});
  }
  Allocation memory(Tier tier, Bytes bytes, const char* name) const { return runtime_->allocate(tier, bytes, name); }

  const ops::GemmSpec product_ = ops::linear_forward(kType, kRows, kHidden, kOut);
  const std::unique_ptr<Runtime> runtime_;
  const Bytes x_bytes_ = kRows * kHidden * 2, y_bytes_ = kRows * kOut * 2;
  const std::array<Allocation, 2> host_x_{memory(Tier::host, x_bytes_, "x 0"), memory(Tier::host, x_bytes_, "x 1")},
      x_{memory(Tier::device, x_bytes_, "x 0"), memory(Tier::device, x_bytes_, "x 1")};
  const Allocation host_w_ = memory(Tier::host, kOut* kHidden * 2, "w"), host_scale_ = memory(Tier::host, kHidden * 2, "scale"),
                   host_y_ = memory(Tier::host, kBatches* y_bytes_, "y"), w_ = memory(Tier::device, kOut* kHidden * 2, "w"),
                   scale_ = memory(Tier::device, kHidden * 2, "scale"), statistics_ = memory(Tier::device, kRows * 4, "rstd"),
                   normed_ = memory(Tier::device, x_bytes_, "normed"), y_ = memory(Tier::device, y_bytes_, "y"),
                   scratch_ = memory(Tier::device, cuda::Gemm::kWorkspaceBytes, "workspace");
  const std::unique_ptr<Stream> up_ = runtime_->make_stream(), work_ = runtime_->make_stream(), down_ = runtime_->make_stream();
  const std::array<std::unique_ptr<Event>, 2> came_{runtime_->make_event(), runtime_->make_event()},
      done_{runtime_->make_event(), runtime_->make_event()};
  const std::unique_ptr<Event> went_ = runtime_->make_event();
  cuda::Queue queue_ = device::queue_of(*work_);
  const std::unique_ptr<cuda::Gemm> gemm_ = device::make_gemm(queue_);
  cuda::CudaBackend backend_{queue_, *gemm_};
};

TEST(Streams, BitsDoNotDependOnWhatIsLateOrEarly) {
  const std::vector<std::byte> expected = Pipeline(0).run();
  const auto* const y = reinterpret_cast<const BFloat16*>(expected.data());
  for (std::int64_t batch = 0; batch < kBatches; ++batch) {
    for (std::int64_t row = 0; row < kRows; ++row) {
      double squares = 0;
      const auto x = [&](std::int64_t i) {
        return static_cast<double>(number(static_cast<std::uint64_t>(batch), row * kHidden + i));
      };
      for (std::int64_t i = 0; i < kHidden; ++i) squares += x(i) * x(i);
      const double rstd = 1 / std::sqrt(squares / kHidden + 1e-5);
      for (std::int64_t j = 0; j < kOut; ++j) {
        double sum = 0;
        for (std::int64_t i = 0; i < kHidden; ++i)
          sum += x(i) * rstd * static_cast<double>(number(101, i)) * static_cast<double>(number(100, j * kHidden + i));
        ASSERT_NEAR(static_cast<double>(y[(batch * kRows + row) * kOut + j].to_float()), sum, 0.1) << batch << ", " << row;
      }
    }
  }
  for (std::uint64_t seed = 1; seed < 12; ++seed) EXPECT_EQ(Pipeline(seed).run(), expected) << seed;
}

}  // namespace
}  // namespace spillway
