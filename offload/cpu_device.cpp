// The CPU as a device: work is complete when a call returns.
#include "models/cpu/cpu_backend.h"
#include "offload/device.h"

namespace spillway {
namespace {

class CpuDevice final : public Device {
 public:
  CpuDevice(std::unique_ptr<CpuBackend> own, Backend& backend, Chain chain)
      : runtime_(has_host(chain) ? Runtime::make_cpu_apart() : Runtime::make_cpu()), own_(std::move(own)), backend_(backend) {}

  Runtime& runtime() override { return *runtime_; }
  Backend& backend() override { return backend_; }
  Stream* compute_stream() override { return nullptr; }
  std::unique_ptr<KernelOptimizer> make_optimizer(const UnitGraph&, const Choices&) override { return nullptr; }
  std::unique_ptr<RankMemory> make_rank_memory(const ThreadPool& pool) override { return std::make_unique<HostRankMemory>(pool); }
  std::string identity() const override { return {}; }

 private:
  const std::unique_ptr<Runtime> runtime_;
  const std::unique_ptr<CpuBackend> own_;
  Backend& backend_;
};

}  // namespace

std::unique_ptr<Device> make_cpu_device(const ThreadPool& pool, Chain chain) {
  auto backend = std::make_unique<CpuBackend>(pool);
  Backend& computes = *backend;
  return std::make_unique<CpuDevice>(std::move(backend), computes, chain);
}

std::unique_ptr<Device> make_cpu_device(Backend& backend, Chain chain) {
  return std::make_unique<CpuDevice>(nullptr, backend, chain);
}

}  // namespace spillway
