#include "trainer/keep/kept_input.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "files/posix_file.h"
#include "memory/base/error.h"
#include "trainer/data/standard_input.h"
#include "trainer/host/file_blocks.h"

namespace spillway {
namespace {

namespace fs = std::filesystem;

std::string copied_to(const fs::path& run_directory) {
  const StandardInput& input = StandardInput::get();
  const fs::path place = run_directory / kKeptInput, unfinished = place.string() + ".partial";
  std::error_code error;
  fs::remove_all(unfinished, error);
  if (!error) fs::create_directories(unfinished, error);
  if (error) throw IoError(fmt::format("{}: cannot be made: {}", unfinished.string(), error.message()), help_for(error.value()));
  const std::string name = "data" + input.endings();
  const PosixFile from = input.open(), to = PosixFile::create(unfinished / name);
  for_each_block(from, 0, from.size(), [&](Bytes at, std::span<const std::byte> block) { to.write(at, block); });
  to.sync();
  sync_directory(unfinished);
  fs::remove_all(place, error);
  if (!error) fs::rename(unfinished, place, error);
  if (error) throw IoError(fmt::format("{}: cannot be written: {}", place.string(), error.message()), help_for(error.value()));
  sync_directory(run_directory);
  return (place / name).string();
}

}  // namespace

void keep_standard_input(const std::string& run_directory, DataOptions& data) {
  for (std::vector<std::string>* const paths : {&data.data, &data.eval_data}) {
    for (std::string& path : *paths) {
      if (path == kStandardInput) path = copied_to(run_directory);
    }
  }
}

}  // namespace spillway
