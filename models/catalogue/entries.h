// The rows of the catalogue, one group for each line of models. Not here: finding one by name (catalogue.h).
#pragma once

#include <span>

#include "models/catalogue/catalogue.h"

namespace spillway {

std::span<const CatalogueEntry> gpt2_entries();
std::span<const CatalogueEntry> llama_entries();
std::span<const CatalogueEntry> mistral_entries();
std::span<const CatalogueEntry> qwen_entries();
std::span<const CatalogueEntry> gemma_entries();

}  // namespace spillway
