// Which algorithms a run's matrix products have, as text that a run keeps: one who goes on with it takes the same ones, or is
// told what differs. The same bits come from the same library on the same chip by the same algorithm, and from no less. Not here:
// the library (gemm_cuda.cpp), where a run keeps it.
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

  const PinnedProduct* find(const ops::GemmSpec& spec, bool adds) const;  // null where it is not among them
  friend bool operator==(const GemmIdentity&, const GemmIdentity&) = default;
};

// A line: one text for an identity.
std::string encode(const GemmIdentity& identity);
// InputError where the text is none that encode() gives.
GemmIdentity decode_gemm_identity(std::string_view text);

// What, other than products, lets a run that was `pinned` have other bits `here`; empty: nothing does.
std::string difference(const GemmIdentity& pinned, const GemmIdentity& here);

}  // namespace spillway::cuda
