// A cheap fuzzer: changes or removes a few bytes of valid text, the same ones every time.
// Not here: the parser's answer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace spillway {

// `random` is the state of the generator: the number drawn last.
inline std::string damaged_text(std::string text, int changes, std::uint32_t& random) {
  for (int change = 0; change < changes; ++change) {
    random = random * 1664525U + 1013904223U;
    const std::size_t at = (random >> 8) % text.size();
    random = random * 1664525U + 1013904223U;
    if (random >> 31) {
      text[at] = static_cast<char>(random >> 16);
    } else {
      text.erase(at, 1 + (random >> 20) % 4);
    }
  }
  return text;
}

}  // namespace spillway
