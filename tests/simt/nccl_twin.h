// The twin of NCCL for emulated devices: the same functions, whose sends and receives are work of an emulated stream and go over
// TCP between processes or threads of one host. Work is done as late as its stream permits. A group that a rank does not answer
// waits, until the communicator is broken off.
#pragma once

#include "collectives/nccl_library.h"

namespace spillway::simt {

const NcclLibrary& nccl_twin();

}  // namespace spillway::simt
