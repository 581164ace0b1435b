// Brings state into and out of an executor: from a model's weights, from a seed, to and from a checkpoint. All in bounded memory.
// Not here: the run directory around a checkpoint (run_directory.h), the arrays' places (memory/plan/plan.h).
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "files/safetensors.h"
#include "memory/plan/plan.h"
#include "models/catalogue/catalogue.h"
#include "models/unit_code.h"
#include "models/weights_io.h"
#include "offload/executor.h"
#include "trainer/keep/state_sums.h"

namespace spillway {

// The type of an array in a checkpoint.
ElementType element_type_of(const StateArray& array);

// The weights of the model's directory, or drawn from the seed if there is no directory. Model and graph must outlive the source.
// Throws InputError if the files do not fit the model.
BlockSource weights_of_model(const ResolvedModel& model, const UnitGraph& graph, std::uint64_t seed);

// master: the fp32 master. forward: only the part of it that a forward reads.
enum class WeightParts : std::uint8_t { master, forward };
// Asks `source` for every range once. Moments begin at zero, because the store's new files and the arena's new pages are zero.
void write_weights(Executor& executor, const UnitGraph& graph, StateForm form, WeightParts parts, const BlockSource& source);

// Fills a fresh executor with weights_of_model(); moments are zero.
void initialise_state(Executor& executor, const Plan& plan, const UnitGraph& graph, const ResolvedModel& model,
                      std::uint64_t seed);

// Writes one safetensors file with the blocks' arrays, whole, in their form at rest. Blocks follow from the model alone, so any
// plan for the same model and state form can read it. The executor must be idle, with no update waiting. Returns the sums of the
// written arrays.
StateSums save_state(Executor& executor, const Plan& plan, const UnitGraph& graph, const std::string& file);
// The same for held state, all of it on the device. Calls `between` after each piece; it may throw.
StateSums save_held_state(const StateHold& held, const Plan& plan, const UnitGraph& graph, const std::string& file,
                          const std::function<void()>& between);
// Loads the file; converts state of another form (state_conversion.h). Throws InputError if the file belongs to another model,
// IoError if it is damaged.
void load_state(Executor& executor, const Plan& plan, const UnitGraph& graph, const std::string& file);

// Returns true if every weight is a finite number. The executor must be idle, with no update waiting.
bool weights_are_finite(Executor& executor, const Plan& plan, const UnitGraph& graph);

}  // namespace spillway
