// The reference of a mixture's calls (kernels.h): plain loops, one row and one expert at a time.
#pragma once

#include "models/backend.h"
#include "models/kernels.h"

namespace spillway {

void run_reference(const kernels::Route& call, const PassMemory& memory);
void run_reference(const kernels::AddRouting& call, const PassMemory& memory);
void run_reference(const kernels::RouteBackward& call, const PassMemory& memory);
void run_reference(const kernels::Experts& call, const PassMemory& memory);
void run_reference(const kernels::ExpertsBackward& call, const PassMemory& memory);

}  // namespace spillway
