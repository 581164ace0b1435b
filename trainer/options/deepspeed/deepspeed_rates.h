// DeepSpeed's schedulers in our flags: --lr-rule deepspeed, and what its rates need.
#pragma once

#include "trainer/options/deepspeed/deepspeed_says.h"

namespace spillway {

// After the optimizer, whose rate the scheduler takes or replaces.
void read_deepspeed_rates(DeepSpeedSayings& say);

}  // namespace spillway
