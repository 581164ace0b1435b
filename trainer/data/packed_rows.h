// Packs as sequences. Not here: which rows lie together (packing.h).
#pragma once

#include <memory>

#include "trainer/data/packing.h"

namespace spillway {

// A pack's documents lie one behind the other, the longest first; behind them are positions without loss, each a document of its
// own, so that attention has nothing to do for them.
std::unique_ptr<SequenceSource> sequences_of_packs(std::shared_ptr<TokenRows> rows, std::shared_ptr<const Packs> packs);

}  // namespace spillway
