// Derives waits between operations from the bytes that they access.
#pragma once

#include "memory/plan/plan.h"

namespace spillway {

// Fills Op::waits of every program of a packed plan: for each pair of operations on different lanes (or on the same NVMe lane,
// whose requests overlap) of which one writes a byte that the other touches, a chain of waits and lane order from the earlier
// to the later; also from one step to the next. Waits that lane order already implies are left out.
void derive_waits(Plan& plan);

}  // namespace spillway
