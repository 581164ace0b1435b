// The optimizer's kernels that no plan of a GPU launches, made for the compile gate (and those that offload/cuda/ launches).
#include "offload/cuda/add_gradients.cuh"
#include "offload/cuda/block_update.cuh"
#include "offload/cuda/rows.cuh"
#include "offload/cuda/windows.cuh"

namespace spillway::cuda {

template void device_adamw(Queue&, const AdamWSettings&, const AdamWRun&, const ExactState&, const float*);
template void device_adamw(Queue&, const AdamWSettings&, const AdamWRun&, const ExactState&, const BFloat16*);
template void device_adamw(Queue&, const AdamWSettings&, const AdamWRun&, const CompactState&, const BFloat16*);
template void device_adamw(Queue&, const AdamWSettings&, const AdamWRun&, const Fp32State&, const float*);
template void device_adamw_by_rows(Queue&, const AdamWSettings&, const AdamWRun&, const ExactState&, const float*, const float*,
                                   const std::int32_t*, std::int64_t);
template void device_adamw_by_rows(Queue&, const AdamWSettings&, const AdamWRun&, const CompactState&, const BFloat16*,
                                   const BFloat16*, const std::int32_t*, std::int64_t);
template void device_adamw_by_rows(Queue&, const AdamWSettings&, const AdamWRun&, const Fp32State&, const float*, const float*,
                                   const std::int32_t*, std::int64_t);
template void device_square_and_update(Queue&, const AdamWSettings&, std::uint64_t, const SquaredPart&, const ExactState&,
                                       const float*);
template void device_square_and_update(Queue&, const AdamWSettings&, std::uint64_t, const SquaredPart&, const Fp32State&,
                                       const float*);
template void device_squares(Queue&, const SquareNodes<false, true>&);
template void device_squares(Queue&, const SquareNodes<true, true>&);
template void device_finish_rows(Queue&, const FinishRows<false, true>&);
template void device_finish_rows(Queue&, const FinishRows<true, true>&);
template void launch(Queue&, const Grid&, const TouchedSums<float, 1>&);
template void launch(Queue&, const Grid&, const TouchedSums<float, 4>&);
template void launch(Queue&, const Grid&, const TouchedSums<BFloat16, 1>&);
template void launch(Queue&, const Grid&, const TouchedSums<BFloat16, 8>&);
template void launch(Queue&, const Grid&, const TouchedSums<Float16, 1>&);
template void launch(Queue&, const Grid&, const TouchedSums<Float16, 8>&);
template void launch(Queue&, const Grid&, const KeepRowsApart<1>&);
template void launch(Queue&, const Grid&, const KeepRowsApart<4>&);
template void launch(Queue&, const Grid&, const PlacesOfRows&);
template void launch(Queue&, const Grid&, const JoinNodes&);
template void launch(Queue&, const Grid&, const NormOfBlocks&);
template void launch(Queue&, const Grid&, const AddGradients<1>&);
template void launch(Queue&, const Grid&, const AddGradients<4>&);
template void device_adamw_of_windows(Queue&, const AdamWOfWindows<ExactState, float, 1>&);
template void device_adamw_of_windows(Queue&, const AdamWOfWindows<CompactState, BFloat16, 1>&);
template void device_adamw_of_windows(Queue&, const AdamWOfWindows<Fp32State, float, 1>&);
template void launch(Queue&, const Grid&, const CopyFromWindows<BFloat16, 1>&);
template void launch(Queue&, const Grid&, const CopyFromWindows<BFloat16, 8>&);
template void launch(Queue&, const Grid&, const CopyFromWindows<float, 1>&);
template void launch(Queue&, const Grid&, const CopyFromWindows<float, 4>&);
template void launch(Queue&, const Grid&, const ShareWindows<std::uint16_t>&);
template void launch(Queue&, const Grid&, const ShareWindows<Pack<std::uint32_t, 4>>&);

}  // namespace spillway::cuda
