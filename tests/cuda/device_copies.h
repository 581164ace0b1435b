// A backend on the device for tests whose memory is the host's. Each operand of each call has an allocation of its own on the
// device, no byte larger than it must be, so that an access behind it is an error; operands that overlap share one. An address
// has the same alignment there as on the host, up to 16 bytes.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "memory/base/error.h"
#include "models/cuda/cuda_backend.cuh"
#include "models/cuda/cuda_scratch.h"
#include "tests/cuda/device.h"

namespace spillway::testing {

class DeviceCopies final : public Backend {
 public:
  explicit DeviceCopies(const device::Options& options) : queue_(options) {}

  void prepare(const CompiledModel& model) override { backend_.prepare(model); }
  void run(const CallList& list, const PassMemory& memory) override {
    for (const KernelCall& call : list) run(call, memory);
  }
  device::Queue& queue() { return queue_; }

 private:
  static std::byte* workspace() {
    static const device::Buffer<std::byte> all(cuda::Gemm::kWorkspaceBytes + kMiB);
    return all.data();
  }

  // A piece of the host's memory, and its copy on the device. Several operands may share bytes: rows of a wider matrix, for
  // example.
  struct Copied {
    std::byte* host;
    Bytes bytes;
    bool is_written = false;
    std::unique_ptr<device::Buffer<std::byte>> device = {};
    std::int64_t begin() const { return static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(host) % 16); }  // in it
  };
  class Copies {
   public:
    void add(std::byte* host, Bytes bytes, Access access) {
      if (host == nullptr || bytes == 0) return;
      Copied all{host, bytes, access != Access::read};
      std::erase_if(copies_, [&](const Copied& copied) {
        if (copied.host >= all.host + all.bytes || all.host >= copied.host + copied.bytes) return false;
        std::byte* const end = std::max(all.host + all.bytes, copied.host + copied.bytes);
        all.host = std::min(all.host, copied.host), all.bytes = end - all.host, all.is_written |= copied.is_written;
        return true;
      });
      copies_.push_back(std::move(all));
    }
    void make() {
      for (Copied& copied : copies_) {
        copied.device = std::make_unique<device::Buffer<std::byte>>(static_cast<std::size_t>(copied.begin() + copied.bytes));
        std::copy_n(copied.host, copied.bytes, copied.device->data() + copied.begin());
      }
    }
    std::byte* of(std::byte* host) const {
      for (const Copied& copied : copies_)
        if (host >= copied.host && host < copied.host + copied.bytes)
          return copied.device->data() + copied.begin() + (host - copied.host);
      return nullptr;
    }
    void take_back() const {
      for (const Copied& copied : copies_)
        if (copied.is_written)
          std::memcpy(copied.host, copied.device->data() + copied.begin(), static_cast<std::size_t>(copied.bytes));
    }

   private:
    std::vector<Copied> copies_;
  };

  void run(const KernelCall& call, const PassMemory& memory) {
    KernelCall moved = call;
    Copies copies;
    std::vector<std::byte*> values;
    PassMemory there = memory;
    auto* const words = reinterpret_cast<std::byte*>(memory.words);
    copies.add(words, kMicroBatchWordsBytes, Access::update);
    const auto host_of = [&](Place place) {
      place.moves_with = ControlWord::none;
      return memory.at(place);
    };
    const std::vector<OperandUse> operands = operands_of(moved.kernel);
    for (const OperandUse& operand : operands) {
      std::byte* const host = operand.place->space == Space::word ? nullptr : host_of(*operand.place);
      if (host != nullptr) copies.add(host, operand.reach + (memory.at(*operand.place) - host), operand.access);
    }
    copies.make();
    there.words = reinterpret_cast<MicroBatchWords*>(copies.of(words));
    for (const OperandUse& operand : operands) {
      Place& place = *operand.place;
      if (place.space == Space::word) continue;
      values.push_back(copies.of(host_of(place)));
      place = {Space::value, place.moves_with, static_cast<int>(values.size()) - 1, 0, place.stride};
    }
    // The library's workspace is large, and nothing here looks into it.
    const bool is_product = std::holds_alternative<kernels::Product>(call.kernel) ||
                            std::holds_alternative<kernels::Experts>(call.kernel) ||
                            std::holds_alternative<kernels::ExpertsBackward>(call.kernel);
    const device::Buffer<std::byte> scratch(is_product ? 0 : static_cast<std::size_t>(cuda::scratch_bytes(call.kernel)));
    values.push_back(is_product ? workspace() : scratch.data());
    moved.scratch = {.space = Space::value, .index = static_cast<int>(values.size()) - 1};
    there.values = values;
    backend_.run({moved}, there);
    queue_.synchronize();
    copies.take_back();
  }

  // The host sees the device's memory.
  class SeenCopies final : public cuda::HostCopies {
   public:
    explicit SeenCopies(device::Queue& queue) : queue_(queue) {}
    const std::int32_t* fetch(const std::int32_t* from, std::int64_t /*count*/) override {
      queue_.synchronize();
      return from;
    }

   private:
    device::Queue& queue_;
  };

  device::Queue queue_;
  const std::unique_ptr<cuda::Gemm> gemm_ = device::make_gemm(queue_);
  SeenCopies copies_{queue_};
  cuda::CudaBackend backend_{queue_, *gemm_, &copies_};
};

}  // namespace spillway::testing
