// The error for a wrong file that rows of data are read with, a tokenizer or a chat template. It is one error of the whole run
// and never a row's fault, so that no row is skipped for it.
// Not here: errors in a row (the row's reader throws an InputError).
#pragma once

#include "memory/base/error.h"

namespace spillway {

struct ResourceError : InputError {
  using InputError::InputError;
  explicit ResourceError(const Error& error) : InputError(error.what(), error.help()) {}
};

// Returns what `load` returns; turns an InputError that it throws into a ResourceError.
template <typename Load>
auto loaded_resource(const Load& load) {
  try {
    return load();
  } catch (const InputError& error) {
    throw ResourceError(error);
  }
}

}  // namespace spillway
