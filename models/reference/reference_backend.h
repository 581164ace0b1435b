// A backend of plain loops: each kernel as its definition says, on one thread, summed in double. Every other backend is compared
// with it, kernel by kernel and case by case; it may be read in one go, and need not be fast.
// Not here: anything that a run uses.
#pragma once

#include "models/backend.h"

namespace spillway {

class ReferenceBackend final : public Backend {
 public:
  void prepare(const CompiledModel& model) override;  // nothing to do
  void run(const CallList& list, const PassMemory& memory) override;
};

}  // namespace spillway
