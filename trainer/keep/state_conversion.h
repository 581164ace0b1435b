// State in one form made into state in another: weights keep all their bits; moments are widened, or rounded to nearest. And what
// else changes where a run goes on under options that it was not begun with, said in words.
// Not here: files and executors (state_io.h).
//
// Legend: P elements of a range.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "memory/plan.h"
#include "trainer/options/options.h"

namespace spillway {

// Arrays by StateKind, each [P]; null where the form has none.
void convert_state(StateForm from, const std::array<const std::byte*, kStateKinds>& in, StateForm to,
                   const std::array<std::byte*, kStateKinds>& out, std::int64_t elements);

// A sentence for each option by which a run that goes on computes other bits than the run before would have.
std::vector<std::string> changes_of_bits(const RunOptions& before, const RunOptions& now);

// run.json: the options, and of a run on a GPU what the bits of its products depend on (Device::identity()).
std::string run_json_text(const RunOptions& options, const std::string& device_identity);
// What that says of its device; empty: it was the CPU, or the text does not say.
std::string device_identity_in(const std::string& run_json);

}  // namespace spillway
