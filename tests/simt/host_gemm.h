// The twin of the device's matrix library for the emulation: plain loops, summed in double and rounded once, that run when the
// queue comes to them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "memory/base/element.h"
#include "memory/base/error.h"
#include "models/cuda/gemm.h"
#include "tests/simt/global_memory.h"
#include "tests/simt/machine.h"

namespace spillway::simt {

class HostGemm final : public cuda::Gemm {
 public:
  explicit HostGemm(Queue& queue) : queue_(queue) {}
  void prepare(const ops::GemmSpec& spec) override {
    cuda::check_types(spec);
    if (std::ranges::find(prepared_, spec) == prepared_.end()) prepared_.push_back(spec);
  }
  void run(const ops::GemmSpec& spec, bool adds, const cuda::GemmOperands& operands) override {
    SPILLWAY_CHECK(std::ranges::find(prepared_, spec) != prepared_.end(), "a product that was not prepared");
    queue_.enqueue([spec, adds, operands] {
      const auto under_way = launch_under_way();
      multiply(spec, adds, there(operands));
    });
  }
  std::string identity() const override { return "host"; }

 private:
  // The operands with the addresses of their bytes.
  static cuda::GemmOperands there(const cuda::GemmOperands& named) {
    const auto there = [](const std::byte* at) {
      if (at == nullptr) return static_cast<std::byte*>(nullptr);
      const GlobalRange* of = allocation_of(reinterpret_cast<std::uintptr_t>(at), 1);
      if (of == nullptr) throw Error("an operand of a product lies in no allocation");
      return const_cast<std::byte*>(at) + of->shift;
    };
    return {.a = there(named.a),
            .b = there(named.b),
            .bias = there(named.bias),
            .residual = there(named.residual),
            .c = there(named.c)};
  }
  static void multiply(const ops::GemmSpec& spec, bool adds, const cuda::GemmOperands& operands) {
    for (std::int64_t i = 0; i < spec.m; ++i) {
      for (std::int64_t j = 0; j < spec.n; ++j) {
        const std::int64_t at = i * spec.ldc + j;
        double sum = 0;
        for (std::int64_t l = 0; l < spec.k; ++l) {
          const std::int64_t in_a = spec.transpose_a == ops::Transpose::yes ? l * spec.lda + i : i * spec.lda + l,
                             in_b = spec.transpose_b == ops::Transpose::yes ? j * spec.ldb + l : l * spec.ldb + j;
          sum += element(operands.a, spec.input, in_a) * element(operands.b, spec.input, in_b);
        }
        sum = static_cast<double>(spec.scale) * sum + (adds ? element(operands.c, spec.output, at) : 0);
        if (spec.has_bias) sum += element(operands.bias, spec.input, j);
        if (spec.has_residual) sum += element(operands.residual, spec.input, i * spec.ld_residual + j);
        set_element(operands.c, spec.output, at, sum);
      }
    }
  }

  Queue& queue_;
  std::vector<ops::GemmSpec> prepared_;
};

}  // namespace spillway::simt
