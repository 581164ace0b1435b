// Checks which options go together and what this version can run. Not here: checks of one flag alone (flag_table.h).
#pragma once

#include "trainer/options/options.h"

namespace spillway {

// Fills options that follow from others (global batch size) and refuses options that do not go together.
void validate(RunOptions& options);
// Refuses flags that only apply to a device with memory of its own.
void refuse_what_needs_a_device(const MemoryOptions& memory);
// For a run on the CPU: throws InputError where its type is one that CPUs do not compute in.
void refuse_type_of_gpus(const PrecisionOptions& precision);

// Refuse options without a model, or without training data, for the commands that need them.
void require_model(const RunOptions& options);
void require_data(const RunOptions& options);

}  // namespace spillway
