// Marks memory that exists but must not be touched. Under AddressSanitizer a touch of a poisoned range ends the program and
// reports the place; in other builds these functions do nothing. Ranges are whole multiples of 8 bytes, the sanitizer's
// granularity.
// Not here: which ranges (memory/runtime/arena.h, offload/buffer_guard.h).
#pragma once

#include <cstddef>

#include "memory/base/types.h"

#if defined(__SANITIZE_ADDRESS__)
#define SPILLWAY_POISONS 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SPILLWAY_POISONS 1
#endif
#endif
#ifdef SPILLWAY_POISONS
#include <sanitizer/asan_interface.h>
#endif

namespace spillway {

#ifdef SPILLWAY_POISONS
inline constexpr bool kPoisons = true;
#else
inline constexpr bool kPoisons = false;
#endif

inline void poison([[maybe_unused]] const std::byte* begin, [[maybe_unused]] Bytes bytes) {
#ifdef SPILLWAY_POISONS
  __asan_poison_memory_region(begin, static_cast<std::size_t>(bytes));
#endif
}

inline void unpoison([[maybe_unused]] const std::byte* begin, [[maybe_unused]] Bytes bytes) {
#ifdef SPILLWAY_POISONS
  __asan_unpoison_memory_region(begin, static_cast<std::size_t>(bytes));
#endif
}

// Counts as a touch of every byte, for transfers that the sanitizer does not see: those that the kernel does by itself.
inline void check_touch([[maybe_unused]] const std::byte* begin, [[maybe_unused]] Bytes bytes) {
#ifdef SPILLWAY_POISONS
  const void* poisoned = __asan_region_is_poisoned(const_cast<std::byte*>(begin), static_cast<std::size_t>(bytes));
  if (poisoned != nullptr) static_cast<void>(*static_cast<const volatile std::byte*>(poisoned));
#endif
}

}  // namespace spillway
