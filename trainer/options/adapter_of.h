// The adapter of a run: that of --adapter, the one that a loaded run has, or a new one of the rank that was asked for.
// Not here: the file that describes one (adapter_config.h), where its tensors go (trainer/keep/state_io.h).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "memory/plan/unit.h"
#include "trainer/options/adapter_config.h"
#include "trainer/options/options.h"

namespace spillway {

// Path within a run directory: what the run's adapters were begun with.
inline constexpr std::string_view kKeptAdapter = "/begun-with/adapter_config.json";
// The files of an adapter, as PEFT names them.
inline constexpr std::string_view kAdapterConfig = "/adapter_config.json", kAdapterWeights = "/adapter_model.safetensors";

// Nothing where all of a model is trained. Throws InputError if --adapter is no adapter that this version computes, if a flag
// says otherwise than it, and for flags without a rank.
std::optional<AdapterConfig> adapter_of(const RunOptions& options);
std::optional<AdapterSpec> adapter_spec_of(const RunOptions& options);

// A sentence if --adapter says that it is of a model with another name than --model's; names alone prove nothing. Else empty.
std::string note_of_other_base(const RunOptions& options);

// Throws InputError if a name in --lora-targets is none of the model's linear layers, or if no layer has an adapter. The graph is
// that of adapter_of().
void refuse_other_targets(const RunOptions& options, const UnitGraph& graph);

}  // namespace spillway
