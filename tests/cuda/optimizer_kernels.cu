// Instances of the optimizer's kernels for the compile gate: those that no plan of a GPU launches, and those that offload/cuda/
// launches.
#include "offload/cuda/adamw.cuh"
#include "offload/cuda/add_gradients.cuh"
#include "offload/cuda/part_squares.cuh"
#include "offload/cuda/rank_sum.cuh"
#include "offload/cuda/squares.cuh"

namespace spillway::cuda {

template void device_adamw(Queue&, const AdamWSettings&, const AdamWRun&, const ExactState&, const float*);
template void device_adamw(Queue&, const AdamWSettings&, const AdamWRun&, const ExactState&, const BFloat16*);
template void device_adamw(Queue&, const AdamWSettings&, const AdamWRun&, const CompactState&, const BFloat16*);
template void device_adamw(Queue&, const AdamWSettings&, const AdamWRun&, const Fp32State&, const float*);
template void device_adamw(Queue&, const AdamWSettings&, const AdamWRun&, const Fp16State&, const float*);
template void device_squares(Queue&, const SquareNodes<false, true>&);
template void device_squares(Queue&, const SquareNodes<true, true>&);
template void launch(Queue&, const Grid&, const JoinNodes&);
template void launch(Queue&, const Grid&, const NormOfBlocks&);
template void launch(Queue&, const Grid&, const JoinPart&);
template void launch(Queue&, const Grid&, const SumOfWords&);
template void launch(Queue&, const Grid&, const SumOverRanks<1>&);
template void launch(Queue&, const Grid&, const SumOverRanks<4>&);
template void launch(Queue&, const Grid&, const AddGradients<1>&);
template void launch(Queue&, const Grid&, const AddGradients<4>&);

}  // namespace spillway::cuda
