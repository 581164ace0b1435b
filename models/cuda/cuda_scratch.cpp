#include "models/cuda/cuda_scratch.h"

#include "models/cuda/gemm.h"
#include "models/cuda/partial_sums.h"

namespace spillway::cuda {
namespace {

using namespace kernels;

Bytes bytes_of(const Product& k) {
  return Gemm::kWorkspaceBytes + (k.a.moves_with == ControlWord::none ? 0 : k.spec.k * size_of(k.spec.input));
}
Bytes bytes_of(const NormBackward& k) { return norm_partials(k.rows, k.hidden) * (k.bias ? 2 : 1) * Bytes{sizeof(float)}; }
Bytes bytes_of(const RotateBackward& k) {
  return k.q_weight ? rope_partials(k.shape.n, k.shape.dimension) * Bytes{sizeof(float)} : 0;
}
Bytes bytes_of(const ColumnSums& k) { return column_partials(k.rows, k.columns) * Bytes{sizeof(float)}; }
Bytes bytes_of(const LookUpBackward& k) { return 2 * k.rows * Bytes{sizeof(std::int32_t)}; }
Bytes bytes_of(const AttendBackward& k) { return k.shape.sequences * k.shape.heads * k.shape.queries * Bytes{sizeof(float)}; }
Bytes bytes_of(const Experts&) { return Gemm::kWorkspaceBytes; }
Bytes bytes_of(const ExpertsBackward&) { return Gemm::kWorkspaceBytes; }
Bytes bytes_of(const auto&) { return 0; }

}  // namespace

Bytes scratch_bytes(const Kernel& kernel) {
  return std::visit([](const auto& k) { return round_up(bytes_of(k), 256); }, kernel);
}

}  // namespace spillway::cuda
