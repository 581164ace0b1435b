#include "trainer/options/resolve_options.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "files/json_place.h"
#include "files/json_text.h"
#include "files/strict_json.h"
#include "memory/base/error.h"
#include "models/catalogue/catalogue.h"
#include "trainer/options/adapter_of.h"
#include "trainer/options/config_file.h"
#include "trainer/options/deepspeed/deepspeed_file.h"
#include "trainer/options/flag_table.h"
#include "trainer/options/hub_cache.h"
#include "trainer/options/model_of.h"
#include "trainer/options/validate_options.h"

namespace spillway {
namespace {

using nlohmann::json;
using Given = std::map<std::string, std::vector<std::string>>;

// Options go into run.json, and JSON is UTF-8: a path that is not UTF-8 could not be read back.
void refuse_what_json_cannot_hold(const std::vector<std::string>& texts, const std::string& where) {
  for (const std::string& text : texts) {
    try {
      (void)json(text).dump();
    } catch (const json::exception&) {
      throw InputError(fmt::format("{}: found {}, which is not UTF-8, allowed: UTF-8", where, shown_name(text)));
    }
  }
}

// `where` begins messages.
void apply_one(const std::string& name, const std::vector<std::string>& texts, OptionSource source, const std::string& where,
               ResolvedOptions& resolved) {
  const Flag* flag = find_flag(name);
  SPILLWAY_CHECK(flag != nullptr, "no row for the flag {}", name);
  refuse_what_json_cannot_hold(texts, where);
  flag->set(resolved.options, FlagValue(where, texts));
  resolved.sources[name] = source;
}

void apply_flags(const Given& typed, ResolvedOptions& resolved) {
  for (const auto& [name, texts] : typed) apply_one(name, texts, OptionSource::flag, "--" + name, resolved);
}

void apply_file(const ConfigFile& file, OptionSource source, ResolvedOptions& resolved) {
  for (const auto& [name, texts] : file.given) {
    const auto place = file.places.find(name);
    apply_one(name, texts, source, place == file.places.end() ? name : place->second, resolved);
  }
}

// run.json of earlier versions lacks choices that they did not have; a loaded run goes on as it began.
void add_choices_of_earlier_versions(Given& loaded) {
  loaded.try_emplace("train-on", std::vector<std::string>{"all"});
  loaded.try_emplace("text-ends", std::vector<std::string>{"none"});
}

// Two flags that say the same in two ways: the one from the stronger source counts. Returns the one that does not, or null.
const char* weaker_of(const char* first, const char* second, ResolvedOptions& resolved) {
  const auto a = resolved.sources.find(first), b = resolved.sources.find(second);
  if (a == resolved.sources.end() || b == resolved.sources.end()) return nullptr;
  if (a->second == b->second)
    throw InputError(fmt::format("--{}: found together with --{}, allowed: one of them", first, second));
  const bool is_first = a->second < b->second;
  resolved.sources.erase(is_first ? a : b);
  return is_first ? first : second;
}

void keep_one_of_alternatives(ResolvedOptions& resolved) {
  constexpr std::string_view kEpochs = "epochs", kFraction = "lr-warmup-fraction";
  RunOptions& options = resolved.options;
  // A run that holds back rows does so whatever it is evaluated on.
  const auto split = resolved.sources.find("eval-split");
  if (split != resolved.sources.end() && split->second != OptionSource::loaded_run) {
    if (const char* weaker = weaker_of("eval-split", "eval-data", resolved)) {
      if (weaker == std::string_view("eval-split"))
        options.data.eval_split.reset();
      else
        options.data.eval_data.clear();
    }
  }
  if (const char* weaker = weaker_of(kEpochs.data(), "train-iters", resolved)) {
    if (weaker == kEpochs)
      options.batch.epochs.reset();
    else
      options.batch.train_iters = BatchOptions().train_iters;
  }
  if (const char* weaker = weaker_of(kFraction.data(), "lr-warmup-iters", resolved)) {
    if (weaker == kFraction)
      options.schedule.lr_warmup_fraction.reset();
    else
      options.schedule.lr_warmup_iters = 0;
  }
}

// A run of fp16 that goes on in another type leaves its loss scale behind.
void forget_loss_scale(ResolvedOptions& resolved) {
  constexpr const char* kFlags[] = {"loss-scale", "loss-scale-policy",      "initial-loss-scale", "loss-scale-window",
                                    "hysteresis", "consecutive-hysteresis", "min-loss-scale"};
  if (resolved.options.precision.dtype == DType::float16) return;
  const auto is_said_anew = [&](const char* flag) {
    const auto source = resolved.sources.find(flag);
    return source != resolved.sources.end() && source->second != OptionSource::loaded_run;
  };
  if (std::ranges::any_of(kFlags, is_said_anew)) return;  // which is refused
  resolved.options.precision.loss_scale = {};
  for (const char* flag : kFlags) resolved.sources.erase(flag);
}

// A run directory has a copy of what was its standard input, and goes on with it wherever the directory lies now.
void find_kept_input(DataOptions& data, const std::string& directory) {
  namespace fs = std::filesystem;
  for (std::vector<std::string>* const paths : {&data.data, &data.eval_data}) {
    for (std::string& path : *paths) {
      const fs::path file = path;
      if (file.parent_path().filename() != kKeptInput) continue;
      const fs::path here = fs::path(directory) / kKeptInput / file.filename();
      std::error_code ignored;
      if (fs::exists(here, ignored)) path = here.string();
    }
  }
}

// The rows that a run holds back must stay the same: others would have been trained on.
void refuse_other_split(const RunOptions& began, const RunOptions& now) {
  if (began.checkpoint.save.empty() || began.data.data != now.data.data) return;
  const auto said = [](const std::optional<EvalSplit>& split) { return split ? split->text() : std::string("none"); };
  const std::optional<EvalSplit>&before = began.data.eval_split, &after = now.data.eval_split;
  if (before != after) {
    throw InputError(fmt::format("--eval-split: found {}, but the run in {} holds back {}, allowed: that", said(after),
                                 began.checkpoint.save, said(before)),
                     "Rows that were trained on say nothing when they are held back, and rows held back must stay so.");
  }
  if (before && began.model.seed != now.model.seed) {
    throw InputError(fmt::format("--seed: found {}, but --eval-split of the run in {} goes by {}, allowed: that", now.model.seed,
                                 began.checkpoint.save, began.model.seed),
                     "Another seed would hold back other rows, and train on those that were held back.");
  }
}

bool is_of_loaded_run(const char* flag, const ResolvedOptions& resolved) {
  const auto source = resolved.sources.find(flag);
  return source != resolved.sources.end() && source->second == OptionSource::loaded_run;
}

// A name of the hub becomes the directory that the cache has of it. `began`: what a loaded run says.
void find_on_hub(ModelOptions& model, const std::string& began, bool is_loaded) {
  std::error_code ignored;
  if (model.model.empty() || std::filesystem::exists(model.model, ignored) || names_catalogue_model(model.model)) return;
  const std::optional<HubName> name = hub_name_in(model.model);
  if (!name) return;
  const std::filesystem::path cache = hub_cache();
  const std::optional<HubSnapshot> found = find_in_hub_cache(*name, cache);
  if (!found) {
    if (is_loaded) return;  // a run has what it needs in its own directory; what it does not have is asked for later
    throw InputError(
        fmt::format("--model: found {}, which is no file or directory, and not in {}, the cache of Hugging Face's hub",
                    model.model, cache.empty() ? "any" : cache.string()),
        fmt::format("Fetch it first: {}", how_to_fetch(*name)));
  }
  if (const std::optional<HubName> before = hub_name_in(began);
      before && before->name == found->name && !before->revision.empty() && before->revision != found->hash) {
    throw InputError(fmt::format("--model: {} is commit {} in {}, but the run began with {}", model.model, found->hash,
                                 cache.string(), before->revision),
                     fmt::format("Leave --model out, or name what it began with: --model {}", began));
  }
  model.hub = found->words();
  model.model = found->directory.string();
}

// Without --model, an adapter's own file says which model it is of.
void take_base_of_adapter(RunOptions& options) {
  if (!options.model.model.empty() || options.adapter.directory.empty() || !options.checkpoint.load.empty()) return;
  if (const std::optional<AdapterConfig> adapter = adapter_of(options)) options.model.model = adapter->base;
}

// A loaded run keeps the configuration and tokenizer that it began with, unless they are given anew.
void find_copies(ResolvedOptions& resolved) {
  const std::string& run = resolved.options.checkpoint.load;
  const auto is_said_anew = [&](const char* flag) {
    const auto source = resolved.sources.find(flag);
    return source != resolved.sources.end() && source->second != OptionSource::loaded_run;
  };
  if (run.empty()) return;
  const auto find = [&](std::string_view name, std::string& kept) {
    std::error_code ignored;
    const std::string file = run + std::string(name);
    if (std::filesystem::is_regular_file(file, ignored)) kept = file;
  };
  find(kKeptAdapter, resolved.options.adapter.kept_config);
  if (is_said_anew("adapter")) {
    throw InputError(fmt::format("--adapter: found with --load {}, allowed: one of them, as a run has its own adapter", run),
                     "`spillway export --load` writes it as a directory for --adapter.");
  }
  if (is_said_anew("model")) return;
  find(kKeptConfig, resolved.options.model.kept_config);
  if (!is_said_anew("tokenizer") && resolved.options.data.tokenizer != "bytes")
    find(kKeptTokenizer, resolved.options.model.kept_tokenizer);
}

// DeepSpeed's JSON is read with the other files and flags in sight: they fill what it leaves to "auto".
void apply_deepspeed(const std::string& path, const ConfigFile& filed, const Given& typed, ResolvedOptions& resolved) {
  ResolvedOptions beside = resolved;
  apply_file(filed, OptionSource::config_file, beside);
  apply_flags(typed, beside);
  const auto is_given = [&](std::string_view flag) {
    return filed.given.contains(std::string(flag)) || typed.contains(std::string(flag));
  };
  DeepSpeedFile file = read_deepspeed_file(path, {beside.options, is_given});
  resolved.notes = std::move(file.notes);
  for (const DeepSpeedSays& said : file.says) {
    const OptionSource source = said.by_default ? OptionSource::deepspeed_default : OptionSource::deepspeed_file;
    apply_one(said.flag, said.texts, source, fmt::format("{}: {}", path, said.flag), resolved);
  }
}

std::string_view name_of(OptionSource source) {
  switch (source) {
    case OptionSource::by_default: return "default";
    case OptionSource::loaded_run: return "loaded run";
    case OptionSource::deepspeed_default: return "DeepSpeed's default";
    case OptionSource::deepspeed_file: return "DeepSpeed's file";
    case OptionSource::config_file: return "config file";
    case OptionSource::flag: return "flag";
  }
  return "";
}

std::string absolute(const std::string& path) {
  return path.empty() ? path : std::filesystem::absolute(path).lexically_normal().string();
}

}  // namespace

void forget_host_of_files(ResolvedOptions& resolved) {
  MemoryOptions& memory = resolved.options.memory;
  if (memory.device != DeviceChoice::cpu) return;
  const auto forget = [&](const std::string& flag, auto& value, const auto& host) {
    const auto source = resolved.sources.find(flag);
    if (source == resolved.sources.end() || value != host) return;
    if (source->second != OptionSource::loaded_run && source->second != OptionSource::deepspeed_file) return;
    value = {};
    resolved.sources.erase(source);
  };
  forget("host-memory", memory.budget[Tier::host], memory.budget[Tier::host]);
  forget("parameter-tier", memory.parameter_tier, std::optional(Tier::host));
  forget("optimizer-tier", memory.optimizer_tier, std::optional(Tier::host));
  forget("activation-tier", memory.activation_tier, SavedRequest::host);
  forget("update-on", memory.update_on, std::optional(Tier::host));
}

void use_one_rank(RunOptions& options) { options.parallel = {.threads = options.parallel.threads}; }

ResolvedOptions resolve_options(const RawFlags& flags) {
  Given typed = flags.given;
  ConfigFile filed;
  std::string deepspeed_path;
  if (const auto deepspeed = typed.find("deepspeed-config"); deepspeed != typed.end()) {
    deepspeed_path = FlagValue("--deepspeed-config", deepspeed->second).text();
    typed.erase(deepspeed);
  }
  if (const auto config = typed.find("config"); config != typed.end()) {
    filed = read_config_file(FlagValue("--config", config->second).text(), "--config");
    typed.erase(config);
  }

  ResolvedOptions resolved;
  const Given& load_from = typed.contains("load") ? typed : filed.given;
  if (const auto load = load_from.find("load"); load != load_from.end()) {
    const std::string directory = FlagValue("--load", load->second).text();
    ConfigFile loaded = read_config_file(directory + "/run.json", "--load");
    loaded.given.erase("load");  // the run that this run was loaded from
    add_choices_of_earlier_versions(loaded.given);
    loaded.given["save"] = {directory};
    apply_file(loaded, OptionSource::loaded_run, resolved);
  }
  find_kept_input(resolved.options.data, resolved.options.checkpoint.save);
  const RunOptions began = resolved.options;
  if (!deepspeed_path.empty()) apply_deepspeed(deepspeed_path, filed, typed, resolved);
  apply_file(filed, OptionSource::config_file, resolved);
  apply_flags(typed, resolved);
  keep_one_of_alternatives(resolved);
  forget_loss_scale(resolved);
  take_base_of_adapter(resolved.options);
  refuse_other_split(began, resolved.options);
  find_on_hub(resolved.options.model, began.model.model, is_of_loaded_run("model", resolved));
  find_copies(resolved);
  forget_host_of_files(resolved);
  validate(resolved.options);
  return resolved;
}

json to_json(const RunOptions& options) {
  json object = json::object();
  for (const Flag& flag : flag_table()) {
    json value = flag.get(options);
    if (!value.is_null()) object[flag.name] = std::move(value);
  }
  return object;
}

std::string to_json_text(const RunOptions& options) { return json_text(to_json(options)); }

RunOptions options_from_json_text(std::string_view text, const std::string& origin) {
  ResolvedOptions resolved;
  ConfigFile file = parse_config_text(text, origin);
  add_choices_of_earlier_versions(file.given);
  apply_file(file, OptionSource::config_file, resolved);
  find_on_hub(resolved.options.model, {}, true);
  validate(resolved.options);
  return resolved.options;
}

std::string print_config(const ResolvedOptions& resolved) {
  const auto source_of = [&](const std::string& name) {
    const auto found = resolved.sources.find(name);
    return name_of(found == resolved.sources.end() ? OptionSource::by_default : found->second);
  };
  if (resolved.options.log.format == OutputFormat::json) {
    nlohmann::ordered_json object;
    for (const Flag& flag : flag_table()) {
      object[flag.name] = {{"value", flag.get(resolved.options)}, {"from", source_of(flag.name)}};
    }
    return json_text(object, 2);
  }
  std::string table;
  std::string group;
  for (const Flag& flag : flag_table()) {
    if (flag.group != group) {
      group = flag.group;
      table += fmt::format("{}{}\n", table.empty() ? "" : "\n", group);
    }
    const json value = flag.get(resolved.options);
    const std::string text = value.is_null() ? "-" : plain_text(value);
    table += fmt::format("  {:<20} {:<40} {}\n", flag.name, text, source_of(flag.name));
  }
  return table;
}

RunOptions with_absolute_paths(const RunOptions& options) {
  RunOptions result = options;
  std::error_code ignored;
  if (std::filesystem::exists(result.model.model, ignored)) result.model.model = absolute(result.model.model);
  for (std::vector<std::string>* const paths : {&result.data.data, &result.data.eval_data}) {
    for (std::string& path : *paths) path = path == "-" ? path : absolute(path);
  }
  if (result.data.tokenizer != "bytes") result.data.tokenizer = absolute(result.data.tokenizer);
  for (NvmeDirectory& directory : result.memory.nvme) directory.path = absolute(directory.path);
  if (std::filesystem::exists(result.memory.profile, ignored)) result.memory.profile = absolute(result.memory.profile);
  for (std::string* path : {&result.adapter.directory, &result.memory.plan, &result.checkpoint.save, &result.checkpoint.load,
                            &result.log.tensorboard, &result.log.csv})
    *path = absolute(*path);
  return result;
}

}  // namespace spillway
