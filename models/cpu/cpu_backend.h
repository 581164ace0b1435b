// The backend of the CPU: each kernel call is a function of models/cpu/ops.h or models/cpu/attention/attention_ops.h on a pool of
// threads. Not here: the kernels themselves.
#pragma once

#include "memory/base/parallel.h"
#include "models/backend.h"
#include "models/cpu/ops.h"

namespace spillway {

class CpuBackend final : public Backend {
 public:
  explicit CpuBackend(const ThreadPool& pool);  // the pool must outlive the backend

  void prepare(const CompiledModel& model) override;
  void run(const CallList& list, const PassMemory& memory) override;

 private:
  const ThreadPool& pool_;
  ops::MatmulEngine engine_;
};

// Each different product of a model, as it is asked for first, and as it is added.
std::vector<ops::GemmSpec> products_of(const CompiledModel& model);

}  // namespace spillway
