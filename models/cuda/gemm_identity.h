// The algorithms of a run's matrix products, as text that the run keeps: whoever continues it takes the same ones, or is told
// what differs. The same bits need the same library on the same chip with the same algorithm, and no less. Not here: the library
// (gemm_cuda.cpp), where a run keeps the text.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "models/kernel_shapes.h"

namespace spillway::cuda {

struct PinnedProduct {
  ops::GemmSpec spec;
  bool adds = false;
  std::array<std::uint64_t, 8> algorithm{};  // as the library gave it: to us no more than bits
  friend bool operator==(const PinnedProduct&, const PinnedProduct&) = default;
};

struct GemmIdentity {
  std::uint64_t library_version = 0;
  int capability = 0;  // 90 for sm_90
  int processors = 0;  // the library chooses and cuts by their number
  std::vector<PinnedProduct> products;

  const PinnedProduct* find(const ops::GemmSpec& spec, bool adds) const;  // null if the product is not among them
  friend bool operator==(const GemmIdentity&, const GemmIdentity&) = default;
};

// One line of text; an identity has only one such text.
std::string encode(const GemmIdentity& identity);
// Throws InputError for a text that encode() does not give.
GemmIdentity decode_gemm_identity(std::string_view text);

// Says what, other than products, lets a `pinned` run have other bits `here`; empty if nothing does.
std::string difference(const GemmIdentity& pinned, const GemmIdentity& here);

}  // namespace spillway::cuda
