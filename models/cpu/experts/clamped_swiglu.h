// The activation clamped_swiglu (models/activation.h) on the CPU.
//
// Legend: n rows, I inner width of an expert.
#pragma once

#include <cstdint>

#include "memory/base/bfloat16.h"
#include "memory/base/parallel.h"

namespace spillway::ops {

template <typename E>
void clamped_swiglu_forward(const ThreadPool& pool, std::int64_t n, std::int64_t I, const E* gu /*[n,2I]*/, E* h /*[n,I]*/);
// Writes dgu, and h again (h may be null where it is not wanted). dgu may be gu itself, and h may be dh.
template <typename E>
void clamped_swiglu_backward(const ThreadPool& pool, std::int64_t n, std::int64_t I, const E* dh /*[n,I]*/,
                             const E* gu /*[n,2I]*/, E* dgu /*[n,2I]*/, E* h /*[n,I]*/);

}  // namespace spillway::ops
