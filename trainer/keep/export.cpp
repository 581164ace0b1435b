#include "trainer/keep/export.h"

#include <fmt/core.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "files/safetensors_writer.h"
#include "memory/error.h"
#include "memory/parallel.h"
#include "models/build.h"
#include "models/catalogue/catalogue.h"
#include "models/weights_io.h"
#include "trainer/host/interrupt.h"
#include "trainer/keep/checkpoint.h"
#include "trainer/keep/checkpoint_weights.h"
#include "trainer/options/raw_flags.h"
#include "trainer/options/options.h"
#include "trainer/options/resolve_options.h"
#include "trainer/options/validate_options.h"
#include "trainer/words/size.h"

namespace spillway {
namespace {

namespace fs = std::filesystem;

constexpr std::array kCompanions = {"tokenizer.json",      "tokenizer_config.json",
                                    "tokenizer.model",     "special_tokens_map.json",
                                    "added_tokens.json",   "vocab.json",
                                    "merges.txt",          "generation_config.json",
                                    "chat_template.jinja", "chat_template.json"};

[[noreturn]] void fail(const fs::path& path, std::string_view what, const std::string& why) {
  throw IoError(fmt::format("{}: {} failed: {}", path.string(), what, why),
                "Free some space, or choose another --out directory.");
}

// The directory in the making; gone with the object unless it was moved to its place.
class UnfinishedDirectory {
 public:
  explicit UnfinishedDirectory(const fs::path& place) : place_(place), path_(place.string() + ".partial") {
    std::error_code error;
    fs::remove_all(path_, error);  // of a process that was killed
    if (!error) fs::create_directories(path_, error);
    if (error) fail(path_, "making the directory", error.message());
  }
  ~UnfinishedDirectory() {
    std::error_code ignored;
    if (!moved_) fs::remove_all(path_, ignored);
  }
  UnfinishedDirectory(const UnfinishedDirectory&) = delete;
  UnfinishedDirectory& operator=(const UnfinishedDirectory&) = delete;

  const fs::path& path() const noexcept { return path_; }
  void move_to_place() {
    sync_directory(path_);
    if (std::rename(path_.c_str(), place_.c_str()) != 0) fail(place_, "renaming the finished directory", std::strerror(errno));
    moved_ = true;
    sync_directory(place_.parent_path().empty() ? "." : place_.parent_path());
  }

 private:
  fs::path place_, path_;
  bool moved_ = false;
};

fs::path empty_place(const std::string& out) {
  if (out.empty()) throw InputError("--out: not given", "allowed: a directory that does not exist yet or is empty");
  fs::path place = fs::absolute(out).lexically_normal();
  if (!place.has_filename()) place = place.parent_path();
  std::error_code ignored;
  if (fs::exists(fs::symlink_status(place, ignored))) {
    if (!fs::is_directory(place, ignored))
      throw InputError(fmt::format("--out: found {}, which is not a directory", out),
                       "allowed: a directory that does not exist yet or is empty");
    if (!fs::is_empty(place, ignored))
      throw InputError(fmt::format("--out: found {}, which is not empty", out),
                       "allowed: a directory that does not exist yet or is empty");
  }
  return place;
}

RunOptions options_of_run(const ExportOptions& options) {
  RawFlags flags;
  flags.given["load"] = {options.run};
  if (!options.model.empty()) flags.given["model"] = {options.model};
  return resolve_options(flags).options;
}

// Where the files beside config.json are; empty for a name of the catalogue.
fs::path companions_of(const std::string& model) {
  std::error_code ignored;
  if (fs::is_directory(model, ignored)) return model;
  return fs::exists(model, ignored) ? fs::absolute(model).parent_path() : fs::path();
}

void copy_companions(const fs::path& from, const fs::path& to) {
  if (from.empty()) return;
  for (const char* name : kCompanions) {
    std::error_code error;
    if (!fs::is_regular_file(from / name, error)) continue;
    fs::copy_file(from / name, to / name, error);
    if (error) fail(to / name, fmt::format("copying {}", (from / name).string()), error.message());
    PosixFile::open_to_read(to / name).sync();
  }
}

}  // namespace

Bytes parse_shard_size(const std::string& text) {
  const auto size = try_parse_size(text, SizeUnits::binary_and_decimal);
  if (size && *size > 0) return *size;
  throw InputError(
      fmt::format("--max-shard-size: found \"{}\", allowed: bytes above 0, or with KB, MB, GB, KiB, MiB, GiB or TiB", text));
}

ExportResult export_run(const ExportOptions& options) {
  const fs::path place = empty_place(options.out);
  const RunOptions run = options_of_run(options);
  require_model(run);
  const LoadedCheckpoint checkpoint =
      options.step ? checkpoint_of_step(options.run, *options.step) : newest_checkpoint(options.run);
  const ModelConfig config = resolve_model(run.model.model).config;

  // Blocks follow from the model alone: the smallest batch has the same ones.
  const CompiledModel model =
      build_model(config, {.dtype = run.precision.dtype, .micro_batch = 1, .sequence = 1, .head = HeadMode::tiled});
  const DType dtype = options.dtype.value_or(run.precision.dtype);
  const CheckpointWeights weights(checkpoint.path, model.graph, dtype);
  const ElementType type = dtype == DType::float32 ? ElementType::f32 : ElementType::bf16;
  const InterruptHandler interrupt;
  UnfinishedDirectory directory(place);
  {
    ShardedSafetensorsWriter writer(directory.path(), tensors_to_write(model.graph, type), options.shard_bytes);
    export_weights(
        model.graph, type, [&](int block, std::int64_t begin, std::span<float> out) { weights.read(block, begin, out); },
        [&](std::string_view tensor, std::span<const std::byte> data) {
          if (interrupt.requested()) throw Error(kExitInterrupted, "interrupted: nothing was exported", "");
          writer.append(tensor, data);
        });
    writer.finish();
  }
  write_text_file(directory.path() / "config.json", config_json(config, dtype));
  copy_companions(companions_of(run.model.model), directory.path());
  directory.move_to_place();
  return {checkpoint.step, model.graph.parameters, dtype};
}

}  // namespace spillway
