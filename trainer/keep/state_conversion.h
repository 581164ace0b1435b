// Converts state from one form to another: weights keep all their bits; moments are widened, or rounded to nearest. Also
// describes the other effects when a run goes on under changed options.
// Not here: files and executors (state_io.h).
//
// Legend: P elements of a range.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "memory/plan/plan.h"
#include "trainer/options/options.h"

namespace spillway {

// Arrays are indexed by StateKind, each [P]; null if the form does not have the array.
void convert_state(StateForm from, const std::array<const std::byte*, kStateKinds>& in, StateForm to,
                   const std::array<std::byte*, kStateKinds>& out, std::int64_t elements);

// One sentence for each option by which the run that goes on computes other bits than the run before would have.
std::vector<std::string> changes_of_bits(const RunOptions& before, const RunOptions& now);

// The text of run.json: the options and, for a run on a GPU, everything that the bits of its products depend on
// (Device::identity()).
std::string run_json_text(const RunOptions& options, const std::string& device_identity);
// The device's identity in run.json; empty if it was the CPU or the text does not say.
std::string device_identity_in(const std::string& run_json);

}  // namespace spillway
