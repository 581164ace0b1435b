#include "trainer/keep/base_hash.h"

#include <fmt/core.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "files/json_place.h"
#include "files/json_text.h"
#include "files/posix_file.h"
#include "memory/base/error.h"
#include "memory/base/types.h"

namespace spillway {
namespace {

std::string path_in(const std::string& directory) { return directory + "/base.json"; }

}  // namespace

void write_base_hash(const std::string& directory, std::uint64_t hash) {
  write_text_file(path_in(directory), json_text(nlohmann::ordered_json{{"xxh3", fmt::format("{:016x}", hash)}}));
}

std::optional<std::uint64_t> read_base_hash(const std::string& directory) {
  std::error_code ignored;
  if (!std::filesystem::exists(path_in(directory), ignored)) return std::nullopt;
  const auto json = parsed_json(read_text_file(path_in(directory), kMiB));
  return JsonPlace(json, path_in(directory), "Go on from an earlier checkpoint of the run.", FileOf::program).at("xxh3").hash();
}

void require_same_base(const std::string& directory, std::uint64_t found, const std::string& model) {
  const std::optional<std::uint64_t> noted = read_base_hash(directory);
  if (!noted || *noted == found) return;
  throw InputError(fmt::format("--load: the weights of {} have the checksum {:016x}, but {} has adapters of a model with {:016x}",
                               model, found, directory, *noted),
                   "Adapters mean nothing beside other weights: give the model that the run was begun with, by --model.");
}

}  // namespace spillway
