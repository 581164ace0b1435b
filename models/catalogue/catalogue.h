// Well-known shapes by name, and the rule by which `--model X` finds a model.
// Not here: weights; a name of the catalogue is a shape, its weights are drawn from the seed.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "files/embedded_file.h"
#include "models/config.h"

namespace spillway {

struct CatalogueEntry {
  std::string name;
  std::string config_json;
};

// Family after family, small to large.
std::span<const CatalogueEntry> catalogue();

// The files that the catalogue is read from, one a family: models by name, each with the keys of its config.json that decide its
// shape and its arithmetic. Dropout of GPT-2's is 0 there, since training is without.
std::span<const EmbeddedFile> catalogue_files();

// InputError with the nearest names where there is no such one.
ModelConfig catalogue_config(std::string_view name);

struct ResolvedModel {
  ModelConfig config;
  std::string directory;  // where the weights (and perhaps a tokenizer) are; empty: no weights, draw them from the seed
};

// True if resolve_model finds it in the catalogue: no file or directory has this name, and an entry has.
bool names_catalogue_model(const std::string& path_or_name);

enum class Weights : std::uint8_t {
  if_there,      // a directory's, or drawn ones where it has none
  of_directory,  // a directory must have them
  drawn,         // not read
};

// A directory with config.json, or a .json file (a shape alone, even with weights beside it), or a name of the catalogue. A head
// that is said to be tied to the embedding and is there with other values is untied, and what is missing of a bare model is
// drawn, each with a note. InputError where a directory has weights that cannot be read.
ResolvedModel resolve_model(const std::string& path_or_name, Weights weights = Weights::if_there);

}  // namespace spillway
