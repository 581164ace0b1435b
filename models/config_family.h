// Recognizes what a config.json describes: a family, or a checkpoint that wraps a model of a family.
// Not here: the tables (family.h, wrapper.h), the keys of a family (config.h).
#pragma once

#include "models/config_section.h"
#include "models/wrapper.h"

namespace spillway {

// These throw InputError where the file describes nothing that is known, naming what it has and what is known.
const FamilyRow* read_family(const ConfigSection& section);

// Null: the file is that of a language model alone.
const WrapperRow* read_wrapper(const ConfigSection& whole);
// Of the text half, whose part of the file `text` is.
const FamilyRow* read_text_family(const ConfigSection& text, const WrapperRow& wrapper);

}  // namespace spillway
