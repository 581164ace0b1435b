// The optimizer's kernels, made for the compile gate: nothing launches them yet.
#include "offload/cuda/adamw.cuh"
#include "offload/cuda/squares.cuh"

namespace spillway::cuda {

template void device_adamw(Queue&, const AdamWSettings&, const AdamWRun&, const ExactState&, const float*);
template void device_adamw(Queue&, const AdamWSettings&, const AdamWRun&, const ExactState&, const BFloat16*);
template void device_adamw(Queue&, const AdamWSettings&, const AdamWRun&, const CompactState&, const BFloat16*);
template void device_adamw(Queue&, const AdamWSettings&, const AdamWRun&, const Fp32State&, const float*);
template void launch(Queue&, const Grid&, const SquareNodes<false>&);
template void launch(Queue&, const Grid&, const SquareNodes<true>&);
template void launch(Queue&, const Grid&, const JoinNodes&);
template void launch(Queue&, const Grid&, const NormOfBlocks&);

}  // namespace spillway::cuda
