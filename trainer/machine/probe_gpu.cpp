// Measures a GPU: the kernels of a layer, copies in each direction and in both, host updates beside copies. All waiting threads
// sleep.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <optional>
#include <thread>
#include <utility>

#include "models/cuda/cuda_scratch.h"
#include "trainer/machine/probe_measure.h"
#include "trainer/machine/probe_work.h"
#include "trainer/machine/units_alone.h"

namespace spillway {
namespace {

using Part = UnitsAlone::Part;

// A layer of a model that is trained on GPUs: its products are as wide as those of models with 1 to 3 B parameters.
constexpr std::string_view kModel = "llama-3.2-1b";
constexpr std::int64_t kSequence = 2048;
constexpr Bytes kCopied = 256 * kMiB;

// Mean seconds of the enqueued work over a few repetitions; the first one is thrown away.
double seconds_each(const Sampling& sampling, Stream& stream, const std::function<void()>& enqueue) {
  enqueue();
  stream.synchronize();
  int times = 0;
  double seconds = 0;
  for (int each = 1; seconds < sampling.pass_s / 4 && times < 1000; each *= 2) {
    seconds += seconds_of([&] {
      for (int i = 0; i < each; ++i) enqueue();
      stream.synchronize();
    });
    times += each;
  }
  return seconds / times;
}

// Measures products, attention and other passes of a layer, each alone; the whole layer against their sum; and, with fewer rows,
// the number of extra rows that a product's weights cost.
void measure_type(Device& device, const Sampling& sampling, DType dtype, const std::string& type,
                  std::vector<Measurement>& measurements) {
  Stream& stream = *device.compute_stream();
  struct Seconds {
    double products = 0, attention = 0, others = 0, all = 0;
    Work work;
  };
  const auto measure = [&](std::int64_t sequence) {
    UnitsAlone units(device, cuda::scratch_bytes, kModel, {.dtype = dtype, .micro_batch = 1, .sequence = sequence},
                     UnitsAlone::Units::of_layers);
    const auto of = [&](Part part) { return seconds_each(sampling, stream, [&] { units.run_all(part); }); };
    return Seconds{of(Part::products), of(Part::attention), of(Part::others), of(Part::all), units.work_of_all()};
  };
  const Seconds many = measure(dtype == DType::float32 ? kSequence / 2 : 2 * kSequence), few = measure(kSequence / 16);
  const auto rate = [&](const std::string& name, double amount, double seconds) {
    measurements.push_back(measured(name, amount, {seconds}));
  };
  rate("gemm_" + type + "_flops", many.work.gemm_flops, many.products);
  rate("attention_" + type + "_flops", many.work.attention_flops, many.attention);
  rate("pointwise_" + type + "_bytes", many.work.bytes, many.others);
  const double parts = many.products + many.attention + many.others;
  measurements.push_back(figure("layers_" + type, std::clamp(parts / many.all, 0.05, 2.0)));
  const double of_a_row = many.products / many.work.gemm_flops * few.work.gemm_flops / (kSequence / 16.0);
  measurements.push_back(figure("gemm_" + type + "_extra_rows", std::max(1e-3, few.products / of_a_row - kSequence / 16.0)));
}

// Buffers in host memory and in the device's, with one stream for each direction.
class Copies {
 public:
  explicit Copies(Runtime& runtime) {
    for (Way& way : ways_) {
      way.on_host.emplace(runtime.allocate(Tier::host, kCopied, "copies measured"));
      way.on_device.emplace(runtime.allocate(Tier::device, kCopied, "copies measured"));
      way.stream = runtime.make_stream();
    }
  }
  enum Direction { kUp, kDown };
  void copy(Direction direction) {
    Way& way = ways_[direction];
    std::byte *host = way.on_host->data(), *device = way.on_device->data();
    way.stream->copy_async(direction == kUp ? device : host, direction == kUp ? host : device, kCopied);
    way.stream->synchronize();
  }
  double on_device_s() {
    Stream& stream = *ways_[kUp].stream;
    return seconds_of([&] {
      for (int i = 0; i < 8; ++i) stream.copy_async(ways_[kDown].on_device->data(), ways_[kUp].on_device->data(), kCopied);
      stream.synchronize();
    });
  }

 private:
  struct Way {
    std::optional<Allocation> on_host, on_device;
    std::unique_ptr<Stream> stream;
  };
  std::array<Way, 2> ways_;
};

// Repetitions a second of each load, while all run at the same time for `seconds`.
std::vector<double> rates_of(const std::vector<std::function<void()>>& loads, double seconds) {
  std::atomic<bool> over{false};
  std::vector<double> rates(loads.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < loads.size(); ++i) {
    threads.emplace_back([&, i] {
      int runs = 0;
      const double took = seconds_of([&] {
        for (; !over.load(std::memory_order_relaxed) || runs == 0; ++runs) loads[i]();
      });
      rates[i] = runs / took;
    });
  }
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  over.store(true);
  for (std::thread& thread : threads) thread.join();
  return rates;
}

void measure_link(Device& device, const ThreadPool& pool, const Sampling& sampling, std::vector<Measurement>& measurements) {
  Copies copies(device.runtime());
  Update update(pool, 24 << 20);  // 384 MiB: no cache holds it
  const std::function<void()> up = [&] { copies.copy(Copies::kUp); }, down = [&] { copies.copy(Copies::kDown); },
                              updates = [&] { update.run(); };
  for (const auto& warm_up : {up, down, updates}) warm_up();
  copies.on_device_s();
  const double long_s = 2 * sampling.pass_s, copied = static_cast<double>(kCopied);
  const double up_alone = rates_of({up}, long_s)[0], down_alone = rates_of({down}, long_s)[0],
               update_alone = rates_of({updates}, long_s)[0];
  const std::vector<double> both = rates_of({up, down}, long_s), beside_up = rates_of({updates, up}, long_s),
                            beside_down = rates_of({updates, down}, long_s);
  const auto share = [](double of, double alone) { return std::clamp(of / alone, 0.001, 1.0); };
  for (const auto& [name, value] :
       std::initializer_list<std::pair<const char*, double>>{{"memory_bytes", 8 * 2 * copied / copies.on_device_s()},
                                                             {"upload_bytes", up_alone * copied},
                                                             {"download_bytes", down_alone * copied},
                                                             {"mixed_upload_bytes", both[0] * copied},
                                                             {"mixed_download_bytes", both[1] * copied},
                                                             {"update_bytes", update_alone * update.update_bytes()},
                                                             {"update_beside_upload", share(beside_up[0], update_alone)},
                                                             {"update_beside_download", share(beside_down[0], update_alone)},
                                                             {"upload_beside_update", share(beside_up[1], up_alone)},
                                                             {"download_beside_update", share(beside_down[1], down_alone)}}) {
    measurements.push_back(figure(name, value));
  }
  const auto seconds = [&](void (Update::*work)()) { return seconds_of([&] { (update.*work)(); }); };
  measurements.push_back(figure("hashed_update", std::clamp(seconds(&Update::run_hashed) * update_alone, 1.0, 10.0)));
}

// Bytes a second that come from another GPU, while as many go there.
double peer_bytes(Device& here, Device& other, const Sampling& sampling) {
  struct Way {
    Runtime& to;
    Allocation source, target;
    std::unique_ptr<Stream> stream;
  };
  const auto way = [](Runtime& from, Runtime& to) {
    return Way{to, from.allocate(Tier::device, kCopied, "copies measured"), to.allocate(Tier::device, kCopied, "copies measured"),
               to.make_stream()};
  };
  Way here_from_other = way(other.runtime(), here.runtime()), other_from_here = way(here.runtime(), other.runtime());
  const auto copy = [](Way& of) {
    of.stream->copy_async(of.target.data(), of.source.data(), kCopied);
    of.stream->synchronize();
  };
  copy(here_from_other), copy(other_from_here);
  return static_cast<double>(kCopied) *
         rates_of({[&] { copy(here_from_other); }, [&] { copy(other_from_here); }}, sampling.pass_s)[0];
}

// Seconds until a lane continues after an operation of the device that it waited for: from the device through a thread that sees
// the end to the lane.
double handover_s(Device& device) {
  Runtime& runtime = device.runtime();
  const Allocation host = runtime.allocate(Tier::host, 4096, "hand-over measured"),
                   there = runtime.allocate(Tier::device, 4096, "hand-over measured");
  const std::unique_ptr<Stream> stream = runtime.make_stream();
  const std::unique_ptr<Event> event = runtime.make_event();
  constexpr int times = 200;
  const auto once = [&] {
    stream->copy_async(there.data(), host.data(), 64);
    stream->record(*event);
    event->synchronize();
  };
  once();
  return seconds_of([&] {
           for (int i = 0; i < times; ++i) once();
         }) /
         times;
}

}  // namespace

std::vector<Measurement> measure_gpu(Device& device, Device* other, const ThreadPool& pool, const Sampling& sampling) {
  std::vector<Measurement> measurements;
  measure_type(device, sampling, DType::bfloat16, "bf16", measurements);
  measure_type(device, sampling, DType::float32, "fp32", measurements);
  measure_link(device, pool, sampling, measurements);
  if (other != nullptr) measurements.push_back(figure("network_bytes", peer_bytes(device, *other, sampling)));
  measurements.push_back(figure("operation_s", handover_s(device)));
  // A GPU computes beside its host and shares no core with the host's updates.
  for (const char* shared : {"shared_compute", "shared_update"}) measurements.push_back(figure(shared, 1));
  return measurements;
}

}  // namespace spillway
