// Kernels as on a lesser processor: all that choose an instruction set at run time, ours and the library's, choose among fewer.
// By SPILLWAY_INSTRUCTIONS, so that each kernel's test runs over every set that the processor has.
// Not here: which sets there are kernels for (simd_targets.h), and what the library is asked for (gemm.cpp).
#pragma once

#include <string>
#include <vector>

namespace spillway {

// From the least on; those that this processor has.
std::vector<std::string> instruction_sets_here();

// Before the first kernel runs. InputError where the processor has no such set.
void limit_instructions(const std::string& set);

// Limits them as the environment asks for; does nothing if it does not.
void limit_instructions_as_asked();

// True if AVX-512's bf16 is within the limit: the library's, by which our own kernels for it go as well.
bool allows_avx512_bf16();

}  // namespace spillway
