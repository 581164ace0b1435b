#include "trainer/keep/export.h"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "files/safetensors_writer.h"
#include "memory/base/error.h"
#include "memory/base/parallel.h"
#include "models/build.h"
#include "models/weights_io.h"
#include "trainer/host/interrupt.h"
#include "trainer/keep/base_hash.h"
#include "trainer/keep/checkpoint.h"
#include "trainer/keep/checkpoint_weights.h"
#include "trainer/keep/merged_weights.h"
#include "trainer/keep/run_files.h"
#include "trainer/keep/state_io.h"
#include "trainer/keep/surroundings.h"
#include "trainer/options/adapter_of.h"
#include "trainer/options/model_of.h"
#include "trainer/options/options.h"
#include "trainer/options/raw_flags.h"
#include "trainer/options/resolve_options.h"
#include "trainer/options/validate_options.h"
#include "trainer/plan/checkpoint_room.h"
#include "trainer/words/size.h"

namespace spillway {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const fs::path& path, std::string_view what, const std::string& why) {
  throw IoError(fmt::format("{}: {} failed: {}", path.string(), what, why),
                "Free some space, or choose another --out directory.");
}

// A directory in the making; removed with the object unless it was moved to its place.
class UnfinishedDirectory {
 public:
  explicit UnfinishedDirectory(const fs::path& place) : place_(place), path_(place.string() + ".partial") {
    std::error_code error;
    fs::remove_all(path_, error);  // leftover of a process that was killed
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

}  // namespace

Bytes parse_shard_size(const std::string& text) {
  const auto size = try_parse_size(text, SizeUnits::binary_and_decimal);
  if (size && *size > 0) return *size;
  throw InputError(
      fmt::format("--max-shard-size: found \"{}\", allowed: bytes above 0, or with KB, MB, GB, KiB, MiB, GiB or TiB", text));
}

namespace {

void require_space(const ExportOptions& options, const fs::path& place, Bytes needed) {
  const Bytes free = free_space_at(place.string());
  if (free < 0 || free >= needed) return;
  throw IoError(fmt::format("--out {}: the weights take {} bytes, {} are free on its disk", options.out, needed, free),
                "Free some space, or choose another --out directory.");
}

void stop_where_interrupted(const InterruptHandler& interrupt) {
  if (interrupt.requested()) throw Error(kExitInterrupted, "interrupted: nothing was exported", "");
}

void write_adapter_tensors(SafetensorsWriter& writer, const UnitGraph& graph, const BlockSource& source) {
  const InterruptHandler interrupt;
  export_weights(
      graph, ElementType::f32, source,
      [&](std::string_view tensor, std::span<const std::byte> data) {
        stop_where_interrupted(interrupt);
        writer.append(tensor, data);
      },
      TensorsOf::adapter);
  writer.finish();
}

void write_model_tensors(const fs::path& directory, Bytes shard_bytes, const UnitGraph& graph, ElementType type,
                         const BlockSource& source, const Surroundings* around) {
  std::vector<TensorToWrite> tensors = tensors_to_write(graph, type);
  if (around != nullptr) around->complete(tensors);
  ShardedSafetensorsWriter writer(directory, tensors, shard_bytes);
  const InterruptHandler interrupt;
  const TensorSink append = [&](std::string_view tensor, std::span<const std::byte> data) {
    stop_where_interrupted(interrupt);
    writer.append(tensor, data);
  };
  export_weights(graph, type, source, around != nullptr ? around->renamed(append) : append);
  if (around != nullptr) around->copy(append);
  writer.finish();
}

// Names by which the layers are found, where the run says all linear layers: their last parts.
std::vector<std::string> names_of_targets(const UnitGraph& graph) {
  std::vector<std::string> names;
  for (const std::string& layer : adapted_layers(graph)) {
    const std::string name = layer.substr(layer.rfind('.') + 1);
    if (std::ranges::find(names, name) == names.end()) names.push_back(name);
  }
  return names;
}

void write_adapter(const fs::path& directory, const RunOptions& run, AdapterConfig config, const ModelConfig& model,
                   const UnitGraph& graph, const BlockSource& source) {
  SafetensorsWriter writer(directory / "adapter_model.safetensors",
                           tensors_to_write(graph, ElementType::f32, TensorsOf::adapter));
  write_adapter_tensors(writer, graph, source);
  // The last parts would also name layers beside a text half.
  if (model.is_text_half()) config.targets = adapted_layers(graph);
  if (config.targets.empty()) config.targets = names_of_targets(graph);
  if (config.base.empty())
    config.base = run.model.hub.empty() ? run.model.model : run.model.hub.substr(0, run.model.hub.find('@'));
  write_text_file(directory / "adapter_config.json", adapter_config_json(config));
}

void check_options(const ExportOptions& options, bool has_adapter) {
  if (options.merge && !has_adapter)
    throw InputError(
        fmt::format("--merge: found with a run that trains all weights ({}), allowed: with one that has adapters", options.run));
  if (has_adapter && !options.merge && options.dtype.value_or(DType::float32) != DType::float32)
    throw InputError(fmt::format("--dtype: found {} for an adapter, allowed: fp32; with --merge all", name_of(*options.dtype)));
}

}  // namespace

ExportResult export_run(const ExportOptions& options) {
  const fs::path place = empty_place(options.out);
  const RunOptions run = options_of_run(options);
  require_model(run);
  const std::optional<AdapterConfig> adapter = adapter_of(run);
  check_options(options, adapter.has_value());
  const LoadedCheckpoint checkpoint =
      options.step ? checkpoint_of_step(options.run, *options.step) : newest_checkpoint(options.run);
  const ResolvedModel resolved = model_of(run, Weights::if_there);
  const ModelConfig& config = resolved.config;
  refuse_other_model(run, config);

  // Blocks follow from the model alone, so the smallest batch gives the same blocks.
  const CompiledModel model = build_model(
      config,
      {.dtype = run.precision.dtype, .micro_batch = 1, .sequence = 1, .head = HeadMode::tiled, .adapter = adapter_spec_of(run)});
  const UnitGraph& graph = model.graph;
  const DType dtype = adapter && !options.merge ? DType::float32 : options.dtype.value_or(run.precision.dtype);
  const ElementType type = element_type_of(dtype);
  const CheckpointWeights weights(checkpoint.path, graph, adapter ? DType::float32 : dtype);
  const BlockSource trained = [&](int block, std::int64_t begin, std::span<float> out) { weights.read(block, begin, out); };
  if (adapter && !options.merge) {
    require_space(options, place, graph.trained_parameters * size_of(type));
    UnfinishedDirectory directory(place);
    write_adapter(directory.path(), run, *adapter, config, graph, trained);
    directory.move_to_place();
    return {checkpoint.step, graph.trained_parameters, dtype, true};
  }
  std::optional<MergedWeights> merged;
  if (adapter) {
    const BlockSource base = weights_of_model(resolved, graph, run.model.seed);
    require_same_base(checkpoint.path, hash_of_frozen(graph, base), run.model.model);
    merged.emplace(graph, spec_of(*adapter), base, trained);
  }
  const BlockSource source = [&](int block, std::int64_t begin, std::span<float> out) { merged->read(block, begin, out); };
  const std::int64_t parameters = graph.parameters - (adapter ? graph.trained_parameters : 0);
  std::optional<Surroundings> around;
  if (config.is_text_half()) around.emplace(run.model.model, config, graph);
  require_space(options, place, parameters * size_of(type) + (around ? around->bytes() : 0));
  UnfinishedDirectory directory(place);
  write_model_tensors(directory.path(), options.shard_bytes, graph, type, merged ? source : trained, around ? &*around : nullptr);
  write_text_file(directory.path() / "config.json", config_json(config, dtype));
  copy_companions(run, directory.path());
  directory.move_to_place();
  return {checkpoint.step, parameters, dtype, false};
}

}  // namespace spillway
