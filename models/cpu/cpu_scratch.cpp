#include "models/cpu/cpu_scratch.h"

#include <algorithm>

#include "models/cpu/attention/attention_ops.h"
#include "models/cpu/ops.h"
#include "models/expert_pieces.h"

namespace spillway {
namespace {

using namespace kernels;

Bytes scratch_of(const Product& k, const CpuTraits& machine) {
  return ops::gemm_scratch_bound(k.spec, machine.threads, machine.instructions);
}
Bytes scratch_of(const NormBackward& k, const CpuTraits&) {
  if (!k.dweight) return 0;
  return k.bias ? ops::layernorm_backward_scratch_bytes(k.rows, k.hidden) : ops::rmsnorm_backward_scratch_bytes(k.rows, k.hidden);
}
Bytes scratch_of(const RotateBackward& k, const CpuTraits&) { return ops::rope_backward_scratch_bytes(k.shape); }
Bytes scratch_of(const Attend& k, const CpuTraits& machine) {
  ops::AttentionShape shape = k.shape;
  if (k.cached) shape.key_offset = shape.keys - shape.queries;
  return k.cached && shape.queries == 1 ? ops::attention_decode_scratch_bytes(shape)
                                        : ops::attention_forward_scratch_bytes(shape, k.type, machine.threads);
}
Bytes scratch_of(const AttendBackward& k, const CpuTraits& machine) {
  return ops::attention_backward_scratch_bytes(k.shape, k.type, machine.threads);
}
Bytes scratch_of(const ColumnSums& k, const CpuTraits&) { return ops::column_sums_scratch_bytes(k.rows, k.columns); }
Bytes scratch_of(const LossFinish& k, const CpuTraits&) { return ops::loss_finish_scratch_bytes(k.rows); }
Bytes scratch_of_experts(const auto& k, const CpuTraits& machine) {
  Bytes most = 0;
  for (const ops::GemmSpec& spec : ops::products_of(k))
    most = std::max(most, ops::gemm_scratch_bound(spec, machine.threads, machine.instructions));
  return most;
}
Bytes scratch_of(const Experts& k, const CpuTraits& machine) { return scratch_of_experts(k, machine); }
Bytes scratch_of(const ExpertsBackward& k, const CpuTraits& machine) { return scratch_of_experts(k, machine); }
Bytes scratch_of(const auto&, const CpuTraits&) { return 0; }

}  // namespace

CpuTraits traits_of_this_cpu(int threads) { return {threads, ops::instructions_here()}; }

Bytes cpu_scratch_bytes(const Kernel& kernel, const CpuTraits& machine) {
  return std::visit([&](const auto& k) { return scratch_of(k, machine); }, kernel);
}

}  // namespace spillway
