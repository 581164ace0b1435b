// Brings state into and out of an executor: from a model's weights, from a seed, to and from a checkpoint. All in bounded memory.
// Blocks that are not trained are in no checkpoint: their weights come from the model each time.
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

// The weights of the model's directory, or drawn from the seed if there is no directory; of all blocks but an adapter's. Model
// and graph must outlive the source. Throws InputError if the files do not fit the model.
BlockSource weights_of_model(const ResolvedModel& model, const UnitGraph& graph, std::uint64_t seed);

// The same of an adapter's blocks: of its directory, or drawn if there is none. The graph must outlive the source.
BlockSource weights_of_adapter(const std::string& directory, const ModelConfig& config, const UnitGraph& graph,
                               std::uint64_t seed);
// Takes an adapter's blocks from one source and the others from another.
BlockSource with_adapter(const UnitGraph& graph, BlockSource model, BlockSource adapter);

// master: the fp32 master. forward: only the part of it that a forward reads.
enum class WeightParts : std::uint8_t { master, forward };
enum class BlocksToWrite : std::uint8_t { all, frozen };
// Asks `source` for every range once. Moments begin at zero, because the store's new files and the arena's new pages are zero.
// Returns a hash of the weights of frozen blocks as the source gives them; 0 where there are none.
std::uint64_t write_weights(Executor& executor, const UnitGraph& graph, StateForm form, WeightParts parts,
                            const BlockSource& source, BlocksToWrite blocks = BlocksToWrite::all);
// The same hash, of a source that is not written.
std::uint64_t hash_of_frozen(const UnitGraph& graph, const BlockSource& source);

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

// The form of the file's state; fp32 if it is of none that is known.
StateForm form_of_stored(const std::string& file, const UnitGraph& graph);

// Returns true if every weight, and every master of one, is a finite number. The executor must be idle, with no update waiting.
bool weights_are_finite(Executor& executor, const Plan& plan, const UnitGraph& graph);

}  // namespace spillway
