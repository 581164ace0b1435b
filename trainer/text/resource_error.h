// A file that rows of data are read with, a tokenizer or a chat template, is wrong: that is one error of the run and never a
// row's fault, so that no row is left out for it.
// Not here: what is wrong with a row (an InputError of whoever reads it).
#pragma once

#include "memory/error.h"

namespace spillway {

struct ResourceError : InputError {
  using InputError::InputError;
  explicit ResourceError(const Error& error) : InputError(error.what(), error.help()) {}
};

// What `load` gives; an InputError of it becomes a ResourceError.
template <typename Load>
auto loaded_resource(const Load& load) {
  try {
    return load();
  } catch (const InputError& error) {
    throw ResourceError(error);
  }
}

}  // namespace spillway
