// Which options go together, and what this version refuses. Not here: values of one flag alone (flag_table.h).
#pragma once

#include "trainer/options/options.h"

namespace spillway {

// Fills what follows from other options (global batch size) and refuses what does not go together.
void validate(RunOptions& options);
// Refuses flags that mean something only where a device has memory of its own.
void refuse_what_needs_a_device(const MemoryOptions& memory);

// Refuse options that lack a model, or training data: of those commands that need them.
void require_model(const RunOptions& options);
void require_data(const RunOptions& options);

}  // namespace spillway
