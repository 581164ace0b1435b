// The hash of the frozen weights that a run's adapters are trained beside: in the run directory from its first moment, and in
// each checkpoint. With other weights the adapters mean nothing. Not here: how the hash is taken (state_io.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace spillway {

void write_base_hash(const std::string& directory, std::uint64_t hash);
// Nothing where there is none: all weights are trained.
std::optional<std::uint64_t> read_base_hash(const std::string& directory);
// Throws InputError if the weights that were read now are not those noted in the directory of a run or a checkpoint. `model`:
// where they were read.
void require_same_base(const std::string& directory, std::uint64_t found, const std::string& model);

}  // namespace spillway
