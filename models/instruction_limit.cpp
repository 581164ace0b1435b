#include "models/cpu/simd_targets.h"

#include "models/instruction_limit.h"

#include <fmt/ranges.h>
#include <hwy/targets.h>

#include <algorithm>
#include <cstdlib>
#include <oneapi/dnnl/dnnl.hpp>

#include "memory/base/error.h"

namespace spillway {
namespace {

struct InstructionSet {
  const char* name;
  std::int64_t vectors;    // Highway's best target
  dnnl::cpu_isa products;  // the library's best
  bool (*is_here)();
};

// SSE2, which the Highway of Debian 12 has no name for.
constexpr std::int64_t kBaseline = std::int64_t{1} << 14;

const InstructionSet kSets[] = {
    {"baseline", kBaseline, dnnl::cpu_isa::sse41, [] { return true; }},
    {"avx2", HWY_AVX2, dnnl::cpu_isa::avx2, [] { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }},
    {"avx512", HWY_AVX3, dnnl::cpu_isa::avx512_core,
     [] {
       return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
     }},
    {"avx512_bf16", HWY_AVX3, dnnl::cpu_isa::avx512_core_bf16, [] { return __builtin_cpu_supports("avx512bf16") != 0; }},
};

}  // namespace

std::vector<std::string> instruction_sets_here() {
  std::vector<std::string> names;
  for (const InstructionSet& set : kSets) {
    if (set.is_here()) names.emplace_back(set.name);
  }
  return names;
}

void limit_instructions(const std::string& name) {
  const std::vector<std::string> here = instruction_sets_here();
  if (std::ranges::find(here, name) == here.end()) {
    throw InputError(fmt::format("SPILLWAY_INSTRUCTIONS: found {}, allowed on this processor: {}", name, fmt::join(here, ", ")),
                     "Without it the best that the processor has is taken.");
  }
  const InstructionSet& set = *std::ranges::find_if(kSets, [&](const InstructionSet& each) { return name == each.name; });
  // A better target has a smaller bit.
  hwy::DisableTargets(set.vectors - 1);
  if (dnnl::set_max_cpu_isa(set.products) != dnnl::status::success) {
    throw InputError(fmt::format("SPILLWAY_INSTRUCTIONS: found {}, which the library for products cannot be limited to", name),
                     "It was asked for a product already, or ONEDNN_MAX_CPU_ISA says something else.");
  }
}

void limit_instructions_as_asked() {
  if (const char* asked = std::getenv("SPILLWAY_INSTRUCTIONS"); asked != nullptr && *asked != '\0') limit_instructions(asked);
}

bool allows_avx512_bf16() {
  const auto bf16 = static_cast<unsigned>(dnnl::cpu_isa::avx512_core_bf16);
  return (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & bf16) == bf16;
}

}  // namespace spillway
