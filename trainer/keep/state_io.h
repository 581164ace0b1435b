// State into and out of an executor: from a model's weights, from a seed, to and from a checkpoint. All in bounded memory.
// Not here: the run directory around a checkpoint (run_directory.h), the arrays' places (memory/plan.h).
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "files/safetensors.h"
#include "memory/plan.h"
#include "models/catalogue/catalogue.h"
#include "models/unit_code.h"
#include "models/weights_io.h"
#include "offload/executor.h"
#include "trainer/keep/state_sums.h"

namespace spillway {

// Of an array in a checkpoint.
ElementType element_type_of(const StateArray& array);

// The weights of the model's directory, or drawn from the seed where it has none. Model and graph must outlive the source.
// InputError where the files do not fit the model.
BlockSource weights_of_model(const ResolvedModel& model, const UnitGraph& graph, std::uint64_t seed);

// Whether the fp32 master is wanted, or only what a forward reads of it.
enum class WeightParts : std::uint8_t { master, forward };
// Every range is asked of `source` once. Moments begin at zero, as the store's fresh files and the arena's fresh pages do.
void write_weights(Executor& executor, const UnitGraph& graph, StateForm form, WeightParts parts, const BlockSource& source);

// Fills a fresh executor with weights_of_model(); moments are zero.
void initialise_state(Executor& executor, const Plan& plan, const UnitGraph& graph, const ResolvedModel& model,
                      std::uint64_t seed);

// One safetensors file of the blocks' arrays, whole, as they are at rest. Blocks follow from the model alone, so any plan of the
// same model and state form reads it. The executor must be idle, with no update waiting. Returns the sums of what was written.
StateSums save_state(Executor& executor, const Plan& plan, const UnitGraph& graph, const std::string& file);
// The same of a state that is held, all of it on the device; `between` is called after each piece, and may throw.
StateSums save_held_state(const StateHold& held, const Plan& plan, const UnitGraph& graph, const std::string& file,
                          const std::function<void()>& between);
// State of another form is converted (state_conversion.h). InputError where the file is of another
// model; IoError where it is damaged.
void load_state(Executor& executor, const Plan& plan, const UnitGraph& graph, const std::string& file);

// Whether every weight is a finite number. The executor must be idle, with no update waiting.
bool weights_are_finite(Executor& executor, const Plan& plan, const UnitGraph& graph);

}  // namespace spillway
