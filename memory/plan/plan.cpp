#include "memory/plan/plan.h"

#include "memory/base/error.h"

namespace spillway {

const Buffer& buffer_of(const Plan& plan, const Program& program, int index) {
  const int resident = static_cast<int>(plan.resident.size());
  SPILLWAY_CHECK(index >= 0 && index < resident + static_cast<int>(program.buffers.size()), "buffer {} of {} + {}", index,
                 resident, program.buffers.size());
  return index < resident ? plan.resident[index] : program.buffers[static_cast<std::size_t>(index - resident)];
}

}  // namespace spillway
