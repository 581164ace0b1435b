// A backend on the emulated device for tests whose memory is the host's: each operand of each call has an allocation of its own
// on the device, no byte larger than it must be, so that an access beside it is an error.
#pragma once

#include <cstring>
#include <vector>

#include "memory/error.h"
#include "models/cuda/cuda_backend.cuh"
#include "models/cuda/cuda_scratch.h"
#include "models/reference/reference_backend.h"
#include "tests/simt/host_gemm.h"
#include "tests/simt/machine.h"

namespace spillway::testing {

class DeviceCopies final : public Backend {
 public:
  explicit DeviceCopies(const simt::Options& options) : queue_(options) {}

  void prepare(const CompiledModel& model) override { backend_.prepare(model); }
  void run(const CallList& list, const PassMemory& memory) override {
    for (const KernelCall& call : list) {
      if (std::holds_alternative<kernels::Attend>(call.kernel) || std::holds_alternative<kernels::AttendBackward>(call.kernel)) {
        reference_.run({call}, memory);
      } else {
        run(call, memory);
      }
    }
  }
  simt::Queue& queue() { return queue_; }

 private:
  static std::byte* workspace() {
    static const simt::Buffer<std::byte> all(cuda::Gemm::kWorkspaceBytes + kMiB);
    return all.data();
  }
  struct Copied {
    simt::Buffer<std::byte> device;
    std::byte* host;
    Access access;
  };

  void run(const KernelCall& call, const PassMemory& memory) {
    KernelCall moved = call;
    std::vector<Copied> copies;
    std::vector<std::byte*> values;
    PassMemory there = memory;
    // The same bytes may be two operands.
    const auto copy_of = [&](std::byte* host, Bytes bytes, Access access) {
      for (Copied& copied : copies) {
        if (copied.host != host || std::ssize(copied.device.all()) != bytes) continue;
        if (access != Access::read) copied.access = access;
        return copied.device.data();
      }
      copies.push_back(
          {simt::Buffer<std::byte>(std::span<const std::byte>(host, static_cast<std::size_t>(bytes))), host, access});
      return copies.back().device.data();
    };
    there.words = reinterpret_cast<MicroBatchWords*>(
        copy_of(reinterpret_cast<std::byte*>(memory.words), kMicroBatchWordsBytes, Access::update));
    for (const OperandUse& operand : operands_of(moved.kernel)) {
      Place& place = *operand.place;
      if (place.space == Space::word) continue;
      Place still = place;
      still.moves_with = ControlWord::none;
      std::byte* const host = memory.at(still);
      const Bytes moves = host == nullptr ? 0 : memory.at(place) - host;
      values.push_back(host == nullptr ? nullptr : copy_of(host, operand.reach + moves, operand.access));
      place = {Space::value, place.moves_with, static_cast<int>(values.size()) - 1, 0, place.stride};
    }
    // The library's is large, and nothing here looks into it.
    const bool is_product = std::holds_alternative<kernels::Product>(call.kernel);
    const simt::Buffer<std::byte> scratch(is_product ? 0 : static_cast<std::size_t>(cuda::scratch_bytes(call.kernel)));
    values.push_back(is_product ? workspace() : scratch.data());
    moved.scratch = {.space = Space::value, .index = static_cast<int>(values.size()) - 1};
    there.values = values;
    backend_.run({moved}, there);
    for (const Copied& copied : copies) {
      if (copied.access != Access::read) std::memcpy(copied.host, copied.device.data(), copied.device.all().size());
    }
  }

  ReferenceBackend reference_;
  simt::Queue queue_;
  simt::HostGemm gemm_;
  cuda::CudaBackend backend_{queue_, gemm_};
};

}  // namespace spillway::testing
